"""What every thread of a process was doing: stack dumps of faulthandler, py-spy, pystack, gdb and torch.distributed.debug.

    Thread 0x00007f4b9c884b80 (most recent call first):              faulthandler (CPython Python/traceback.c)
      File "train.py", line 11 in <module>
    Thread 4242 (idle): "MainThread"                                 py-spy dump, or its --json
        all_reduce (torch/distributed/distributed_c10d.py:3252)
    Thread 1 (Thread 0x7f2c (LWP 4242) "python"):                    gdb, pstack
    #0  0x00007f2c in poll () from /lib/libc.so.6
    Process 4243: worker of rank 3                                   `hangscope run`, above a loader worker's stack, whatever wrote it
    Traceback for thread 4242 (python) [] (most recent call last):   pystack; it and the next print the outermost frame first
        (Python) File "train.py", line 11, in <module>
    # Thread 139999273790336                                         Ray Train without py-spy
    === Rank 3: http://gpu07:25999 ===                               torch/distributed/debug/_debug_handlers.py, one file for all ranks

All others print the innermost frame first. A line above a stack may state whose it is (lines/rank_words.py, threads.py). Of several
dumps in one file the last one of each thread counts.

Stacks within a log come long after its start: at an abort, or from a timer of the job or an inference engine's watchdog.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import BinaryIO

from hangscope.ingest.files.numbering import FILE_TITLE, of_file_titles, of_titles
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line, clean, strip_prefix
from hangscope.ingest.lines.rank_words import likewise, ranks_titled
from hangscope.ingest.stacks import headers
from hangscope.ingest.stacks.threads import (
    FRAMES_KEPT,
    THREADS_KEPT,
    OpenThread,
    Thread,
    finished,
    local_ranks_of_commands,
    own_name,
    ranks_of_commands,
    spy_json,
)
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_BYTES_READ = 1 << 26
_LINE_LIMIT = 4000

_SECTION = regex(r"^=== Rank (\d{1,7})(?:: (\S{1,300}))? ===\s*$")
#: after a thread's or a process's header
_REMARK = regex(r"^(\S.{1,200}?) {1,80}# ?rank[ :=]{0,2}(\d{1,7})\s*$")
#: the process of a stack, as the command above it or its title states it
_OF_PID = regex(
    r"(?i)\b(?:py-?spy|gdb|pstack|eu-stack|stack|back-?trace|trace)\b.{0,80}?(?:(?:-p|--pid)[ =]{0,2}|\bpid[ :=#]{0,2}|[ (])(\d{3,9})\b(?![./]\d)"
)
_BOTH = regex(r"(Process \d{1,9}): (Thread .{1,200})$")
_RULED_PID = regex(r"[#=*-]{2,8} .{0,80}?(?i:\bpid)[ :=#]{0,2}(\d{3,9})\b")
_TITLE, _NAME = 160, 48  # characters
_BELOW_A_TITLE = 3  # lines that may stand between it and the dump, empty ones and fences apart
#: (global rank, local rank, task, process id, what else distinguishes the writers of lines) of a process, as far as they are known
_Who = tuple["int | None", "int | None", "int | None", "int | None", str]
_NOBODY: _Who = (None, None, None, None, "")


@dataclass(slots=True)
class ProcessStacks:
    """The threads of one process as (name, stack with the innermost frame first, whether it is the main thread).

    `rank` is global, `local_rank` torchrun's and `task` srun's or mpirun's number, as far as prefixes state them; `name` as in `own_name`.
    """

    rank: int | None = None
    pid: int | None = None
    local_rank: int | None = None
    task: int | None = None
    threads: list[Thread] = field(default_factory=list)
    name: str = ""


def read_processes(stream: BinaryIO, file: str) -> list[ProcessStacks]:
    """Return the processes in a stack dump, each with the threads it was dumped with.

    The thread that wrote the dump, where it is a helper of its own, is left out. `rank` is set where the dump
    names it (torch.distributed.debug, or `[rank3]:` before its lines); at most 64 MiB are read.
    """
    data = stream.read(_BYTES_READ)
    of_json = spy_json(data) if data.lstrip()[:1] in (b"[", b"{") else {}
    processes = [ProcessStacks(None, pid, threads=threads) for pid, threads in of_json.items()]
    return processes or processes_in(_lines(data, file))


def processes_in(lines: Iterable[Line]) -> list[ProcessStacks]:
    """Return the processes whose stacks these lines show; a worker's threads are added to those of its rank."""
    found = _Dump()
    for line in lines:
        found.read(line)
    pids = sorted(found.titles.keys() | found.remarks.keys())
    titles = {pid: f"{found.titles.get(pid, '')} {found.remarks.get(pid, '')}".strip() for pid in pids}
    by_title = ranks_of_commands(titles) or of_titles(found.headed)
    local_by_title = local_ranks_of_commands({**found.headed, **titles})
    by_file = of_file_titles(writer for *_, writer in found.threads)
    processes = []
    for (rank, local_rank, task, pid, writer), threads in found.threads.items():
        rank = rank if rank is not None else by_file.get(writer)
        if rank is None and pid is not None:
            rank = by_title.get(pid)
            local_rank = local_by_title.get(pid) if rank is local_rank is None else local_rank
        above = found.headed.get(pid or 0, "").strip(" `*#=-")
        title = above[:-1] if above.endswith(":") and len(above) <= _NAME else ""
        name = own_name(found.titles.get(pid or 0, "")) or title
        process = ProcessStacks(rank, pid, local_rank, task, finished([*threads.values()]), name)
        alike = (replace(process, rank=other) for other in found.titled.get(rank, ()) if other != rank)
        processes += [process, *alike]
    ranks = [process for process in processes if process.pid not in found.workers]
    for process in processes:
        if process.pid in found.workers and len(ranks) == 1:
            ranks[0].threads += [
                (f"worker {process.pid}: {n}", stack, False) for n, stack, _ in process.threads
            ]
    return ranks or processes


