"""Which ranks the processes of one stack dump are, and where those are of which no rank is known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hangscope.errors import Note
from hangscope.ingest.evidence.processes import Processes, only
from hangscope.ingest.evidence.tasks import tasks_are_ranks
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.stacks.dumps import ProcessStacks
from hangscope.ingest.stacks.threads import Thread
from hangscope.ingest.workers.reading import Reading
from hangscope.model.frames import Stack, UnplacedStack, is_library

OF_NO_RANK = "stacks_of_no_rank"  # code of the note on a file of stacks of which no rank is known
_OF_ONE_HOST = 8  # ranks
_SHOWN = 8  # places of processes of no known rank
_TORCH = "distributed_c10d.py"
LOADER_WORKER = "_worker_loop"  # torch/utils/data/_utils/worker.py, and dataloader.py up to torch 1.1


def owners(
    known: Processes, reading: Reading, rank: int | None
) -> tuple[dict[int, list[Thread]], list[ProcessStacks]]:
    """Return (threads by rank, the processes of no known rank); `rank` is what is known of the file.

    What the dump states decides, then a process id that logs know, then the file's rank or its only writer, which is that of the
    first process: others in the file are its children. Several processes that have neither rank nor process id are left out.
    """
    placed: dict[int, list[Thread]] = {}
    others = []
    for process, stated in zip(reading.stacks, _stated_ranks(known, reading), strict=True):
        if stated is not None:
            placed.setdefault(stated, []).extend(process.threads)
        elif process.pid is not None:
            others.append(process)
    if placed:
        return placed, _without_workers(placed, others)
    of_no_pid = sum(process.pid is None for process in reading.stacks)
    by_pid: dict[int | None, ProcessStacks] = {}
    for process in reading.stacks:
        if process.pid is not None or of_no_pid == 1:
            by_pid.setdefault(
                process.pid, ProcessStacks(pid=process.pid, name=process.name)
            ).threads += process.threads
    missed: list[ProcessStacks] = []
    if rank is None and len(by_pid) > 1 and _are_in_order(known, by_pid, reading):
        return {number: process.threads for number, process in enumerate(by_pid.values())}, missed
    for pid, process in by_pid.items():
        named = known.of_pid(pid) if len(by_pid) > 1 or rank is None else None
        if named is None and len(by_pid) == 1 and rank is None and pid is not None:
            named = known.in_their_row(pid)
        if named is not None and named not in placed:
            placed[named] = process.threads
        else:
            missed.append(process)
    events = reading.log.events
    if rank is None and not any(event.by_launcher for event in events):
        rank = only({event.rank for event in events if event.rank is not None})
    if rank is not None and rank not in placed and missed and missed[0] is next(iter(by_pid.values())):
        placed[rank] = missed.pop(0).threads
    return placed, _without_workers(placed, missed)


def _without_workers(placed: dict[int, list[Thread]], missed: list[ProcessStacks]) -> list[ProcessStacks]:
    """Give the workers of a data loader to the one rank in a file as further threads, and return the other processes."""
    if len(placed) != 1:
        return missed
    workers = [p for p in missed if any(f.name == LOADER_WORKER for _, stack, _ in p.threads for f in stack)]
    (threads,) = placed.values()
    threads += [(f"worker process {p.pid}", stack, False) for p in workers for _, stack, _ in p.threads[:1]]
    return [process for process in missed if process not in workers]


def _are_in_order(known: Processes, by_pid: Collection[int | None], reading: Reading) -> bool:
    """Return whether the stacks of a text are in the order of their ranks.

    Somebody writes so, or the process ids follow each other and are as many as the job has ranks: a launcher starts them in that order.
    """
    text = reading.log.excerpt
    if not isinstance(text, Excerpt) or words("in_rank_order").search(text.prose):
        return isinstance(text, Excerpt)
    pids = [pid for pid in by_pid if pid is not None]
    in_a_row = bool(pids) and pids == [*range(pids[0], pids[0] + len(pids))]
    as_logged = all(known.of_pid(pid) in (None, number) for number, pid in enumerate(pids))
    return in_a_row and text.sizes == (len(by_pid),) and as_logged


def _stated_ranks(known: Processes, reading: Reading) -> Iterator[int | None]:
    """Yield the ranks of a dump's processes, as far as the dump itself, local ranks and tasks state them.

    A task's number is its rank where several tasks dumped and none of them is a launcher of several ranks; a local rank is mapped by
    lines that carry both, or is the rank where command lines state all of one host.
    """
    events = reading.log.events
    unknown = [process for process in reading.stacks if process.rank is None]
    tasks = len({process.task for process in unknown} - {None}) > 1 and tasks_are_ranks(events)
    listed = sorted(p.local_rank for p in unknown if p.local_rank is not None and p.pid)
    seen = {event.rank for event in events if event.rank is not None}
    counted = 1 < len(listed) == len({*listed}) and seen <= {*listed}
    # One process by its local rank, beside ranks of one host that print.
    one_host = len({e.host for e in events} - {None}) < 2 and 0 < len(seen) < _OF_ONE_HOST > max(seen)
    counted |= one_host and len(listed) == 1 and listed[0] not in seen
    for process in reading.stacks:
        if process.rank is not None or process.local_rank is None:
            yield process.task if process.rank is None and tasks else process.rank
        else:
            rank = known.in_file(reading.file, process.local_rank)
            yield process.local_rank if rank is None and counted and process.pid else rank


def unplaced(file: str, placed: int, missed: list[ProcessStacks]) -> list[Note]:
    """Return the note on processes of no known rank, if there are any, with where they are."""
    if not missed:
        return []
    places = dict.fromkeys(place_of(own.stack) for own in main_stacks(missed))
    threads = "the main thread is" if len(places) == 1 else "main threads are"
    where = f": {threads} at {'; '.join([*places][:_SHOWN])}" if places else ""
    if not placed:
        what = f"neither its name nor its text says which rank's stacks it holds{where}"
        hint = "name it like stack_rank_3.txt, or write `=== rank 3 ===` above the stacks of each rank"
        return [Note(OF_NO_RANK, what, file, hint=hint)]
    what = f"{len(missed)} of the {placed + len(missed)} processes in it are of no known rank, so their stacks were set aside{where}"
    return [Note("rank_unknown", what, file, hint="logs that name their process ids place them")]


def main_stacks(missed: Sequence[ProcessStacks]) -> list[UnplacedStack]:
    """Return where the main threads of processes of no known rank are."""
    return [
        UnplacedStack(main, p.pid, p.name, tuple(stack for _, stack, _ in p.threads if stack != main))
        for p in missed
        for main in _main(p.threads)
    ]


def _main(threads: Sequence[Thread]) -> list[Stack]:
    """Return the stacks of a process that run its script; where no stack reaches down to it, that of the first thread."""
    stacks = [stack for _, stack, _ in threads]
    return [stack for stack in stacks if stack and stack[-1].name == "<module>"] or [
        *filter(None, stacks[:1])
    ]


def offered_call(stack: Stack) -> str:
    """Return the function of a communication library or of CUDA that a stack is in; empty where it is in none."""
    return next((frame.name for frame in reversed(stack) if words("library_calls").match(frame.name)), "")


def place_of(stack: Stack) -> str:
    """Return the innermost frame and the outermost one, or where the stack is cut off the innermost with a line of the user's."""
    inner, outer = stack[0], stack[-1]
    if outer.name != "<module>":
        users = (frame for frame in stack if frame.file.endswith(".py") and not is_library(frame.file))
        outer = next(users, outer)
    api = offered_call(stack) or next((frame.name for frame in stack if frame.file.endswith(_TORCH)), "")
    text = str(inner) + (f" inside {api}" if api and api != inner.name else "")
    return text if inner == outer or outer.name == "??" else f"{text} (from {outer})"
