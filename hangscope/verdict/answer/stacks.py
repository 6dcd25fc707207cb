"""Where processes are by their stacks, of known ranks and of none, and what they do or wait for there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, at
from hangscope.explain.statements.statements import Whereabouts
from hangscope.explain.text.group_size import stated_size
from hangscope.ingest.evidence.stack_owners import LOADER_WORKER, place_of
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import in_backward, is_user, user_frame
from hangscope.knowledge.doing import doing
from hangscope.model.frames import Frame, Stack, UnplacedStack
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.answer.comparisons import compared
from hangscope.verdict.answer.observation import Observation

_MOVE = "two more stacks of all ranks with native frames, seconds apart (py-spy dump --native): which of them move"
_PATH = "NCCL_DEBUG=INFO of all ranks, and a run with NCCL_P2P_DISABLE=1 (GPUs of one host) or NCCL_IB_DISABLE=1: whether the path between the GPUs is what does not work"
_SHOWN = 4  # processes of one place, and places
_MOST_LISTED = 1024  # ranks of a job
_MOST_UNSEEN = 16  # ranks


def stacks(case: Case) -> Observation | None:
    """Read where ranks are by their stacks, those at one place together; a single stack where native frames show a library's call."""
    found_at: dict[str, list[int]] = defaultdict(list)
    code = {number: text for e in case.statements.all(Excerpt) for number, text in e.code}
    for rank, where in sorted(case.stacks.items()):
        frame, inner = user_frame(where.stack), _named(where.stack)
        shown = frame or next((f for f in where.stack if f.line > 0), inner)
        call = _call(where, shown)
        what = f"`{code[shown.line]}`" if shown.line in code and shown is frame else f"({shown.name})"
        place = f"at {shown.file.rsplit('/', 1)[-1]}:{shown.line} {what}" if shown.line > 0 else ""
        if shown is inner and not place:
            place = "" if call else f"at {inner.name}"
        if call or len(case.stacks) > 1:
            found_at[f"{call} {place}".strip()].append(rank)
    if not found_at:
        return None
    size = stated_size(case.incident, case.statements) or 0
    unseen = sorted({*case.incident.ranks, *range(min(size, _MOST_LISTED))} - case.stacks.keys())
    acts = [doing(where.stack) for where in case.stacks.values()]
    met = not unseen and all(act is not None and (act.collective or act.message) for act in acts)
    sides = {f"{agree(ranks, 'is', 'are')} {place}": ranks for place, ranks in found_at.items()}
    found = compared("according to the stacks", sides, _PATH if met else _MOVE, (), what="stack", suspects=())
    if 0 < len(unseen) <= _MOST_UNSEEN:
        found = replace(found, shows=f"{found.shows}; there is no stack of {ranks_phrase(unseen)}")
    elif met and len(found_at) == 1:
        found = replace(found, shows=f"{found.shows}; these are all ranks of the job")
    # Different places are for the verdict to explain; one and the same place is an answer where it explains none.
    alone = len(case.stacks) == 1
    alike = len(found_at) == 1 and (alone or not any(where.inside for where in case.stacks.values()))
    return replace(found, wanted=found.wanted if alike else "", proves=False)


def _named(stack: Stack) -> Frame:
    """Return the innermost frame that has a name, which is `??` without symbols."""
    return next((f for f in stack if f.name != "??"), stack[0])


def _call(where: Whereabouts, frame: Frame) -> str:
    """Return what a rank's stack is in, as a phrase before the place of `frame`; empty where it ends there."""
    inner = _named(where.stack)
    if where.inside:
        return f"in {where.op or ('backward' if in_backward(where.stack) else 'a collective')}"
    if inner.file == frame.file or inner.name == "??":
        return ""
    if inner.line <= 0:
        return f"in {inner.name}, called"
    return f"in {inner.name} ({inner.file.rsplit('/', 1)[-1]}:{inner.line}), called"


