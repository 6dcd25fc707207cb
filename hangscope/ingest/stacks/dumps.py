"""What every thread of a process was doing: stack dumps of faulthandler, py-spy, gdb and torch.distributed.debug.

    Thread 0x00007f4b9c884b80 (most recent call first):              faulthandler (CPython Python/traceback.c)
      File "train.py", line 11 in <module>
    Thread 4242 (idle): "MainThread"                                 py-spy dump, or its --json
        all_reduce (torch/distributed/distributed_c10d.py:3252)
    Thread 1 (Thread 0x7f2c (LWP 4242) "python"):                    gdb, pstack
    #0  0x00007f2c in poll () from /lib/libc.so.6
    Process 4243: worker of rank 3                                   `hangscope run`, above a loader worker's stack, whatever wrote it
    # Thread 139999273790336                                         Ray Train without py-spy; these print the outermost frame first
    === Rank 3: http://gpu07:25999 ===                               torch/distributed/debug/_debug_handlers.py, one file for all ranks

All others print the innermost frame first. Whose a stack is, a line above it may tell (lines/titles.py, command_lines.py). Of several dumps in one file
the last one of each thread counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import BinaryIO

from hangscope.ingest.lines.prefixes import Line, clean, strip_prefix
from hangscope.ingest.lines.rank_words import ranks_titled
from hangscope.ingest.stacks.command_lines import local_ranks_of_commands, ranks_of_commands
from hangscope.ingest.stacks.open_threads import (
    FRAMES_KEPT,
    THREADS_KEPT,
    OpenThread,
    Thread,
    finished,
    function_name,
    spy_json,
)
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Frame
from hangscope.model.regex import regex

_BYTES_READ = 1 << 26
_LINE_LIMIT = 4000

_FAULT_THREAD = regex(
    r"^(Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[([^\]]{0,80})\])? \(most recent call first\):\s*$"
)
_FAULT_FRAME = regex(r'^\s{1,4}File "(.{1,1000}?)", line (\d{1,9}|\?\?\?) in (.{1,300})$')
_SPY_THREAD = regex(r'^Thread (0x[0-9A-Fa-f]{1,16}|\d{1,19}) \(([a-z+]{1,30})\)(?:: "(.{0,200})")?\s*$')
_PLAIN_THREAD = regex(r"^# Thread (\d{1,19})\s*$")
_SPY_PROCESS = regex(r"^Process (\d{1,9}): ")
_WORKER = regex(r"^Process (\d{1,9}): worker of rank \d{1,7}\s*$")
_SPY_FRAME = regex(r"^\s{4}(\S.{0,300}?) \(([^()]{1,1000}?)(?::(\d{1,9}))?\)\s*$")
_GDB_THREAD = regex(
    r'^Thread (\d{1,7}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,9})\)?\)?(?: ?"([^"]{0,80})")?.{0,'
    r"40}:\s*$"
)
_GDB_FRAME = regex(r"^#\d{1,5} +(?:0x[0-9a-f]{1,16} in )?([^\s(]{1,400})")
_GDB_PLACE = regex(r" (?:at ([^\s:]{1,500}):(\d{1,9})|from (\S{1,500}))\s*$")
_GDB_PYTHON = regex(r"\bfor file (\S{1,500}), line (\d{1,9}), in ([\w<>.]{1,200}) \(")
_PY_BT = regex(r'^\s{2}File "(.{1,1000}?)", line (\d{1,9}), in (.{1,300})$')
_SECTION = regex(r"^=== Rank (\d{1,7})(?:: (\S{1,300}))? ===\s*$")
_TOLD = 2  # ranks at least, before what they leave tells another's
_DIGITS = regex(r"\d+")
_BELOW_A_TITLE = 3  # lines that may stand between it and the dump, empty ones and fences apart
#: (global rank, local rank, task, process id, what else tells the writers of lines apart) of a process, as far as they are told
_Who = tuple["int | None", "int | None", "int | None", "int | None", str]

_NOBODY: _Who = (None, None, None, None, "")


@dataclass(slots=True)
class ProcessStacks:
    """The threads of one process as (name, stack with the innermost frame first, whether it is the main thread).

    `rank` is global, `local_rank` torchrun's and `task` srun's or mpirun's number, as far as the lines' prefixes tell.
    """

    rank: int | None = None
    pid: int | None = None
    local_rank: int | None = None
    task: int | None = None
    threads: list[Thread] = field(default_factory=list)


def read_processes(stream: BinaryIO, file: str) -> list[ProcessStacks]:
    """Return the processes in a stack dump, each with the threads it was dumped with.

    The thread that wrote the dump, where it is a helper of its own, is left out. `rank` is set where the dump
    names it (torch.distributed.debug, or `[rank3]:` before its lines); at most 64 MiB are read.
    """
    data = stream.read(_BYTES_READ)
    if data.lstrip()[:1] in (b"[", b"{"):
        processes = [ProcessStacks(None, pid, threads=threads) for pid, threads in spy_json(data).items()]
        if processes:
            return processes
    return processes_in(_lines(data, file))


def processes_in(lines: Iterable[Line]) -> list[ProcessStacks]:
    """Return the processes whose stacks stand in these lines; a worker's threads are added to those of its rank."""
    groups: dict[_Who, dict[str, OpenThread]] = {}
    found = _Threads()
    for who, thread in found.read(lines):
        known = groups.setdefault(who, {})
        if len(known) < THREADS_KEPT:
            known.pop(thread.ident, None)  # a later dump of the same thread replaces the earlier one
            known[thread.ident] = thread
    by_title, local_by_title = ranks_of_commands(found.titles), local_ranks_of_commands(found.titles)
    processes = []
    for who, threads in groups.items():
        rank, local_rank, task, pid, _ = who
        if rank is None and pid is not None:
            rank = by_title.get(pid)
            local_rank = local_by_title.get(pid) if rank is None and local_rank is None else local_rank
        processes.append(ProcessStacks(rank, pid, local_rank, task, finished(list(threads.values()))))
    for process in list(processes):
        if process.rank in found.titled:
            processes += [
                replace(process, rank=other) for other in found.titled[process.rank] if other != process.rank
            ]
    ranks = [process for process in processes if process.pid not in found.workers]
    for process in processes:
        if process.pid in found.workers and len(ranks) == 1:
            ranks[0].threads += [
                (f"worker {process.pid}: {name}", stack, False) for name, stack, _ in process.threads
            ]
    _place_the_one_left(ranks, found.titles)
    return ranks or processes


