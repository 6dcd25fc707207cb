"""What the calls of libraries tell about the cause: whether a rank left its loop, or called something alone.

Structure decides: where a library's own loop stands on both sides, whether the user's code made the call, whether it was
made before. No name of the user's is looked at, and no script.
"""

from __future__ import annotations

from dataclasses import replace

from hangscope.causes.case import Case, Match, answer, at, quote, who
from hangscope.causes.difference import Difference
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Different
from hangscope.incident import Frame, Stack
from hangscope.knowledge.callsite import shared_line, user_frame
from hangscope.knowledge.library import Knowledge, Reading

#: Stages that a library's loop reaches only when its batches are over.
_BEHIND = frozenset({"epoch start", "epoch end", "evaluation", "teardown"})
#: Calls that no loop ends with: one rank alone makes them because a condition told it to.
_CONDITIONAL = frozenset({"turns", "construction", "gradients", "logging"})
_ALONE = "rank_conditional_collective"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two calls that met: the culprits' and the one that the others wait in, and what was called until then.

    `history`: a waiting rank's calls before, oldest first (empty: unknown); `before`: how often all had made the culprits'
    (global ranks); `position`: where that stands to the loop (`callsite.position_to_loop`), None if unknown.
    """

    own: Stack
    peer: Stack
    culprits: tuple[int, ...]
    history: tuple[Stack, ...] = ()
    before: int = 0
    position: str | None = None


#: What leaves the same record: cause, and why.
_RIVALS = (
    ("uneven_loader", "a rank with fewer batches makes the call behind the loop first"),
    ("gradient_sync_mismatch", "a rank that left out a backward pass (no_sync, a skipped batch) is early at the end of the loop"),
    ("rank_conditional_collective", "a rank that skips a step, stops by itself or alone makes a call behind the loop is early, too"),
)  # fmt: skip


def tell(meeting: Meeting, knowledge: Knowledge) -> Match | None:
    """Return what the libraries' calls say about two calls that met, or None where they say nothing."""
    own, peer = knowledge.read(meeting.own), knowledge.read(meeting.peer)
    if not meeting.peer:  # autograd's thread has no Python frames: a backward pass of the others' loop
        peer = Reading(stage="step", loop=own.loop)
    if own.loop is not None and peer.loop is not None:
        return _in_a_librarys_loop(meeting, own, peer)
    if own.call is None or not own.by_user or (own.call is peer.call and own.caller == peer.caller):
        return None
    return _in_the_users_loop(meeting, own, knowledge)


def _in_a_librarys_loop(meeting: Meeting, own: Reading, peer: Reading) -> Match | None:
    """Compare where one library's loop stands on both sides."""
    loop = own.loop.api if own.loop is not None else "the loop"
    whose = who(meeting.culprits)
    in_step = peer.stage == "step"
    if own.by_user:
        if own.stage in ("step", "") or (own.stage in _BEHIND and meeting.culprits == (0,)):
            why = f"{whose} alone called {own.api}{at(own.caller)}, in the {own.stage or 'body'} of {loop}"
            return _match(meeting, _ALONE, why, 2 if own.stage == "step" and in_step else 1)
        return None
    if own.kind in _CONDITIONAL and own.stage not in _BEHIND and in_step:
        return _match(meeting, _ALONE, f"{whose} alone called {own.api}, inside {loop}", 1)
    if own.stage in _BEHIND and in_step:
        why = f"{whose} came to the {own.stage} of {loop}, while the others are in a step"
        return _match(meeting, "uneven_loader", why, 1)
    return None


def _in_the_users_loop(meeting: Meeting, own: Reading, knowledge: Knowledge) -> Match | None:
    """Compare two calls of a loop that the user wrote."""
    whose = who(meeting.culprits)
    here = f"{own.api}{at(own.caller)}"
    # Who keeps its best weights does so between steps: a line below theirs may be in the same loop.
    unplaced = not meeting.history and own.kind != "weights"
    behind = meeting.position == "beyond" or (unplaced and _after(meeting))
    if own.kind == "step":
        return None
    if own.kind == "epoch start":
        why = f"{whose} came to {here} and has begun the next loop, while the others are still inside one"
        return _left(why, 1, meeting, knowledge)
    if meeting.before:
        return None  # everybody calls it: who is early or late there is no matter of what the call is
    if behind and meeting.culprits != (0,) and own.kind not in (*_CONDITIONAL, "exchange"):
        why = f"{whose} came to {here} behind the loop, while the others are in it"
        return _left(why, 0, meeting, knowledge)  # or at the end of its body
    sure = meeting.position == "inside" and own.kind not in _CONDITIONAL
    return _match(meeting, _ALONE, f"{whose} alone called {here}", 2 if sure else 1)


def _match(meeting: Meeting, cause: str, why: str, strength: int) -> Match:
    # Of a backward pass that was left out the line is where the others are in it.
    line = meeting.peer if cause == "gradient_sync_mismatch" else meeting.own
    rivals = [rival for rival in _RIVALS if rival[0] != cause and strength < 2]
    return answer(cause, meeting.culprits, why, strength=strength, frame=user_frame(line), rivals=rivals)


def _left(why: str, strength: int, meeting: Meeting, knowledge: Knowledge) -> Match:
    """Return that a rank left its loop before the others: with fewer batches, or with as many and a step less."""
    even = _even_loader(meeting, knowledge)
    if even is None:
        return _match(meeting, "uneven_loader", why, strength)
    why += f"; the loader of that loop ({even}) deals out equally many batches, so that it left out a backward pass"
    return _match(meeting, "gradient_sync_mismatch", why, strength)


def _even_loader(meeting: Meeting, knowledge: Knowledge) -> Frame | None:
    """Return the line at which the others' loop began over a loader that gives every rank equally many batches, or None.

    A loader whose library synchronises the order of its samples over the ranks deals that one order out to all of them.
    """
    inside = user_frame(meeting.peer)
    starts = (knowledge.read(stack) for stack in reversed(meeting.history))
    lines = (r.caller for r in starts if r.kind == "epoch start" and r.by_user and r.caller is not None)
    around = (c for c in lines if inside is not None and (c.name, c.file) == (inside.name, inside.file))
    return next(around, None)


def _after(meeting: Meeting) -> bool:
    """Return whether the culprits' line stands behind the others' in the function that both are in."""
    shared = shared_line(meeting.own, meeting.peer)
    return shared is not None and shared[0].line > shared[1].line


def called_from_a_library(case: Case) -> Match | None:
    """A call whose library says what it is: made alone, or behind a loop that the others are still in."""
    finding = case.finding
    if not isinstance(finding, Different) or finding.tie or finding.change.edit is not None:
        return None
    d = Difference(case)
    own, peer = case.stack_of(d.own, finding.culprits), case.stack_of(d.peer, finding.waiting)
    if not own or (not peer and not d.peer_gradient) or d.steps.skips:
        return None
    position = d.position[0] if d.position is not None else None
    history = tuple(kind.stack for kind in d.history)
    meeting = Meeting(own, peer, finding.culprits, history, d.times_before(d.own), position)
    told = tell(meeting, case.knowledge)
    return replace(told, evidence=[quote(e) for e in finding.events[:3]]) if told is not None else None
