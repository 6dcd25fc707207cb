"""The threads of one process: as `py-spy dump --json` writes them, or as a dump is read, with the main thread and the dumper found."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from hangscope.ingest.lines.prefixes import clean
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame, Stack

FRAMES_KEPT = 500
THREADS_KEPT = 5000
#: name, stack with the innermost frame first, whether it is the main thread
Thread = tuple[str, Stack, bool]


def looks_like_spy_json(head: bytes) -> bool:
    """Return whether a file begins as such a list does."""
    start = head.lstrip()[:4096]
    return start[:1] == b"[" and b'"thread_name"' in start and b'"frames"' in start


def spy_json(data: bytes) -> dict[int | None, list[Thread]]:
    """Return the threads by process id, the main one first, or nothing where it is something else."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    processes: dict[int | None, list[Thread]] = {}
    for row in content if isinstance(content, list) else [content]:
        if not isinstance(row, dict) or not isinstance(row.get("frames"), list):
            continue
        pid = row.get("pid") if isinstance(row.get("pid"), int) else None
        frames = tuple(_frame(f) for f in row["frames"][:FRAMES_KEPT] if isinstance(f, dict))
        name = clean(str(row.get("thread_name") or ""))
        threads = processes.setdefault(pid, [])
        if len(threads) < THREADS_KEPT:
            threads.append((name, frames, name == "MainThread"))
    for threads in processes.values():
        threads.sort(key=lambda thread: not thread[2])
    return processes


def function_name(name: str) -> str:
    """Return the name of a function as tracebacks have it: py-spy (0.4.1) gives the qualified one from Python 3.11 on."""
    return name if "::" in name or "(" in name else name.rpartition(".")[2] or name


def _frame(row: dict[str, Any]) -> Frame:
    line, name = row.get("line"), clean(str(row.get("name") or ""))
    file = row.get("filename") or row.get("short_filename") or ""
    return Frame(function_name(name), clean(str(file)), line if isinstance(line, int) else 0)


_OUTSIDE = frozenset({"_bootstrap", "_bootstrap_inner", "__bootstrap"})
#: Where Ray Train runs the training function, in a thread of its own while the main thread serves the actor (ray 2.60, both of its versions).
_TRAINING = frozenset(
    {
        ("ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
        ("ray/air/_internal/util.py", "run"),
    }
)


@dataclass(slots=True)
class OpenThread:
    """A thread as it is read: what its header states, and the frames so far."""

    ident: str
    name: str
    current: bool = False
    numbered_first: bool = False
    outermost_first: bool = False
    frames: list[Frame] = field(default_factory=list)

    @property
    def from_bootstrap(self) -> bool:
        """Whether Python started it as a thread of its own."""
        return bool(self.frames) and any(frame.name in _OUTSIDE for frame in self.frames[-2:])

    @property
    def runs_training(self) -> bool:
        """Whether a library has started it to run the user's training function."""
        return any(f.name == name and f.file.endswith(file) for f in self.frames for file, name in _TRAINING)


def finished(threads: list[OpenThread]) -> list[Thread]:
    """Return the threads of one process without the dumper's, the main one marked and first."""
    threads = [thread for thread in threads if thread.frames]
    for thread in threads:
        if thread.outermost_first:
            thread.frames.reverse()
    main = _main(threads)
    kept = [t for t in threads if t is main or not (t.current and t.from_bootstrap and main is not None)]
    result: list[Thread] = []
    for number, thread in enumerate(kept, 1):
        is_main = thread is main
        unnamed = "MainThread" if is_main and not thread.runs_training else f"thread {number}"
        result.append((thread.name or unnamed, tuple(thread.frames), is_main))
    return sorted(result, key=lambda thread: not thread[2])


def _main(threads: list[OpenThread]) -> OpenThread | None:
    """Return the main thread: what runs the training, else named so, or gdb's first, or the oldest that Python did not start.

    faulthandler lists threads from the newest to the oldest, so the last candidate is the oldest.
    """
    own = [thread for thread in reversed(threads) if not thread.from_bootstrap]
    by_preference = [
        *(thread for thread in threads if thread.runs_training),
        *(thread for thread in threads if thread.name == "MainThread" or thread.numbered_first),
        *(t for t in own if t.frames[-1].name in {"<module>", "_run_module_as_main", "main"}),
        *own,
    ]
    return next(iter(by_preference), None)