def _place_the_one_left(processes: list[ProcessStacks], titles: Mapping[int, str]) -> None:
    """Set the rank of the only process of no title, where the others tell all ranks but one below the last.

    It must have been started like another one (`titles`: by process id), and is no launcher.
    """
    told = {process.rank for process in processes if process.rank is not None}
    left = [process for process in processes if process.rank is None]
    gap = set(range(max(told, default=0))) - told
    if len(left) != 1 or len(gap) != 1 or len(told) < _TOLD:
        return
    commands = Counter(_DIGITS.sub("", title) for title in titles.values())
    if commands[_DIGITS.sub("", titles.get(left[0].pid or 0, "?"))] > 1 and left[0].task is None:
        left[0].rank = gap.pop()


def begins_dump(text: str) -> bool:
    """Return whether a line begins what faulthandler or py-spy print of a thread, or py-spy of a process."""
    return any(pattern.match(text) for pattern in (_FAULT_THREAD, _SPY_THREAD, _SPY_PROCESS))


def is_frame(text: str) -> bool:
    """Return whether a line is a frame as faulthandler or py-spy print it."""
    return bool(_FAULT_FRAME.match(text) or _SPY_FRAME.match(text))


def _lines(data: bytes, file: str) -> Iterator[Line]:
    for number, raw in enumerate(re.split(rb"\r?\n", data), 1):
        text = raw[:_LINE_LIMIT].decode("utf-8", "replace")
        if text[:1] in "[(" or text[:5].strip().rstrip(":").isdigit():
            yield strip_prefix(text, number, file)
        else:
            yield Line(file, number, clean(text), text)


