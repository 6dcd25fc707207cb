"""What torch.distributed.debug writes about all ranks, every minute one file a page: `start_debug_server(dump_dir=...)`.

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
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d_names import ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_GONE = regex(r"[A-Za-z]{0,40}(?:Connect|Connection|Disconnected|OSError)\w{0,20}")
_SET = regex(r"\{(\d{1,7}(?:, \d{1,7}){0,20000})\}")
_KEYS = regex(r"[{,] ?(\d{1,7}): (?=[A-Z]\w{2,40}\()")
_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer(Event, by_launcher=True, size_field="world"):
    """The debug server of `rank` did not answer where those of `answered` of `world` ranks did. Nobody listens there, or it ran out of time."""

    answered: int
    world: int


def _silent(found: Found) -> Iterator[Event]:
    """Yield the ranks that did not answer; others answered that they cannot do that."""
    ((answered, world),) = [(int(a), int(w)) for a, w in found.all("answered", "world")]
    for line, match in found.parts[1:]:
        gone = _GONE.fullmatch(match["error"]) is not None
        if int(match["silent"]) < world and answered and (gone or match["error"] == "TimeoutError"):
            yield line.event(NoAnswer, rank=int(match["silent"]), answered=answered, world=world)


def _rows(found: Found) -> Iterator[Event]:
    for line, _ in found.parts[1:]:
        if (event := _row(line)) is not None:
            yield event


def _row(line: Line) -> Event | None:
    """Return the report on one call that lacks ranks, or that ranks made otherwise."""
    cells = re.split(r" {2,}", line.text.strip())
    if (
        len(cells) < 14
        or not (cells[0].isdigit() and cells[3].isdigit())
        or cells[2] not in ("True", "False")
    ):
        return None
    expected, rest = _SET.fullmatch(cells[10]), cells[13:]
    missing = next((match for cell in rest if (match := _SET.fullmatch(cell))), None)
    unlike = [
        int(rank) for cell in rest if cell.startswith("{") and missing is None for rank in _KEYS.findall(cell)
    ]
    if expected is None or not (missing or unlike) or cells[11] == "completed":
        return None
    named = ranks_in(missing[1]) if missing else tuple(sorted(set(unlike)))
    group, _, desc = cells[6].partition(":")
    return line.event(
        AnalyzerReport, what="absent" if missing else "unlike", seq=int(cells[3]), op=user_op(cells[7].rpartition(":")[2]),
        named=named, expected=ranks_in(expected[1]), group_name=group, group_desc=desc or None,
    )  # fmt: skip


SUMMARY = block(
    says(r"^PARTIAL DATA: (?P<answered>\d{1,7})/(?P<world>\d{1,7}) workers responded"),
    regex(r"^  Rank (?P<silent>\d{1,7}): (?P<error>\w{0,80})"),
    lines=_ROWS,
    gap=0,
    made=_silent,
)
TABLE = block(
    says("^--- Collectives ---"),
    regex(r"^\s{0,40}\d{1,18} {2,}.*  "),
    ends=regex("^---(?! Collectives)"),
    lines=_ROWS,
    made=_rows,
)
