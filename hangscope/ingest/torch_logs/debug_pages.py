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
from collections.abc import Iterable

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d_names import ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_SUMMARY = regex(r"^PARTIAL DATA: (\d{1,7})/(\d{1,7}) workers responded")
_SILENT = regex(
    r"^  Rank (\d{1,7}): (TimeoutError|[A-Za-z]{0,40}(?:Connect|Connection|Disconnected|OSError)\w{0,20})\b"
)
_TABLE = "--- Collectives ---"
_SET = regex(r"\{(\d{1,7}(?:, \d{1,7}){0,20000})\}")
_KEYS = regex(r"[{,] ?(\d{1,7}): (?=[A-Z]\w{2,40}\()")
_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer(Event, by_launcher=True):
    """The debug server of `rank` did not answer where those of `answered` of `world` ranks did. `gone`: nobody listens there."""

    gone: bool
    answered: int
    world: int


class DebugPageParser(LineParser):
    """Reads who did not answer, and the calls that torch's analyzer did not find whole."""

    literals = (b"workers responded", b"--- Collectives ---")

    def __init__(self) -> None:
        self._answered: tuple[int, int] | None = None
        self._rows = 0

    @property
    def wants_more(self) -> bool:
        """Whether a list of ranks or a table is being read."""
        return self._answered is not None or self._rows > 0

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line of a page."""
        if match := _SUMMARY.match(line.text):
            self._answered = (int(match[1]), int(match[2]))
            return ()
        if line.text.startswith(_TABLE):
            self._rows = _ROWS
            return ()
        if self._answered is not None:
            return self._silent(line)
        if self._rows:
            self._rows = 0 if line.text.startswith("---") else self._rows - 1
            return _row(line)
        return ()

    def _silent(self, line: Line) -> Iterable[Event]:
        if not line.text.startswith("  Rank "):
            self._answered = None
            return ()
        match = _SILENT.match(line.text)
        if match is None or self._answered is None:
            return ()  # it answered that it cannot do that
        answered, world = self._answered
        rank = int(match[1])
        if rank >= world or not answered:
            return ()
        gone = match[2] != "TimeoutError"
        return (line.event(NoAnswer, rank=rank, gone=gone, answered=answered, world=world),)


def _row(line: Line) -> Iterable[Event]:
    """Return the report on one call that lacks ranks, or that ranks made otherwise."""
    cells = re.split(r" {2,}", line.text.strip())
    if (
        len(cells) < 14
        or not (cells[0].isdigit() and cells[3].isdigit())
        or cells[2] not in ("True", "False")
    ):
        return ()
    expected, rest = _SET.fullmatch(cells[10]), cells[13:]
    missing = next((match for cell in rest if (match := _SET.fullmatch(cell))), None)
    unlike = [
        int(rank) for cell in rest if cell.startswith("{") and missing is None for rank in _KEYS.findall(cell)
    ]
    if expected is None or not (missing or unlike) or cells[11] == "completed":
        return ()
    named = ranks_in(missing[1]) if missing else tuple(sorted(set(unlike)))
    group, _, desc = cells[6].partition(":")
    return (
        line.event(
            AnalyzerReport, what="absent" if missing else "unlike", seq=int(cells[3]), op=user_op(cells[7].rpartition(":")[2]),
            named=named, expected=ranks_in(expected[1]), group_name=group, group_desc=desc or None,
        ),
    )  # fmt: skip
