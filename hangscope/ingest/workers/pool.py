"""Read many files, each in a child process with limits, so that no file can cost another.

Children are started with `subprocess` when there is work, so a caller's script needs no main guard, and none outlives `read_files`.
A child has one file in flight. When it dies or overruns its deadline, that file is tried once more in a fresh child, and
only a file that fails twice is set aside, with what is known of how its readers ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from functools import partial

from hangscope import isolated
from hangscope.errors import HangscopeError
from hangscope.ingest.files import remote
from hangscope.ingest.files.opening import plain_size
from hangscope.ingest.files.sources import SourceFile
from hangscope.ingest.workers import child, reader
from hangscope.ingest.workers.answer import Wire, failed
from hangscope.ingest.workers.memory import Memory, real_size

DEADLINE = 60.0  # seconds for a small file
BYTES_PER_SECOND = 2 * 2**20  # and this much more per byte: a tenth of the slowest reading measured
ANSWER_FLOOR = 256 * 2**20
ANSWER_PER_BYTE = 64  # an answer is smaller than its file, but for packs, which are compressed


class Pool:
    """At most `count` children. `read` is called from several threads, the rest from one."""

    def __init__(self, count: int, max_bytes: int, completions: bool = False) -> None:
        self._max_bytes, self._completions = max_bytes, completions
        self._places = threading.Semaphore(count)
        self._memory = Memory(count)
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []
        self._closing = threading.Event()

    def read(self, file: SourceFile) -> Wire:
        """Return what a file says, or how the two children ended that tried to read it."""
        with ExitStack() as stack:
            try:
                path = stack.enter_context(remote.local_copy(file.path))
                size = plain_size(path)
            except OSError as error:
                return failed("unreadable", "unreadable", f"could not be fetched: {error}"[:300])
            memory = self._memory.limit(min(real_size(path, size), self._max_bytes))
            with self._places, self._memory.take(memory):
                first = self._ask(file, path, size, memory, fresh=False)
                if not isinstance(first, str):
                    return first
                if self._closing.is_set():
                    return failed("unreadable", "reader_died", first)
                second = self._ask(file, path, size, memory, fresh=True)
                if not isinstance(second, str):
                    return second
        ends = f"{first}, twice" if first == second else f"{first}, then {second}"
        return failed("unread", "killed_reader", f"{ends}, and was set aside")

    def _ask(self, file: SourceFile, path: str, size: int, memory: int, *, fresh: bool) -> Wire | str:
        try:
            process = self._start() if fresh else self._idle_child() or self._start()
        except (OSError, ValueError) as error:
            return f"found no process to read it ({error})"
        request = json.dumps((path, file.shown, self._max_bytes, memory, self._completions)).encode()
        receive = partial(child.receive_answer, limit=ANSWER_FLOOR + ANSWER_PER_BYTE * size)
        answer = isolated.ask(process, request, receive, DEADLINE + size / BYTES_PER_SECOND, "read")
        if isinstance(answer, str):
            self._discard(process)
        else:
            with self._lock:
                self._idle.append(process)
        return answer

    def _idle_child(self) -> subprocess.Popen[bytes] | None:
        """Return a child that waits for work, None where there is none; those that died meanwhile are let go."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                process = self._idle.pop()
            if process.poll() is None:
                return process
            self._discard(process)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closing.is_set():
                raise OSError("the analysis is being ended")
            process = isolated.start(child.__name__)
            self._all.append(process)
        return process

    def _discard(self, process: subprocess.Popen[bytes]) -> None:
        isolated.discard(process)
        with self._lock, suppress(ValueError):
            self._all.remove(process)

    def stop(self) -> None:
        """Kill the children, so that every `read` in progress ends now, and start no more."""
        self._closing.set()
        with self._lock:
            running = list(self._all)
        for process in running:
            with suppress(OSError):
                process.kill()

    def close(self) -> None:
        """Leave no child behind. Call it when no `read` is in progress."""
        self.stop()
        for process in list(self._all):
            self._discard(process)


BYTES_PER_CHILD = 4 * 2**20  # below this much work a second child costs more than it brings

#: called with (files done, of so many, bytes done, of so many)
Progress = Callable[[int, int, int, int], None]


def read_files(
    files: Sequence[SourceFile],
    *,
    jobs: int | None = None,
    max_bytes: int = reader.DEFAULT_MAX_BYTES,
    completions: bool = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Iterable[tuple[SourceFile, Wire]]:
    """Yield every file with what it says, in any order.

    `completions`: also when collectives completed, as far as dumps hold it.
    `jobs` is the number of children (default: the processors that this process may use). `executor` replaces the
    children by any `concurrent.futures.Executor`; isolation is then the executor's. `progress` is called after each file,
    `meanwhile` once when the reading has begun.
    """
    meanwhile = meanwhile or (lambda: None)
    if executor is not None:
        futures = {_submit(executor, file, max_bytes, completions): file for file in files}
        meanwhile()
        yield from _collect(futures, progress)
        return
    wanted = jobs or (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    count = max(1, min(wanted, len(files), 1 + sum(f.size for f in files) // BYTES_PER_CHILD))
    fetches = remote.FETCHES if any(remote.is_remote(file.path) for file in files) else 0
    threads = ThreadPoolExecutor(max(count, fetches), thread_name_prefix="hangscope-reader")
    pool = Pool(count, max_bytes, completions)
    try:
        try:
            futures = {threads.submit(pool.read, f): f for f in files}
        except RuntimeError as error:
            text = f"the system allows no more processes or threads: {error}"
            hint = "raise `ulimit -u` or the cgroup's pids.max, or end other processes of this user"
            raise HangscopeError(text, hint) from None
        meanwhile()
        yield from _collect(futures, progress)
    finally:
        pool.stop()  # where it ends early, such as by Ctrl-C, no file is waited for
        threads.shutdown(wait=True, cancel_futures=True)
        pool.close()


def _submit(executor: Executor, file: SourceFile, max_bytes: int, completions: bool) -> Future[Wire]:
    """Return the future of one file; of a pool that takes no work (any more), one that holds its error."""
    try:
        read = partial(reader.read_file, completions=True) if completions else reader.read_file
        return executor.submit(read, file.path, file.shown, max_bytes)
    except Exception as error:
        lost: Future[Wire] = Future()
        lost.set_exception(error)
        return lost


def _collect(
    futures: dict[Future[Wire], SourceFile], progress: Progress | None
) -> Iterable[tuple[SourceFile, Wire]]:
    files, size = len(futures), sum(file.size for file in futures.values())
    done = 0
    for future in as_completed(list(futures)):
        file = futures.pop(future)
        done += file.size
        try:
            answer = future.result()
        except Exception as error:  # an executor may raise what it likes; one file's failure is one note
            answer = failed(
                "unreadable", "reader_died", f"could not be read: {type(error).__name__}: {error}"[:300]
            )
        if progress is not None:
            progress(files - len(futures), files, done, size)
        yield file, answer
