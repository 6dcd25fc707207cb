"""The pages that torch.distributed.debug writes about all ranks every minute, one file each: `start_debug_server(dump_dir=...)`.

    PARTIAL DATA: 3/4 workers responded
      Rank 2: TimeoutError:
    --- Collectives ---
      id    group_id  pass_check      collective_seq_id    p2p_seq_id    record_id  pg_desc       collective_name ...
       3           0  True                            4             0            3  0:default_pg  nccl:all_reduce    [[1024]] ... {2}

(torch/distributed/debug/_frontend.py and _debug_handlers.py of torch 2.15; the tables are those of torch's own analyzer. Their
stacks, `=== Rank 3: http://gpu07:25999/... ===`, are read with all other stacks.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d_names import ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_GONE = regex(r"TimeoutError$|[A-Za-z]{0,40}(?:Connect|Connection|Disconnected|OSError)\w{0,20}$")
_SET = regex(r"\{\d{1,7}(?:, \d{1,7}){0,20000}\}")
_KEYS = regex(r"[{,] ?(\d{1,7}): (?=[A-Z]\w{2,40}\()")
_ROWS = 20_000
_CELLS = 5  # of a row at least, from its sizes on


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer(Event, by_launcher=True, size_field="world"):
    """The debug server of `rank` did not answer, where those of `answered` of `world` ranks did: it is gone or timed out."""

    answered: int
    world: int


def _silent(found: Found) -> Iterator[Event]:
    """Yield the ranks that did not answer; others answered that they cannot do that."""
    answered, world = (int(number) for number in found.parts[0][1].groups())
    for line, match in found.parts[1:]:
        rank = int(match["silent"])
        if rank < world and answered and _GONE.match(match["error"]):
            yield line.event(NoAnswer, rank=rank, answered=answered, world=world)


def _rows(found: Found) -> Iterator[Event]:
    """Yield the report on each collective with missing ranks, or that ranks issued differently."""
    for line, row in found.parts[1:]:
        cells = re.split(r" {2,}", row.groupdict().get("cells", "").strip())
        if len(cells) < _CELLS:
            continue
        expected, state, *rest = cells[2:]
        missing = next((cell for cell in rest if _SET.fullmatch(cell)), "")
        unlike = "" if missing else " ".join(cell for cell in rest if cell.startswith("{"))
        named = ranks_in(missing) or tuple(sorted({int(rank) for rank in _KEYS.findall(unlike)}))
        if _SET.fullmatch(expected) and named and state != "completed":
            yield line.event(
                AnalyzerReport,
                what="absent" if missing else "unlike",
                seq=int(row["seq"]),
                op=user_op(row["op"]),
                named=named,
                expected=ranks_in(expected),
                group_name=row["group"],
                group_desc=row["desc"],
            )


SUMMARY = block(
    says(r"^PARTIAL DATA: (?P<answered>\d{1,7})/(?P<world>\d{1,7}) workers responded"),
    regex(r"^  Rank (?P<silent>\d{1,7}): (?P<error>\w{0,80})"),
    lines=_ROWS,
    gap=0,
    made=_silent,
)
TABLE = block(
    says("^--- Collectives ---"),
    regex(
        r"^\s{0,40}\d{1,18} {2,}\S+ {2,}(?:True|False) {2,}(?P<seq>\d{1,18}) {2,}\S+ {2,}\S+ {2,}"
        r"(?P<group>[^\s:]{1,200})(?::(?P<desc>\S{1,200}))? {2,}(?:\w{1,40}:)?(?P<op>\w{1,80})(?P<cells> {2,}.*)$"
    ),
    ends=regex("^---(?! Collectives)"),
    lines=_ROWS,
    made=_rows,
)