class _Threads:
    """Reads the threads of a dump line by line, and whose they are.

    `workers` are processes that are workers, `titles` what processes are called by their ids; `titled` holds the ranks that a title
    names, by the first of them.
    """

    def __init__(self) -> None:
        self.workers: set[int] = set()
        self.titles: dict[int, str] = {}
        self.titled: dict[int | None, tuple[int, ...]] = {}
        self._section: int | None = None  # rank, the first of several
        self._pid: int | None = None
        self._title: int | None = None
        self._left, self._by_hand = 0, False
        self._open: dict[_Who, tuple[_Who, OpenThread]] = {}
        self._last = _NOBODY  # whose header was read last

    def read(self, lines: Iterable[Line]) -> Iterator[tuple[_Who, OpenThread]]:
        """Yield (whose, thread) in file order."""
        for line in lines:
            is_heading = yield from self._heading(line)
            if not is_heading:
                yield from self._thread(line)
        yield from self._open.values()

    def _heading(self, line: Line) -> Generator[tuple[_Who, OpenThread], None, bool]:
        """Take what says whose the threads below it are; return whether the line is no more than that."""
        section, process = _SECTION.match(line.text), _SPY_PROCESS.match(line.text)
        begins = process or _header(line.text) is not None
        if (self._title is not None and begins) or (self._by_hand and process):
            # what somebody wrote above a dump counts for the one process below it
            yield from self._open.values()
            self._open, self._section, self._pid = {}, self._title, None
            self._by_hand, self._title = self._title is not None, None
        elif (named := ranks_titled(line.text)) and not section and _frame(line.text) is None:
            self._title, self._left = named[0], _BELOW_A_TITLE
            self.titled[self._title] = named
            return True
        elif line.text.strip("` \t"):
            self._left -= 1
            self._title = self._title if self._left > 0 else None
        if section:
            yield from self._open.values()
            self._open, self._section, self._pid = {}, int(section[1]), None
        elif process:
            self._pid = int(process[1])
            self.titles[self._pid] = line.text[process.end() :]
            if _WORKER.match(line.text):
                self.workers.add(self._pid)
        return bool(section or process)

    def _thread(self, line: Line) -> Iterator[tuple[_Who, OpenThread]]:
        """Take a thread's header or a frame of it; yield the thread that the header ends."""
        rank = line.rank if line.rank is not None else self._section
        writer: _Who = (rank, None, None, None, "")
        if rank is None:
            writer = (None, line.local_rank, line.task, line.pid, line.origin)
        thread = _header(line.text)
        if thread is None and writer == _NOBODY and writer not in self._open and self._last in self._open:
            writer = self._last  # a logger puts its prefix before the first line of what it prints alone
        if thread is None and writer not in self._open and line.text.startswith("#0 "):
            thread = OpenThread("1", "", numbered_first=True)  # pstack of a process with one thread
        if thread is not None:
            self._last = writer
            if writer in self._open:
                yield self._open[writer]
            pid = writer[3] if writer[3] is not None else self._pid
            self._open[writer] = ((*writer[:3], pid, writer[4]), thread)
            if not line.text.startswith("#0 "):
                return
        frame = _frame(line.text)
        if frame is not None and writer in self._open and len(self._open[writer][1].frames) < FRAMES_KEPT:
            self._open[writer][1].frames.append(frame)


def _header(text: str) -> OpenThread | None:
    if match := _FAULT_THREAD.match(text):
        return OpenThread(match.group(2), match.group(3) or "", current=match.group(1) == "Current thread")
    if match := _SPY_THREAD.match(text):
        return OpenThread(match.group(1), match.group(3) or "")
    if match := _PLAIN_THREAD.match(text):
        return OpenThread(match.group(1), "", outermost_first=True)
    if match := _GDB_THREAD.match(text):
        return OpenThread(match.group(2), match.group(3) or "", numbered_first=match.group(1) == "1")
    return None


def _frame(text: str) -> Frame | None:
    if match := _FAULT_FRAME.match(text):
        line = match.group(2)
        return Frame(match.group(3).strip(), match.group(1), int(line) if line.isdigit() else 0)
    if match := _PY_BT.match(text):
        return Frame(match.group(3).strip(), match.group(1), int(match.group(2)))
    if match := _GDB_PYTHON.search(text):
        return Frame(match.group(3), match.group(1), int(match.group(2)))
    if match := _GDB_FRAME.match(text):
        place = _GDB_PLACE.search(text[-600:])
        file, line, library = place.groups() if place else (None, None, None)
        return Frame(match.group(1), file or library or "", int(line) if line else 0)
    if match := _SPY_FRAME.match(text):
        return Frame(function_name(match.group(1)), match.group(2), int(match.group(3) or 0))
    return None
