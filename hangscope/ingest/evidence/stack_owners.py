"""Which ranks the processes of one stack dump are, where the dump itself does not say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hangscope.errors import Note
from hangscope.ingest.torch_logs.exception_meaning import is_library
from hangscope.ingest.workers.reading import Thread
from hangscope.model.frames import Stack
from hangscope.model.regex import regex

STANDS = ": the main thread is at "  # before the places in such a note
APART = ": by their main threads, "  # before those of several processes with their ids
ALONE = " alone is at "  # between the id of the one process that is elsewhere and its place
OF_NO_RANK = "stacks_of_no_rank"  # code of the note on a file of stacks of which no rank is known
_SHOWN = 8  # places of processes of no known rank
#: What NCCL, HCCL, CUDA and MPI offer, and not the functions that they call in turn.
_API = regex(
    r"nccl(?:All(?:Reduce|Gather|ToAll)|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|GroupEnd|Comm(?:InitRank\w{0,24}|InitAll|Abort|Destroy|Finalize|Split|GetAsyncError))$"
    r"|Hccl[A-Z]\w{2,40}$|(?:cuda|hip)(?:Stream|Event|Device|Memcpy|Malloc|Free|Launch|Graph)\w{0,40}$|cu(?:Stream|Event|Ctx|Mem|Launch|Graph)\w{1,40}$|MPI_\w{3,40}$"
)
_TORCH = "distributed_c10d.py"
_NUMBER = regex(r"\d{1,7}")
_NO_IDS: Mapping[str, int | None] = {}


def numbered(
    files: Mapping[str, int | None], processes: Mapping[str, int | None] = _NO_IDS
) -> dict[str, int]:
    """Return the rank of each of these files where their names differ in one number alone and count ranks: `py-spy.2.txt`.

    They do that count from 0 on, and those in which the ranks (values; None: not known) that process ids tell are the
    numbers of two at least. Process ids do not count from 0, and of one file alone nothing tells that its number counts;
    what is there twice counts within its node, unless it is the same of the `processes` (ids; None: not known) at another time.
    """
    series: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file in files:
        name = file.replace("\\", "/").rsplit("/", 1)[-1]
        found = list(_NUMBER.finditer(name))
        if len(found) == 1:
            series[(name[: found[0].start()], name[found[0].end() :])].append((int(found[0].group()), file))
    counted: dict[str, int] = {}
    for of_names in series.values():
        looks = {(number, processes.get(file) or file) for number, file in of_names}
        numbers = sorted(number for number, _ in looks)
        known = [files[file] == number for number, file in of_names if files[file] is not None]
        from_0 = len(numbers) > 1 and numbers == list(range(len(numbers)))
        if from_0 or (len(known) > 1 and all(known) and len(set(numbers)) == len(numbers)):
            counted |= {file: number for number, file in of_names}
    return counted


def unplaced(file: str, placed: int, missed: list[list[Thread]]) -> list[Note]:
    """Return the note on processes of no known rank, if there are any, with where they are."""
    if not missed:
        return []
    where = _standing(missed)
    if not placed:
        unnamed = ", so it was set aside" if APART not in where else ""
        what = f"neither its name nor its text says which rank's stacks it holds{unnamed}{where}"
        hint = "name it like stack_rank_3.txt, or write `=== rank 3 ===` above the stacks of each rank"
        return [Note(OF_NO_RANK, what, file, hint=hint)]
    what = f"{len(missed)} of the {placed + len(missed)} processes in it are of no known rank, so their stacks were set aside{where}"
    return [Note("rank_unknown", what, file, hint="logs that name their process ids place them")]


def _standing(missed: list[list[Thread]]) -> str:
    """Return where the main threads are: of several processes the ids at each place, the one that is nowhere else like the others first."""
    at: dict[str, list[int | None]] = defaultdict(list)
    for threads in missed:
        for thread in _main(threads):
            at[_place(_to_user(thread.stack) if len(missed) > 1 else thread.stack)].append(thread.pid)
    pids = [pid for those in at.values() for pid in those]
    if len(pids) < 2 or None in pids or len(set(pids)) < len(pids):
        return f"{STANDS}{'; '.join([*at][:_SHOWN])}" if at else ""
    odd = len(at) == 2 < len(pids) and min(map(len, at.values())) == 1
    told = [
        f"process {ids[0]}{ALONE if odd else ' is at '}{place}"
        if len(ids) == 1
        else f"processes {_listed(ids)} are at {place}"
        for place, ids in sorted(at.items(), key=lambda item: len(item[1]))
    ]
    return f"{APART}{'; '.join(told[:_SHOWN])}"


def _listed(ids: Sequence[int | None]) -> str:
    shown = [*map(str, ids[:_SHOWN]), *([f"{len(ids) - _SHOWN} more"] if len(ids) > _SHOWN else ())]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _to_user(stack: Stack) -> Stack:
    """Return a stack down to the line of the user's that calls its innermost frame: what is below that, all may have in common."""
    for depth, frame in enumerate(stack[1:], 2):
        if frame.file.endswith(".py") and not is_library(frame.file):
            return stack[:depth]
    return stack


def _main(threads: list[Thread]) -> list[Thread]:
    """Return the threads of a process that run its script; where no stack reaches down to it, the first thread."""
    whole = [thread for thread in threads if thread.stack and thread.stack[-1].name == "<module>"]
    return whole or [thread for thread in threads[:1] if thread.stack]


def library_call(stack: Stack) -> str:
    """Return the function of a communication library, of CUDA or of torch.distributed that a stack is in; empty where it is in none."""
    offered = next((frame.name for frame in reversed(stack) if _API.match(frame.name)), "")
    return offered or next((frame.name for frame in stack if frame.file.endswith(_TORCH)), "")


def _place(stack: Stack) -> str:
    """Return the innermost frame and the outermost one, or where the stack is cut off the innermost with a line of the user's."""
    inner, outer = stack[0], stack[-1]
    if outer.name != "<module>":
        outer = next(
            (frame for frame in stack if frame.file.endswith(".py") and not is_library(frame.file)), outer
        )
    told = str(inner) if inner.line > 0 else inner.name
    api = library_call(stack)
    told += f" inside {api}" if api and api != inner.name else ""
    below = str(outer) if outer.line > 0 else outer.name
    return told if inner == outer else f"{told} (from {below})"
