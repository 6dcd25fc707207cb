"""Where the stacks of ranks stood: who is in which call, at which line, ranks of one place together."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.explain.text.known_messages import listed
from hangscope.ingest.evidence.stack_owners import ALONE, APART, MAIN_THREAD_AT, OF_NO_RANK, library_call
from hangscope.ingest.job_logs.activity import Held
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation

_SYNCHRONIZES = regex(r"Synchronize|Memcpy|StreamWait|EventQuery")
_INSIDE = regex(r" inside (\w{3,48})")
_SHOWN = 4  # places


def stacks(case: Case) -> Observation | None:
    """Read where ranks stood; a single stack says no more than the verdict."""
    at: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, where in sorted(case.stacks.items()):
        frame = user_frame(where.stack) or next(iter(where.stack), None)
        place = f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.name})" if frame is not None else ""
        at[(f"in {where.op or 'a collective'}" if where.inside else "", place)].append(rank)
    if len(case.stacks) < 2:
        return _alone(case)
    parts = [
        f"{ranks_phrase(ranks)} {agree(ranks, 'is', 'are')} {' '.join(filter(None, (call, place and f'at {place}')))}"
        for (call, place), ranks in sorted(at.items(), key=lambda item: (-len(item[1]), item[1]))
        if call or place
    ]
    more = f"; {len(parts) - _SHOWN} more places" if len(parts) > _SHOWN else ""
    return Observation(f"by their stacks {'; '.join(parts[:_SHOWN])}{more}") if parts else None


def _alone(case: Case) -> Observation | None:
    """Read the only stack that is shown, where it stands in a call of a library with native frames below it."""
    rank, where = next(iter(case.stacks.items()), (0, None))
    call = library_call(where.stack) if where is not None else ""
    if where is None or not call or where.stack[0].name == call or where.stack[0].file.endswith(".py"):
        return None
    frame = user_frame(where.stack)
    at = (
        f", called at {frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.name})"
        if frame is not None
        else ""
    )
    shows = f"the CPU thread of rank {rank} is in {call}{at}, at {where.stack[0].name}"
    text = f"two more stacks of rank {rank} with native frames, seconds apart, and one of another rank (py-spy dump --native): whether it moves, and where the others are"
    return Observation(shows, _not_returned(call), Collect((rank,), "stack", text))


def _not_returned(call: str) -> str:
    """Return what it means that a thread is in a call of a library."""
    if _SYNCHRONIZES.search(call):
        return f"The CPU thread waits in {call} until the GPU has done what was queued: a kernel there does not end, which is often a collective that waits for a peer."
    return f"The CPU thread has not returned from {call}: it is inside the library, before or while the operation is handed to the GPU, and waits there for a lock, a helper thread or a peer."


def of_no_rank(case: Case) -> Observation | None:
    """Read where a process is of which nothing says which rank it is."""
    told = [note.message for note in case.incident.notes if note.code == OF_NO_RANK]
    if case.stacks or any(e.sides for e in case.statements.all(Excerpt)):
        return None
    if several := next((text.partition(APART)[2] for text in told if APART in text), ""):
        return _of_several(several)
    notes = [text for text in told if MAIN_THREAD_AT in text]
    if not notes:
        return None
    place = notes[0].partition(MAIN_THREAD_AT)[2]
    means = "Nothing says which rank this is, and one stack does not tell whether it waits for the others or they for it."
    if (api := _INSIDE.search(place)) is not None:
        means = f"{_not_returned(api[1])} Nothing says which rank this is, or whether the others are at the same place."
    text = "the stacks of the other ranks at the same time (py-spy dump --native --pid PID), each below a line like `=== rank 3 ===`: whoever is somewhere else is the one to look at"
    return Observation(
        f"the main thread of the process that is shown is at {place}", means, Collect((), "stack", text)
    )


def _of_several(places: str) -> Observation:
    """Read where several processes are of which nothing says which ranks they are."""
    odd, alone, _ = places.partition(ALONE)
    text = "which ranks these processes are: a line like `=== rank 3 ===` above the stack of each"
    if alone:
        means = f"The other processes are all at one place and may wait there for {odd}, or it has gone on without them: the calls at both places tell which."
        text = f"what keeps {odd} there: its stack a minute later with native frames (py-spy dump --native), its log, and {text}"
    elif "; " in places:
        means = "They are not all at the same place, and no single one of them is apart from all others: stacks alone do not tell who waits for whom."
    else:
        means = "They are all at the same place, so none of them holds up the others: the process that does is not shown, or the call itself does not end."
        text = "the stacks of the processes that are not shown, at the same time (py-spy dump --native --pid PID)"
    return Observation(places, means, Collect((), "stack", text))


def held(case: Case) -> Observation | None:
    """Read which processes the kernel reports as blocked, and what they wait for by its trace."""
    told = [e for e in case.statements.all(Held) if e.by == "kernel"]
    if not told:
        return None
    pids = list(dict.fromkeys(e.victim_pid for e in told if e.victim_pid is not None))
    first = f"process {pids[0]}" if len(pids) == 1 else f"processes {listed(map(str, pids))}"
    trace = next((e.kernel_wait for e in case.statements.all(Excerpt) if e.kernel_wait), "")
    where = f", in {trace}" if trace else ""
    shows = f"the kernel reports that {first} did not run for minutes (uninterruptible sleep, state D){where}"
    means = "It is inside a system call that neither a signal nor kill -9 ends: the file system, the disk or the driver at the top of that trace does not answer, and its rank comes to no collective."
    text = "the earliest such report on that host with its full trace, other errors of that driver or file system before it (Xid, NFS, Lustre), and which rank the process is; only its server, its driver or a reboot ends it"
    return Observation(shows, means, Collect((), "log", text), (), True, False, tuple(told))
