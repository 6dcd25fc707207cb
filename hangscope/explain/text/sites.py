"""At which lines ranks were blocked, by stacks and tracebacks: which rank alone is in no collective, and which are in another one.

Stacks of a moment also come from moving jobs: something else must show a hang before two collectives are evidence against any rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.explain.finding import Absent, Finding, OwnCall, Unpaired
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.output import errors
from hangscope.explain.text.partitions import different, last_call
from hangscope.explain.text.stop import PROOFS, says_it_hangs, unmoved
from hangscope.ingest.job_logs.endings import ExternalEnd
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.knowledge.callsite import is_user, user_frames
from hangscope.model.frames import Frame, Stack
from hangscope.model.incident import ROOTED_OPS, Absence, CallKind, Incident, State

_Lines = tuple[tuple[str, int], ...]  # files and lines, innermost first
_Place = tuple[str | None, _Lines]  # an operation, and where it is called

_OF_TORCH = "torch/distributed/"
_BATCHED = frozenset({"batch_isend_irecv"})
POINT_TO_POINT = _BATCHED | {"send", "recv", "isend", "irecv"}
#: Calls that create a group, and wait for its members alone.
_FORMING = {"new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh", "split_group"}


def sites(incident: Incident, statements: Statements) -> Finding | None:
    """Compare the lines of user code at which the ranks were blocked."""
    found = _places(statements)
    inside = tuple(sorted(r for ranks in found.values() for r in ranks))
    ops, telling = {op for op, _ in found}, [o.ranks for o in statements.outlier_lines if o.telling]
    # Stacks of more than a moment of a moving job: a line reports a timeout, an error or an end, or a person that they did not change.
    known_to_wait = statements.of_trouble or unmoved(statements)
    of_a_moment = not (known_to_wait or statements.any_of(*PROOFS, NoProgress, ExternalEnd))
    timed_out = {e.op for e in statements.all(WatchdogTimeout) if e.rank in inside}
    if timed_out and timed_out <= {"send", "recv"}:
        return None  # a wait of its own line, as each stage of a pipeline has one
    # CPU threads of an NCCL job that wait for a result are outside of any collective: only few may be busy there.
    if 0 < len(statements.busy) <= len(inside):
        # In any pipeline, stages wait for what a working stage will send.
        busy, guess = tuple(sorted(statements.busy)), of_a_moment and ops == _BATCHED
        return Absent(busy, last_call(inside[0], statements), waiting=inside, guess=guess)
    if inside and len(inside) == len(incident.ranks) and ops <= POINT_TO_POINT:
        named = telling[0] if len(set(telling)) == 1 else ()
        if of_a_moment and ops == _BATCHED and not named:
            return None  # the stages of any pipeline are there most of the time
        # Pipeline stages are at different lines by design, which do not show whose send or recv is missing.
        shown, waits = tuple(errors(inside, statements)), last_call(inside[0], statements)
        own = OwnCall(statements.whereabouts[named[0]].call if named else None, None)
        return Unpaired(named, waits, own, tie=not named, guess=of_a_moment, events=shown)
    # Which of its sends and receives a rank is in shows nothing; that it is in a collective of all ranks may.
    paired = tuple(sorted(r for (op, _), ranks in found.items() if op in POINT_TO_POINT for r in ranks))
    sides = [tuple(ranks) for (op, _), ranks in found.items() if op not in POINT_TO_POINT]
    sides = sorted(filter(None, [*sides, paired]), key=lambda ranks: (-len(ranks), ranks))
    if len(sides) < 2 or (of_a_moment and len(ops) == 1 and not says_it_hangs(statements)):
        return None  # collectives of one operation meet, whatever their lines
    stacks = [statements.whereabouts[side[0]].stack for side in sides]
    lines = [[e for r in side for e in statements.of(r, WatchdogTimeout, WatchdogStatus)] for side in sides]
    names = [{e.group_name for e in own if e.group_name} for own in lines]
    apart_by_group = all(names) and len(set().union(*names)) == sum(map(len, names))
    if apart_by_group or helper_of(stacks):
        return None  # collectives of different groups need not meet, and those of one function come one after the other
    kinds = {r: w.call for r, w in statements.whereabouts.items()}
    events = tuple(e for side in sides[:4] for e in statements.of(side[0], FailedStack, RankException)[:1])
    apart = replace(different(None, sides, kinds, statements), events=events)
    sends = any(e.what == "send" for rank in sides[0] for e in statements.of(rank, GlooTimeout))
    if sends and kinds[sides[0][0]].op in ROOTED_OPS and not apart.tie:
        return None  # who waits to send waits for one that receives from another root, and not for one that is further on
    if kinds[sides[0][0]].op in _FORMING and all(kinds[side[0]].op not in _FORMING for side in sides[1:]):
        # A rank that is past the creation of a group may have skipped it, or need not take part in it.
        return replace(apart, culprits=(), tie=True, guess=True)
    # A bare `work.wait()` may be that of a send or recv, too; it is where the recorder has no pending collective of the rank.
    nameless = bool(apart.culprits) and all(_waits_barely(kinds[rank]) for rank in apart.culprits)
    # Ranks in a send or recv of their own may be waiting for one of the others.
    alone = nameless or (bool(paired) and not apart.tie and (sides[0] == paired or ops & {"send", "recv"}))
    if alone and len(set(telling)) == 1 and apart.culprits and apart.culprits != telling[0]:
        # It waits for the one that counted or read something else.
        return Unpaired(telling[0], last_call(apart.culprits[0], statements), guess=True, events=events)
    if nameless and all(_records_no_wait(incident, rank) for rank in apart.culprits):
        return Unpaired((), last_call(apart.culprits[0], statements), tie=True, guess=True, events=events)
    # Of two equal sides the one off the step is the outlier, unless ranks that nobody saw are on it.
    even = 2 * len(sides[0]) <= len(inside) < len(incident.ranks)
    return replace(apart, guess=bool(alone) or of_a_moment or even)


def _waits_barely(kind: CallKind) -> bool:
    """Return whether a rank waits at a line of the user's, which does not say for what."""
    return not kind.op and bool(kind.stack) and is_user(kind.stack[0])


