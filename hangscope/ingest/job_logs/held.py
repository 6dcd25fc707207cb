"""What holds a process up by its own word or the kernel's: a debugger's prompt, and a task that does not wake.

    > /workspace/train/loss.py(66)forward()
    -> scale = scale / scale.sum()
    (Pdb)

    [881320.40] INFO: task python:9914 blocked for more than 120 seconds.

    9914 Ds   rpc_wait_bit_killable   python fit.py --rank 0

    process 9914 is stopped

(CPython Lib/pdb.py, IPython's debugger; Linux kernel/hung_task.c, which looks at tasks in uninterruptible sleep; ps, of whose rows
the process ids are of use; hangscope/live/look/kernel.py, one file for each rank.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.job_logs.launchers.deepspeed import Spawned
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.regex import regex

_PROMPT = regex(r"^(?:\(Pdb\+{0,2}\)|ipdb>)(?: |$)")
_STATE = regex(r"^process (\d{1,9}) is (stopped|traced)$")
_TASK = regex(r"\btask (\S{1,64}):(\d{1,9}) blocked for more than \d{1,9} seconds")
_ROW = regex(
    r"^\s{0,8}(?:[a-z_][\w.+-]{0,31} {1,12})?(\d{1,9}) .{0,200}?\bpython[\d.]{0,6} .{0,2000}?--(?:global[_-])?rank[ =](\d{1,7})\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Event, same_by=("by", "victim_pid")):
    """A process is held up: `by` is debugger, kernel or stop (a signal, such as SIGSTOP). The rank follows where one rank alone is known by `victim_pid`."""

    by: str
    victim_pid: int | None = None


class HeldParser(LineParser):
    """Reads prompts and the kernel's word at once, and the rows of ps at the end: they tell ranks where these differ."""

    literals = (
        b"(Pdb)",
        b"(Pdb++)",
        b"ipdb>",
        b" blocked for more than ",
        b" is stopped",
        b" is traced",
        b" --rank",
        b" --global_rank",
        b" --global-rank",
    )

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, Line]] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Return what a line tells of a process that is held up."""
        if _PROMPT.match(line.text):
            yield line.event(Held, by="debugger")
        elif state := _STATE.match(line.text):
            by = "stop" if state[2] == "stopped" else "debugger"
            yield replace(line.event(Held, by=by, victim_pid=int(state[1])), pid=None)
        elif task := _TASK.search(line.text):
            yield replace(line.event(Held, by="kernel", victim_pid=int(task[2])), pid=None)
        elif (row := _ROW.match(line.text)) and int(row[2]) < MAX_RANKS:
            self._rows[int(row[1])] = (int(row[2]), line)

    def close(self) -> Iterable[Event]:
        """Return the processes of the rows, unless the option is another rank, which all would have in common."""
        if len({rank for rank, _ in self._rows.values()}) < max(2, len(self._rows)):
            return
        for pid, (rank, line) in self._rows.items():
            yield replace(line.event(Spawned), rank=rank, pid=pid)
