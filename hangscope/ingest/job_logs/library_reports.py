"""Reports of libraries on collectives that do not fit: Horovod's stall inspector and Accelerate's check of shapes.

    WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. ...
    Stalled ops:
    DistributedOptimizer_Allreduce/grad_3 [missing ranks: 5]

    Missing ranks:
    5: [DistributedOptimizer_Allreduce/grad_3, DistributedOptimizer_Allreduce/grad_4 ...]

    accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes ...

    Operation: `accelerate.utils.operations.gather`
    Input shapes:
      - Process 0: [8, 512]
      - Process 1: [8, 498]

(horovod/common/operations.cc up to 0.18, later stall_inspector.cc, which calls the list `Stalled ranks:` at first: a warning that a slow
start prints, too. accelerate/utils/operations.py, `verify_operation`, which every process raises with the shapes of all if
ACCELERATE_DEBUG_MODE is set.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d import ranks_in
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_LINES = 2_000  # of a report of Horovod's
_TENSORS = 4
_LEAST = 3  # processes of which one may be the outlier
_ISSUED = {"gather": "all_gather_into_tensor", "reduce": "all_reduce"}


class HorovodStall(Event, same_by=("missing",), rank_fields=("missing",)):
    """One report: `missing` are the ranks (global) without which none of the tensors in it can be reduced; empty where they differ.

    A list that is cut off (`...`) counts as far as others show it. `tensors` are the first few that wait, `by_rank` those that
    each rank has not submitted, where the ranks differ. `ready`: the ranks that submitted every tensor of a list of ready ranks. `sides`: the sets of ranks, smallest first, that
    submitted different tensors, where no rank is in two of them.
    """

    missing: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    by_rank: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ready: tuple[int, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()


def _stall(found: Found) -> Iterator[Event]:
    missing = [(tensor, ranks_in(ranks)) for tensor, ranks in found.all("tensor", "missing")]
    ready = [(tensor, ranks_in(ranks)) for tensor, ranks in found.all("tensor", "ready")]
    held_up = {int(rank): tensors for rank, tensors in found.all("held_up", "tensors")}
    tensors = [tensor for tensor, _ in missing]
    tensors += [f"{tensor} (ready on {ranks_phrase(ranks)})" for tensor, ranks in ready]
    tensors += [name for names in held_up.values() for name in _names(names)]
    kinds = {frozenset(ranks) for _, ranks in missing} | ({frozenset(held_up)} if held_up else set())
    alike = len(kinds) == 1 and _alike([*held_up.values()])
    everywhere = {ranks for _, ranks in ready}
    sides = sorted({tuple(sorted(ranks)) for _, ranks in (*missing, *ready)}, key=len)
    apart = len(sides) > 1 and len({rank for side in sides for rank in side}) == sum(map(len, sides))
    yield found.first.event(
        HorovodStall,
        missing=tuple(sorted(kinds.pop())) if alike else (),
        tensors=tuple(dict.fromkeys(tensors))[:_TENSORS],
        by_rank=() if alike else tuple((r, tuple(_names(names)[:_TENSORS])) for r, names in held_up.items()),
        ready=everywhere.pop() if len(everywhere) == 1 else (),
        sides=tuple(sides) if apart else (),
    )


def _names(tensors: str) -> list[str]:
    """Return the tensors of a list, without the mark of one that is cut off."""
    return [name for name in (part.strip(" .]") for part in tensors.split(",")) if name]


def _alike(lists: list[str]) -> bool:
    """Return whether ranks have not submitted the same tensors, as far as lists that are cut off show them."""
    names = [_names(tensors) for tensors in lists]
    shown = min(map(len, names), default=0) if all("..." in tensors for tensors in lists) else None
    return len({tuple(own[:shown]) for own in names}) < 2


def _check(found: Found) -> Iterator[Event]:
    """Yield a report of the collectives that differ, where most processes passed one shape."""
    op = found.last("operation") or ""
    shapes = {int(rank): shape for rank, shape in found.all("process", "shape") if int(rank) < MAX_RANKS}
    ((usual, times),) = Counter(shapes.values()).most_common(1) or ((None, 0),)
    named = tuple(rank for rank, shape in sorted(shapes.items()) if shape != usual)
    if named and usual is not None and len(shapes) >= _LEAST and 2 * times > len(shapes):
        yield found.first.event(
            AnalyzerReport, what="unlike", op=_ISSUED.get(op, op), named=named, expected=tuple(sorted(shapes)), error="COLLECTIVE_SIZE",
            wanted=usual, found=tuple(shapes[rank] for rank in named),
        )  # fmt: skip


STALL = block(
    says("waiting for remainder of ranks for more than"),
    regex(r"(?P<tensor>\S{1,400}) \[missing ranks: ?(?P<missing>[\d, ]{1,60000})\]"),
    regex(r"(?P<tensor>\S{1,400}) \[ready ranks: ?(?P<ready>[\d, ]{1,60000})\]"),  # from 0.19.2 to 0.20
    regex(r"^\s*(?P<held_up>\d{1,7})!?: \[(?P<tensors>\S.{0,4000})$"),
    regex(r"^\W*(?:Stalled ops|Stalled ranks|Missing ranks):|^\s*$"),
    lines=_LINES,
    gap=0,
    made=_stall,
)
CHECK = block(
    says("due to shape mismatches. All shapes across devices must be valid"),
    regex(r"Operation: `[\w.]{0,100}?(?P<operation>\w{1,60})`"),
    regex(r"^\s*- Process (?P<process>\d{1,7}): (?P<shape>\[[\d, ]{0,200}\])\s*$"),
    lines=MAX_RANKS,
    gap=6,
    made=_check,
)