def _records_no_wait(incident: Incident, rank: int) -> bool:
    """Return whether a rank left a dump, and no collective of it is pending there."""
    record = incident.ranks[rank]
    done = all(state == State.DONE for queue in record.queues.values() for state in queue.state)
    return record.dump_file is not None and (record.absence is Absence.EMPTY_DUMP or (record.seen and done))


def helper_of(stacks: Sequence[Stack]) -> Frame | None:
    """Return the function of torch.distributed within which two stacks part: their lines are steps of the same call.

    A gather to rank 0 is followed there by a scatter from it: who has sent its part is further on, and waits for the same rank.
    """
    if len(stacks) != 2:
        return None
    for one, other in zip(*map(reversed, stacks), strict=False):
        if one != other:
            return one if (one.name, one.file) == (other.name, other.file) and _OF_TORCH in one.file else None
    return None


def _places(statements: Statements) -> dict[_Place, list[int]]:
    """Return the ranks at each place; a stack without its outer frames, or without a line of the user's, is at the place of a whole one."""
    shown = defaultdict[tuple[bool, _Place], list[int]](list)
    for rank, where in sorted(statements.whereabouts.items()):
        users = tuple((f.file, f.line) for f in user_frames(where.stack) if is_user(f))
        frames = users or tuple((f.file, f.line) for f in where.stack)
        if frames and where.inside:
            shown[not users, (where.op, frames)].append(rank)
    found: dict[_Place, list[int]] = {}
    for (bare, place), ranks in sorted(shown.items(), key=lambda item: (item[0][0], -len(item[0][1][1]))):
        op, frames = place
        alike = (key for key in found if key[0] == op)
        whole = (key for key in alike if key[1][: len(frames)] == frames or (op and bare))
        found.setdefault(next(whole, place), []).extend(ranks)
    return {key: sorted(ranks) for key, ranks in found.items()}
