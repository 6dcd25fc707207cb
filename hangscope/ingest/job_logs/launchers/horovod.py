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

from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.torch_logs.c10d_names import ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_LINES = 2_000  # of one report
_TENSORS = 4


def _report(found: Found) -> Iterator[Event]:
    held_up, tensors, kinds = dict[int, str](), list[str](), set[frozenset[int]]()
    ready = set[tuple[int, ...]]()
    for _, match in found.parts:
        caught = match.groupdict()
        if "lacking" in caught:
            kinds.add(frozenset(ranks_in(match["lacking"])))
            tensors.append(match["tensor"])
        elif "ready" in caught:
            ready.add(ranks_in(match["ready"]))
            tensors.append(f"{match['tensor']} (ready on {ranks_phrase(ranks_in(match['ready']))})")
        elif "held_up" in caught:
            held_up[int(match["held_up"])] = match["by"]
            tensors += _names(match["by"])
    kinds |= {frozenset(held_up)} if held_up else set()
    alike = len(kinds) == 1 and _alike([*held_up.values()])
    yield found.first.event(
        HorovodStall,
        missing=tuple(sorted(kinds.pop())) if alike else (),
        tensors=tuple(dict.fromkeys(tensors))[:_TENSORS],
        by_rank=() if alike else tuple((r, tuple(_names(told)[:_TENSORS])) for r, told in held_up.items()),
        ready=ready.pop() if len(ready) == 1 else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HorovodStall(Event, same_by=("missing",), rank_fields=("missing",)):
    """One report: `missing` are the ranks (global) without which none of the tensors in it can be reduced; empty where they differ.

    Of a list that is cut off (`...`) as much counts as others show. `tensors` are the first few that wait, `by_rank`
    those that each rank lacks, where the ranks differ. `ready`: the ranks that submitted every tensor of a list that counts those.
    """

    missing: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    by_rank: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ready: tuple[int, ...] = ()


REPORT = block(
    says("waiting for remainder of ranks for more than"),
    regex(r"(?P<tensor>\S{1,400}) \[missing ranks: ?(?P<lacking>[\d, ]{1,60000})\]"),
    regex(r"(?P<tensor>\S{1,400}) \[ready ranks: ?(?P<ready>[\d, ]{1,60000})\]"),  # from 0.19.2 to 0.20
    regex(r"^\s*(?P<held_up>\d{1,7})!?: \[(?P<by>\S.{0,4000})$"),
    regex(r"^\W*(?:Stalled ops|Stalled ranks|Missing ranks):|^\s*$"),
    lines=_LINES,
    gap=0,
    made=_report,
)


def _names(told: str) -> list[str]:
    """Return the tensors of a list, without the mark of one that is cut off."""
    return [name for name in (part.strip(" .]") for part in told.split(",")) if name]


def _alike(lists: list[str]) -> bool:
    """Return whether ranks lack the same tensors, as far as lists that are cut off show them."""
    names = [_names(told) for told in lists]
    shortest = min(map(len, names), default=0)
    cut = all("..." in told for told in lists)
    return len({tuple(own[:shortest] if cut else own) for own in names}) < 2
