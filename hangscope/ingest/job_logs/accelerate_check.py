"""Accelerate's check of shapes before a collective (ACCELERATE_DEBUG_MODE), which every process raises with the shapes of all.

    accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes ...

    Operation: `accelerate.utils.operations.gather`
    Input shapes:
      - Process 0: [8, 512]
      - Process 1: [8, 498]

(accelerate/utils/operations.py, `verify_operation`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LEAST = 3  # processes of which one may be the odd one
_MADE = {"gather": "all_gather_into_tensor", "reduce": "all_reduce"}


def _report(found: Found) -> Iterator[Event]:
    """Yield a report of the calls that differ, where most processes gave one shape."""
    op = found.last("operation") or ""
    shapes = {int(rank): shape for rank, shape in found.all("process", "shape") if int(rank) < MAX_RANKS}
    ((usual, times),) = Counter(shapes.values()).most_common(1) or ((None, 0),)
    named = tuple(rank for rank, shape in sorted(shapes.items()) if shape != usual)
    if named and usual is not None and len(shapes) >= _LEAST and 2 * times > len(shapes):
        yield found.first.event(
            AnalyzerReport, what="unlike", op=_MADE.get(op, op), named=named, expected=tuple(sorted(shapes)), error="COLLECTIVE_SIZE",
            wanted=usual, found=tuple(shapes[rank] for rank in named),
        )  # fmt: skip


CHECK = block(
    says("due to shape mismatches. All shapes across devices must be valid"),
    regex(r"Operation: `[\w.]{0,100}?(?P<operation>\w{1,60})`"),
    regex(r"^\s*- Process (?P<process>\d{1,7}): (?P<shape>\[[\d, ]{0,200}\])\s*$"),
    lines=MAX_RANKS,
    gap=6,
    made=_report,
)
