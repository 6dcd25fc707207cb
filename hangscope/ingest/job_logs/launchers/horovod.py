"""What Horovod's stall inspector prints of tensors that some ranks submitted and others did not.

    WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. ...
    Stalled ops:
    DistributedOptimizer_Allreduce/grad_3 [missing ranks: 5]

    Missing ranks:
    5: [DistributedOptimizer_Allreduce/grad_3, DistributedOptimizer_Allreduce/grad_4 ...]

(horovod/common/operations.cc up to 0.18, stall_inspector.cc behind it, which calls the list `Stalled ranks:` at first.) It is a
warning of a minute: a slow start prints it, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.torch_logs.c10d_names import ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_LINES = 2_000  # of one report
_TENSORS = 4
_HEAD = "waiting for remainder of ranks for more than"
_TITLE = regex(r"^\W*(?:Stalled ops|Stalled ranks|Missing ranks):")
_OF_TENSOR = regex(r"(\S{1,400}) \[missing ranks: ?([\d, ]{1,60000})\]")
_READY = regex(r"(\S{1,400}) \[ready ranks: ?([\d, ]{1,60000})\]")  # from 0.19.2 to 0.20
_OF_RANK = regex(r"^\s*(\d{1,7})!?: \[(\S.{0,4000})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodStall(Event, same_by=("missing",)):
    """One report: `missing` are the ranks (global) without which none of the tensors in it can be reduced; empty where they differ.

    Of a list that is cut off (`...`) as much counts as others show. `tensors` are the first few that wait, `by_rank`
    those that each rank lacks, where the ranks differ. `ready`: the ranks that submitted every tensor of a list that counts those.
    """

    missing: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    by_rank: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ready: tuple[int, ...] = ()


@dataclass(slots=True)
class _Open:
    first: Line
    lacking: list[frozenset[int]] = field(default_factory=list)  # ranks, by tensor
    held_up: dict[int, str] = field(default_factory=dict)  # tensors, by rank
    tensors: list[str] = field(default_factory=list)
    ready: list[tuple[int, ...]] = field(default_factory=list)  # ranks, by tensor
    left: int = _LINES


class HorovodParser(LineParser):
    """Collects the lines of each report into one event."""

    literals = (_HEAD.encode(),)

    def __init__(self) -> None:
        self._open: _Open | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line of a report."""
        report = self._open
        if _HEAD in line.text:
            done = list(self.close())
            self._open = _Open(line)
            return done
        if report is None:
            return ()
        report.left -= 1
        of_tensors = _OF_TENSOR.findall(line.text)
        of_rank = _OF_RANK.match(line.text) or _OF_RANK.match(
            line.raw
        )  # where `5: ` was taken for srun's prefix
        report.lacking += [frozenset(ranks_in(ranks)) for _, ranks in of_tensors]
        report.tensors += [name for name, _ in of_tensors]
        ready = _READY.findall(line.text)
        report.tensors += [f"{name} (ready on {ranks_phrase(ranks_in(ranks))})" for name, ranks in ready]
        report.ready += [tuple(ranks_in(ranks)) for _, ranks in ready]
        if of_rank:
            report.held_up[int(of_rank[1])] = of_rank[2]
            report.tensors += _names(of_rank[2])
        goes_on = of_tensors or ready or of_rank or _TITLE.match(line.text) or not line.text.strip()
        return () if goes_on and report.left > 0 else self.close()

    def close(self) -> Iterable[Event]:
        """Return the report that is open."""
        report, self._open = self._open, None
        if report is None:
            return []
        kinds = {*report.lacking, *([frozenset(report.held_up)] if report.held_up else [])}
        alike = len(kinds) == 1 and _alike([*report.held_up.values()])
        missing = tuple(sorted(kinds.pop())) if alike else ()
        tensors = tuple(dict.fromkeys(report.tensors))[:_TENSORS]
        lacks = (
            () if alike else tuple((r, tuple(_names(told)[:_TENSORS])) for r, told in report.held_up.items())
        )
        same = report.ready[0] if len(set(report.ready)) == 1 else ()
        return [report.first.event(HorovodStall, missing=missing, tensors=tensors, by_rank=lacks, ready=same)]


def _names(told: str) -> list[str]:
    """Return the tensors of a list, without the mark of one that is cut off."""
    return [name for name in (part.strip(" .]") for part in told.split(",")) if name]


def _alike(lists: list[str]) -> bool:
    """Return whether ranks lack the same tensors, as far as lists that are cut off show them."""
    names = [_names(told) for told in lists]
    shortest = min(map(len, names), default=0)
    cut = all("..." in told for told in lists)
    return len({tuple(own[:shortest] if cut else own) for own in names}) < 2