def _lines(data: bytes, file: str) -> Iterator[Line]:
    for number, raw in enumerate(re.split(rb"\r?\n", data), 1):
        text = raw[:_LINE_LIMIT].decode("utf-8", "replace")
        if text[:1] in "[(" or text[:5].strip().rstrip(":").isdigit():
            yield strip_prefix(text, number, file)
        else:
            yield Line(file, number, clean(text), text)


class _Dump:
    """The threads of a dump by process, read line by line.

    `workers` are processes that are workers, `titles` what processes are called by their ids, `remarks` what follows these ids in commands
    and titles above, and `headed` the lines above them; `titled` holds the ranks that a title names, by the first of them.
    """

    _pid: int | None

    def __init__(self) -> None:
        self.threads: dict[_Who, dict[str, OpenThread]] = {}
        self.workers: set[int] = set()
        self.titles: dict[int, str] = {}
        self.remarks: dict[int, str] = {}
        self.headed: dict[int, str] = {}
        self._above = ""
        self.titled: dict[int | None, tuple[int, ...]] = {}
        self._begin(None)
        self._by_thread: int | None = None  # process id by the number of a main thread
        #: (rank, process id) that a line states of what is below it, where a traceback may have begun
        self._title: tuple[int | None, int | None] | None = None
        self._left, self._by_hand, self._raised = 0, False, False
        self._last = _NOBODY  # whose header was read last

    def read(self, line: Line) -> None:
        """Take one line: whose the threads below it are, a thread's header, or a frame of it."""
        if (remark := _REMARK.match(line.text)) and headers.begins_dump(remark[1]):
            self._begin(int(remark[2]))
            line = replace(line, text=remark[1])
        if FILE_TITLE.match(line.text) and not ranks_titled(line.text):
            self._begin(None)
            self._file = line.text
        if (both := _BOTH.match(line.text)) is not None:  # shortened by a person
            self.read(replace(line, text=f"{both[1]}: "))
            line = replace(line, text=both[2])
        section, process = _SECTION.match(line.text), headers.SPY_PROCESS.match(line.text)
        thread = headers.header(line.text)
        title = None if section or process or thread else self._titled(line)
        if (self._title is not None and (process or thread)) or (self._by_hand and process):
            # what somebody wrote above a dump counts for the one process below it
            self._begin(*(self._title or (None, None)))
            self._by_hand, self._title = self._title is not None, None
        elif title is not None:
            self._title, self._left, self._raised = title, _BELOW_A_TITLE, False
            return
        elif line.text.strip("` \t"):
            self._left -= 1
            self._raised |= headers.is_of_an_error(line.text)
            begun = (
                headers.untitled(line.text, self._raised)
                if self._title is not None and thread is None
                else None
            )
            if self._title is not None and begun is not None:
                self._begin(*self._title)
                self._title, thread = None, begun
            self._title = self._title if self._left > 0 else None
        if section:
            self._begin(int(section[1]))
        elif process:
            self._pid = int(process[1])
            self.titles[self._pid] = line.text[process.end() :]
            self.headed[self._pid] = self._above
            if headers.WORKER.match(line.text):
                self.workers.add(self._pid)
        else:
            self._thread(line, thread)
        self._above = line.text if line.text.strip("` \t") else self._above

    def _titled(self, line: Line) -> tuple[int | None, int | None] | None:
        """Return whose stack a line announces, as (rank, process id); None where it announces none."""
        text = line.text
        if (alike := likewise(text) if self.threads else None) is not None:
            like = self._last[0] if alike[1] is None else alike[1]
            titled = (self._title or self._last)[0]
            own = alike[0] or (() if titled is None else (titled,))
            self.titled[like] = tuple(dict.fromkeys((*self.titled.get(like, ()), *own)))
            return None
        if headers.frame_of(text) is not None:
            return None
        if ranks := ranks_titled(text, above_a_stack=True):
            self.titled[ranks[0]] = ranks
            return ranks[0], None
        process = (_OF_PID.search(text) or _RULED_PID.match(text)) if len(text) <= _TITLE else None
        if process is None:
            return None
        self.remarks[int(process[1])] = text[process.end() :].strip()
        return line.rank, int(process[1])

    def _begin(self, section: int | None, pid: int | None = None) -> None:
        self._section, self._pid = section, pid  # the first of several ranks
        self._file = ""  # a title that names a file, of which the text is a copy
        self._open: dict[_Who, OpenThread] = {}  # by writer

    def _thread(self, line: Line, thread: OpenThread | None) -> None:
        """Begin a thread, or add a frame to that of the line's writer."""
        rank = line.rank if line.rank is not None else self._section
        writer: _Who = (rank, None, None, None, "")
        if rank is None:
            writer = (None, line.local_rank, line.task, line.pid, line.origin or self._file)
        if thread is None and writer not in self._open:
            if writer == _NOBODY and self._last in self._open:
                writer = self._last  # a logger puts its prefix before the first line of what it prints alone
            elif line.text.startswith("#0 "):
                thread = OpenThread("1", "", numbered_first=True)  # pstack of a process with one thread
        if thread is not None:
            self._last, self._open[writer] = writer, thread
            main = thread.name == "MainThread" and thread.ident.isdigit() and writer == _NOBODY
            begun = self.threads.get((*writer[:3], self._pid, writer[4]), {})
            another = any(t.name == "MainThread" and ident != thread.ident for ident, t in begun.items())
            if main and (another or self._pid in (None, self._by_thread)):
                # py-spy prints the kernel's number of a thread, which of a main thread is that of its process
                self._pid = self._by_thread = int(thread.ident)
                self.headed.setdefault(self._pid, self._above)
            pid = writer[3] if writer[3] is not None else self._pid
            known = self.threads.setdefault((*writer[:3], pid, writer[4]), {})
            if len(known) < THREADS_KEPT:
                known.pop(thread.ident, None)  # a later dump of the same thread replaces the earlier one
                known[thread.ident] = thread
        frame = headers.frame_of(line.text)
        at = self._open.get(writer) if not headers.is_of_an_error(line.text) else self._open.pop(writer, None)
        if frame is not None and at is not None and len(at.frames) < FRAMES_KEPT:
            at.frames.append(frame)