def loader_workers(case: Case) -> Observation | None:
    """Read where a worker process of a data loader is, for whose batch a rank waits."""
    threads = [t[1] for record in case.incident.ranks.values() for t in record.threads]
    shown = [s for own in case.incident.unplaced for s in (own.stack, *own.others)]
    raised = [e.frames for e in case.statements.all(RankException)]
    workers = [s for s in (*threads, *shown, *raised) if any(f.name == LOADER_WORKER for f in s)]
    own: Stack = next(filter(user_frame, workers), ())
    if (frame := user_frame(own)) is None:
        return None
    inner = own[0]
    place = f"{frame.name}{at(frame)}"
    if inner != frame and inner.line > 0:
        place = f"{inner.name}{at(inner)}, called by {place}"
    acts = {rank: doing(where.stack) for rank, where in case.statements.whereabouts.items()}
    waiting = tuple(rank for rank, act in acts.items() if act is not None and act.host)
    ranks = waiting if len(waiting) == 1 else ()
    whose = f"the data loader of {ranks_phrase(ranks)}" if ranks else "a data loader"
    text = f"what {frame.name}{at(frame)} waits for: the file or mount that it reads, or the process that it started (ps for state D, cat /proc/PID/stack, dmesg for NFS); DataLoader(timeout=...) makes it fail aloud"
    shows = f"a worker process of {whose} is in {place}"
    return Observation(shows, text, "stack", ranks, blamed=bool(ranks), cause="stuck_rank")


def unplaced(case: Case) -> Observation | None:
    """Read where processes are of which nothing says which ranks they are."""
    if len(case.stacks) > 1 or any(e.sides for e in case.statements.all(Excerpt)):
        return None
    several = len(case.incident.unplaced) + len(case.stacks) > 1
    places: dict[str, list[UnplacedStack]] = defaultdict(list)
    for own in case.incident.unplaced:
        place = place_of(_to_user(own.stack) if several else own.stack)
        known = doing(own.stack)
        places[f"at {place}" if known is None else f"{known.doing} ({place})"].append(own)
    if not places:
        return None
    text = "the stacks of all ranks at the same time (py-spy dump --native --pid PID), twice, a minute apart, with a line like `=== rank 3 ===` above each"
    sides = sorted(places.items(), key=lambda side: len(side[1]))
    alone = "alone " if len(sides) == 2 and len(sides[0][1]) == 1 < len(sides[1][1]) else ""
    parts = [f"{ranks_phrase([rank])} is at {place_of(_to_user(w.stack))}" for rank, w in case.stacks.items()]
    for what, those in sides:
        are = "is" if len(those) == 1 else "are"
        parts.append(f"{_listed(those)} {alone if those is sides[0][1] else ''}{are} {what}")
    shows = "; ".join(parts[:_SHOWN])
    return Observation(shows if several else f"{shows}; nothing says which rank this is", text, "stack")


def doings(case: Case) -> Observation | None:
    """Read what ranks do or wait for, where their stacks hold a frame that is known."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank, where in sorted(case.stacks.items()):
        if (known := doing(where.stack)) is not None:
            found[known.doing].append(rank)
    parts = [f"{ranks_phrase(some)} {agree(some, 'is', 'are')} {what}" for what, some in found.items()]
    return Observation("; ".join(parts[:_SHOWN])) if parts else None


def _listed(processes: Sequence[UnplacedStack]) -> str:
    """Return processes as the subject of a sentence."""
    if any(own.pid is None for own in processes):
        return "the process that is shown" if len(processes) == 1 else "processes that are shown"
    names = [f"{own.pid} ({own.name})" if own.name else str(own.pid) for own in processes]
    shown = [*names[:_SHOWN], *([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else ())]
    joined = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"{'process' if len(processes) == 1 else 'processes'} {joined}"


def _to_user(stack: Stack) -> Stack:
    """Return a stack down to the line of the user's that calls its innermost frame: what is below that, all may have in common."""
    ends = (n for n, frame in enumerate(stack[1:], 2) if frame.file.endswith(".py") and is_user(frame))
    return stack[: next(ends, None)]
