"""How this project starts its own child processes, and how they are talked to.

No module of the working folder or the environment is run in them, their memory is limited, and none outlives its parent. A message
is an eight-byte length and what follows.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import subprocess  # and many modules with it, which a child has no use for
    from collections.abc import Callable, Mapping

_Answer = TypeVar("_Answer")

# A child does no linear algebra; the threads that BLAS starts with numpy may not fit a limit on memory.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
_REAP_TIME = 5.0  # seconds for a killed child to be gone; one that hangs in the kernel is left to it


class TooLong(Exception):
    """A message is longer than what is taken; its argument is the length in bytes."""


def command(module: str) -> list[str]:
    """Return the command line that calls `main` of a module of hangscope in an isolated Python."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    paths = [root, *(path for path in sys.path if os.path.isabs(path))]
    return [
        sys.executable,
        "-I",
        "-S",  # the paths are those of this process already
        "-c",
        f"import sys; sys.path[:] = {paths!r}; from hangscope.isolated import die_with; die_with({os.getpid()}); "
        f"from {module} import main; main()",
    ]


def use_one_thread() -> None:
    """Keep BLAS from starting threads in this process, which is our own; they cost more than importing numpy."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")


def start(module: str, *words: str, settings: Mapping[str, str] = {}, **how: Any) -> subprocess.Popen[bytes]:
    """Start a child that runs `main` of a module, with more `settings` in its environment. Raises OSError.

    It is talked to over its stdin and stdout unless `how` says so.
    """
    import subprocess

    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **how}
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **settings}
    return subprocess.Popen([*command(module), *words], env=environment, **how)


def discard(process: subprocess.Popen[bytes]) -> None:
    """End a child for good. What it does not take any more is no error."""
    import subprocess
    from contextlib import suppress

    with suppress(OSError):
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_TIME)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def ask(
    process: subprocess.Popen[bytes],
    request: bytes,
    receive: Callable[[IO[bytes]], _Answer | None],
    seconds: float,
    done: str,
) -> _Answer | str:
    """Return a child's answer to a request, or in words why there is none; then the child was ended for good.

    `receive` reads the answer from a stream, None where it ends; `done` is what the child does to a file, such as `read`.
    """
    import subprocess
    import threading
    from contextlib import suppress

    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    why = ""
    try:
        timer.start()
    except RuntimeError as error:  # where the system allows no more threads
        discard(process)
        return f"found no thread to watch how it is {done} ({error})"
    try:
        send(process.stdin, request)
        if (answer := receive(process.stdout)) is not None:
            return answer
    except TooLong as error:
        why = f"gave an answer of {error.args[0]:,} bytes, more than any file of its size says"
    except (OSError, ValueError):
        pass  # its end of a pipe is gone: how it ended is asked below
    finally:
        timer.cancel()
        timer.join()
    with suppress(subprocess.TimeoutExpired):
        process.wait(0 if why else 1)  # it closed its pipe, so it is ending by itself
    discard(process)
    if late.is_set():
        return f"was not {done} within {seconds:.0f} seconds"
    return why or f"ended the process that {done} it ({describe_end(process.returncode)})"


def die_with(parent: int) -> None:
    """End this process at once when the process `parent`, which started it, ends in whatever way."""
    try:
        import ctypes

        if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError
    except (OSError, AttributeError, ImportError, TypeError):  # no Linux
        import threading
        import time

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(0.5)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def limit_memory(limit: int) -> None:
    """Limit the address space of this process to so many bytes, and leave no core file."""
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, ValueError, OSError):
        pass  # no such limit on this platform: the parent's deadline still holds


def send(stream: IO[bytes], payload: bytes) -> None:
    """Write one message."""
    stream.write(_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def receive(stream: IO[bytes], limit: int = 1 << 62) -> bytes | None:
    """Return one message, or None where the stream ends. Raises TooLong for one of more than `limit` bytes."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > limit:
        raise TooLong(length)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def describe_end(code: int | None) -> str:
    """Return in words how a process ended, by its return code."""
    if code is None:
        return "killed, but not gone"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
