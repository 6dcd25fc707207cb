"""Read many files, each in a child process with limits, so that no file can cost another.

Children are started with `subprocess` (`reader_pool.py`), so a caller's script needs no main guard, and none outlives
`read_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from functools import partial

from hangscope.errors import HangscopeError
from hangscope.ingest.files import remote
from hangscope.ingest.files.sources import SourceFile
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.answer import Wire, failed
from hangscope.ingest.workers.pool import Pool

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
    try:
        pool = Pool(count, max_bytes, completions)
    except RuntimeError as error:
        raise _no_threads(error) from None
    try:
        try:
            futures = {threads.submit(pool.read, f): f for f in files}
        except RuntimeError as error:
            raise _no_threads(error) from None
        meanwhile()
        yield from _collect(futures, progress)
    finally:
        pool.stop()  # where it ends early, such as by Ctrl-C, no file is waited for
        threads.shutdown(wait=True, cancel_futures=True)
        pool.close()


def _no_threads(error: RuntimeError) -> HangscopeError:
    return HangscopeError(
        f"the system allows no more processes or threads: {error}",
        "raise `ulimit -u` or the cgroup's pids.max, or end other processes of this user",
    )


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