_LINES_KEPT = 20_000  # the last ones: of several dumps the last is the one of the freeze
_SOURCE = " " * 8  # pystack shows the source text below each frame
_OTHERS_BETWEEN = 200  # lines of other writers that may stand within one dump


class LateStackParser(LineParser):
    """Keeps the lines of thread dumps; it makes no events, `processes` returns the stacks at the end."""

    literals = (b" (most recent call first):", b'): "MainThread"', b"Process ", b"Traceback for thread ")

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=_LINES_KEPT)
        self._open: dict[str, int] = {}
        self._last = ""

    def feed(self, line: Line) -> Iterable[Event]:
        """Keep a line of a dump."""
        left = self._open.pop(line.origin, 0)
        if headers.is_of_an_error(line.text):
            return []
        if not line.origin and not left and self._last in self._open and headers.is_frame(line.text):
            self._lines.append(line)  # a logger puts its prefix before the first line of what it prints alone
            return []
        if headers.begins_dump(line.text) or (left and headers.is_frame(line.text)):
            self._lines.append(line)
            self._open[line.origin] = _OTHERS_BETWEEN
            self._last = line.origin
        elif left > 1 and (not line.text.strip() or line.text.startswith(("Python v", _SOURCE))):
            self._open[line.origin] = left - 1  # between two threads, or two frames
        self._open = {name: left - (name != line.origin) for name, left in self._open.items() if left > 1}
        return []

    def processes(self) -> list[ProcessStacks]:
        """Return the processes whose stacks were dumped."""
        return [process for process in processes_in(self._lines) if process.threads]
