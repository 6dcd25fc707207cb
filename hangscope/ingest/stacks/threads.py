"""The threads of one process: which is the main one, which runs the training (as Ray Train starts one), and whose process it is.

A process has a rank by its command line, or by the name that it gave itself:

    Process 880: python fit.py --rank 2          py-spy's first line of a process; `# RANK=2`, `[rank 2]`
    Process 4411: VLLM::Worker_DP0_TP1_EP1
    Process 8102: sglang::scheduler_PP1_TP0

A command line may also state the rank of a matrix (`--lora-rank 8`, `--rank 8`): then all processes state the same one. The names of an
engine's workers (vllm/v1/executor/multiproc_executor.py, sglang/srt/managers/scheduler.py) hold coordinates and no sizes, so a place
in several stages is a rank only where the dump contains the complete grid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from hangscope.ingest.lines.layers import coordinates
from hangscope.ingest.lines.prefixes import clean
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

FRAMES_KEPT = 500
THREADS_KEPT = 5000
_NO_SYMBOL = regex(r"0x[0-9a-f]{1,16}$")
#: name, stack with the innermost frame first, whether it is the main thread
Thread = tuple[str, Stack, bool]


def looks_like_spy_json(head: bytes) -> bool:
    """Return whether a file begins as such a list does."""
    start = head.lstrip()[:4096]
    return start[:1] == b"[" and b'"thread_name"' in start and b'"frames"' in start


def spy_json(data: bytes) -> dict[int | None, list[Thread]]:
    """Return the threads of py-spy's JSON by process id, the main thread first; nothing if the text is other JSON."""
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
    """Return the name of a function as tracebacks have it: py-spy (0.4.1) gives the qualified one from Python 3.11 on.

    Of two frames that a person put on one line (`_sync_buffers / forward_sync_buffers`) the inner one counts. A native one without
    a symbol has only its address, which differs from process to process: it is `??`, as in gdb.
    """
    name = name.partition(" / ")[0]
    if _NO_SYMBOL.match(name):
        return "??"
    return name if "::" in name or "(" in name else name.rpartition(".")[2] or name


def _frame(row: dict[str, Any]) -> Frame:
    line, name = row.get("line"), clean(str(row.get("name") or ""))
    file = row.get("filename") or row.get("short_filename") or ""
    return Frame(function_name(name), clean(str(file)), line if isinstance(line, int) else 0)


_OUTSIDE = frozenset({"_bootstrap", "_bootstrap_inner", "__bootstrap"})
#: Where Ray Train runs the training function, in a thread of its own while the main thread serves the actor (ray 2.60, both of its versions).
_TRAINING = {
    "ray/train/v2/_internal/execution/worker_group/thread_runner.py": "_run_target",
    "ray/air/_internal/util.py": "run",
}


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
        return any(
            f.name == name and f.file.endswith(file) for f in self.frames for file, name in _TRAINING.items()
        )


def finished(threads: list[OpenThread]) -> list[Thread]:
    """Return the threads of one process without the dumper's, the main one marked and first."""
    threads = [thread for thread in threads if thread.frames]
    for thread in threads:
        if thread.outermost_first:
            thread.frames.reverse()
    main = main_of(threads)
    kept = [t for t in threads if t is main or not (t.current and t.from_bootstrap and main is not None)]
    result: list[Thread] = []
    for number, thread in enumerate(kept, 1):
        unnamed = "MainThread" if thread is main and not thread.runs_training else f"thread {number}"
        result.append((thread.name or unnamed, tuple(thread.frames), thread is main))
    return sorted(result, key=lambda thread: not thread[2])


def main_of(threads: list[OpenThread]) -> OpenThread | None:
    """Return the main thread: what runs the training, else named so, or gdb's first, or the oldest that Python did not start.

    faulthandler lists threads from the newest to the oldest, so the last candidate is the oldest.
    """
    own = [thread for thread in reversed(threads) if not thread.from_bootstrap]
    by_preference = (
        *(thread for thread in threads if thread.runs_training),
        *(thread for thread in threads if thread.name == "MainThread" or thread.numbered_first),
        *(t for t in own if t.frames[-1].name in {"<module>", "_run_module_as_main", "main"}),
        *own,
        None,
    )
    return by_preference[0]


_STARTS = ("threading.py", "concurrent/futures/thread.py")  # whose functions are below what a thread runs


def issuers(stacks: Iterable[Stack]) -> frozenset[tuple[str, str]]:
    """Return the functions (name, file) that threads run which issued all of a job's collectives; empty where a main thread issued one."""
    roots = [_root(stack) for stack in stacks if stack]
    named = frozenset((root.name, root.file) for root in roots if root is not None)
    return named if all(roots) else frozenset()


def trains(stack: Stack, functions: frozenset[tuple[str, str]]) -> bool:
    """Return whether a thread runs one of these functions."""
    root = _root(stack) if functions else None
    return root is not None and (root.name, root.file) in functions


def _root(stack: Stack) -> Frame | None:
    """Return the outermost frame of what a thread runs, None for a main thread."""
    if not stack or not stack[-1].file.endswith(_STARTS):
        return None
    return next((frame for frame in reversed(stack) if not frame.file.endswith(_STARTS)), None)


_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(--?)?(?:global[_-]?)?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)
_LOCAL_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(?:--?)?local[_-]?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)


def local_ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the local rank of each process id whose command line states it (`train.py --local-rank=2`)."""
    return {pid: int(m[1]) for pid, title in titles.items() if (m := _LOCAL_IN_COMMAND.search(title))}


def ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process id whose command line or name states it."""
    found = {pid: match for pid, title in titles.items() if (match := _IN_COMMAND.search(title))}
    ranks = {pid: int(match[2]) for pid, match in found.items()}
    if len(set(ranks.values())) < len(ranks) or (len(ranks) == 1 and any(m[1] for m in found.values())):
        ranks = {}
    return {**ranks_of_titles(titles), **ranks}


_OWN_NAME = regex(r"[\w.-]{1,40}::[\w.:-]{1,40}(?=\s|$)")


def own_name(title: str) -> str:
    """Return what a process calls itself, such as `VLLM::EngineCore`; empty where the title is a command line."""
    return named[0] if (named := _OWN_NAME.match(title)) else ""


_TITLE = regex(r"(VLLM::Worker|sglang::scheduler)((?:_[A-Z][A-Z_]{0,14}?\d{1,5}){1,6})\b")

Place = tuple[int, int, int]


def ranks_of_titles(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process id whose name states one; nothing where a dump is of two engines."""
    places: dict[int, Place] = {}
    vllm = False
    for pid, title in titles.items():
        if match := _TITLE.match(title):
            found = coordinates(match[2])
            if "TP" in found:
                places[pid] = (found.get("DP", 0), found.get("PP", 0), found["TP"])
                vllm = vllm or match[1].startswith("VLLM")
    inner = {place[1:] for place in places.values()}
    if len(inner) == len(places):  # SGLang's data-parallel attention divides the tensor-parallel ranks
        places = {pid: (0, stage, tensor) for pid, (_, stage, tensor) in places.items()}
    elif not vllm:
        return {}  # replicas that do not know of each other
    sizes = [max((place[axis] for place in places.values()), default=0) + 1 for axis in range(3)]
    complete = len(set(places.values())) == len(places) == sizes[0] * sizes[1] * sizes[2]
    if sizes[:2] != [1, 1] and not complete:
        return {}
    return {pid: (dp * sizes[1] + pp) * sizes[2] + tp for pid, (dp, pp, tp) in places.items()}
