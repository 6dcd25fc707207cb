"""Read many files, each in a child process with limits, so that no file can cost another.

A child has one file in flight. When it dies or overruns its deadline, that file is tried once more alone in a fresh
child, and only a file that kills twice is condemned. Children are started with `subprocess`, so a caller's script needs
no main guard, and none outlives `read_files`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

import hangscope
from hangscope.ingest import child, reader, remote
from hangscope.ingest.answer import Wire, failed
from hangscope.ingest.sources import SourceFile

MEMORY_FLOOR = 3 * 2**30
MEMORY_PER_BYTE = 40  # a loaded dump takes about twelve times its size on disk
DEADLINE = 60.0  # seconds for a small file
BYTES_PER_SECOND = 2 * 2**20  # and this much more per byte: a tenth of the slowest reading measured
BYTES_PER_CHILD = 4 * 2**20  # below this much work a second child costs more than it brings

#: called with (files done, of so many, bytes done, of so many)
Progress = Callable[[int, int, int, int], None]


def read_files(
    files: Sequence[SourceFile],
    *,
    jobs: int | None = None,
    max_bytes: int = reader.DEFAULT_MAX_BYTES,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Iterable[tuple[SourceFile, Wire]]:
    """Yield every file with what it says, in any order.

    `jobs` is the number of children (default: the processors that this process may use). `executor` replaces the
    children by any `concurrent.futures.Executor`; isolation is then the executor's. `progress` is called after each file.
    """
    if executor is not None:
        futures = {_submit(executor, file, max_bytes): file for file in files}
        yield from _collect(futures, progress)
        return
    wanted = jobs or (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    count = max(1, min(wanted, len(files), 1 + sum(f.size for f in files) // BYTES_PER_CHILD))
    fetches = remote.FETCHES if any(remote.is_remote(file.path) for file in files) else 0
    pool = _Pool(count, max_bytes)
    threads = ThreadPoolExecutor(max(count, fetches), thread_name_prefix="hangscope-reader")
    try:
        yield from _collect({threads.submit(pool.read, f): f for f in files}, progress)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        pool.close()


def _submit(executor: Executor, file: SourceFile, max_bytes: int) -> Future[Wire]:
    """Return the future of one file; of a pool that takes no work (any more), one that holds its error."""
    try:
        return executor.submit(reader.read_file, file.path, file.shown, max_bytes)
    except Exception as error:
        failed: Future[Wire] = Future()
        failed.set_exception(error)
        return failed


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


class _Pool:
    """At most `count` children, each started when there is work for it and replaced when it dies."""

    def __init__(self, count: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.places = threading.Semaphore(count)
        self.idle: list[subprocess.Popen[bytes]] = []
        self.all: list[subprocess.Popen[bytes]] = []
        self.deadlines: dict[subprocess.Popen[bytes], float] = {}
        self.closing = threading.Event()
        self.watchdog = threading.Thread(target=self._watch, name="hangscope-deadline", daemon=True)
        self.watchdog.start()

    def read(self, file: SourceFile) -> Wire:
        with ExitStack() as stack:
            try:
                path = stack.enter_context(remote.local_copy(file.path))
            except OSError as error:
                return failed("unreadable", "unreadable", f"could not be fetched: {error}"[:300])
            with self.places:
                for _ in range(2):
                    answer = self._ask(file, path)
                    if answer is not None:
                        return answer
        return failed(
            "hostile",
            "killed_reader",
            "killed the process that read it, twice: it is corrupt or hostile and was set aside",
            "nested tuples used as a key do this; a dump of torch never holds them",
        )

    def _ask(self, file: SourceFile, path: str) -> Wire | None:
        process = self._child()
        assert process.stdin is not None and process.stdout is not None
        self.deadlines[process] = time.monotonic() + DEADLINE + file.size / BYTES_PER_SECOND
        try:
            memory = MEMORY_FLOOR + MEMORY_PER_BYTE * min(file.size, self.max_bytes)
            child.send(process.stdin, json.dumps((path, file.shown, self.max_bytes, memory)).encode())
            payload = child.receive(process.stdout)
        except (BrokenPipeError, OSError):
            payload = None
        finally:
            del self.deadlines[process]
        if payload is None:
            process.kill()
            return None
        self.idle.append(process)
        return child.load_answer(payload)

    def _child(self) -> subprocess.Popen[bytes]:
        try:
            return self.idle.pop()
        except IndexError:
            process = subprocess.Popen(
                _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        self.all.append(process)
        return process

    def _watch(self) -> None:
        """Kill the children that overrun their deadline."""
        while not self.closing.wait(0.2):
            now = time.monotonic()
            for process, deadline in list(self.deadlines.items()):
                if now > deadline:
                    process.kill()

    def close(self) -> None:
        self.closing.set()
        self.watchdog.join()
        for process in self.all:
            if process.stdin is not None:
                process.stdin.close()
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _command() -> list[str]:
    """Return the command line of a child: isolated, so that no module in the working folder or the environment is run."""
    root = str(Path(hangscope.__file__).resolve().parent.parent)
    paths = [root, *(path for path in sys.path if os.path.isabs(path))]
    return [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path[:] = {paths!r}; from hangscope.ingest.child import main; main()",
    ]
