"""What the calls of libraries tell about the cause: whether a rank left its loop, or called something alone.

Structure decides: where a library's own loop stands on both sides, whether the user's code made the call, whether it was
made before. No name of the user's is looked at, and no script.
"""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Different
from hangscope.knowledge.callsite import shared_line, user_frame
from hangscope.knowledge.library import Reading
from hangscope.model.incident import Frame

#: Stages that a library's loop reaches only when its batches are over.
_BEHIND = frozenset({"epoch start", "epoch end", "evaluation", "teardown"})
#: Calls that no loop ends with: one rank alone makes them because a condition told it to.
_CONDITIONAL = frozenset({"turns", "construction", "gradients", "logging"})
_ALONE = "rank_conditional_collective"

#: What leaves the same record: cause, and why.
_RIVALS = (
    ("uneven_loader", "a rank with fewer batches issues the collective after the loop first"),
    ("gradient_sync_mismatch", "a rank that skipped a backward pass (no_sync, a skipped batch) reaches the end of the loop early"),
    ("rank_conditional_collective", "a rank that skips a step, stops by itself or issues a collective alone after the loop is early as well"),
)  # fmt: skip


def called_from_a_library(case: Case) -> Match | None:
    """A call whose library says what it is: made alone, or behind a loop that the others are still in."""
    finding = case.finding
    if not isinstance(finding, Different) or finding.tie or finding.change.realigned:
        return None
    d = Difference(case)
    if not d.own_stack or not (d.peer_stack or d.peer_gradient) or d.steps.skips:
        return None
    own, peer = case.knowledge.read(d.own_stack), case.knowledge.read(d.peer_stack)
    if not d.peer_stack:  # autograd's thread has no Python frames: a backward pass of the others' loop
        peer = Reading(stage="step", loop=own.loop)
    both = own.loop is not None and peer.loop is not None
    told = (_in_a_librarys_loop if both else _in_the_users_loop)(d, own, peer)
    if told is None:
        return None
    cause, why, strength = told
    frame = None
    if cause == "uneven_loader" and (even := _even_loader(d)) is not None:
        # Of a backward pass that was left out the line is where the others are in it.
        cause, frame = "gradient_sync_mismatch", user_frame(d.peer_stack)
        why += f"; the loader of that loop ({even}) gives every rank the same number of batches, so it skipped a backward pass"
    rivals = [rival for rival in _RIVALS if rival[0] != cause and strength < 2]
    return answer(
        cause,
        finding.culprits,
        why,
        strength=strength,
        frame=frame,
        rivals=rivals,
        evidence=finding.events[:3],
    )


def _in_a_librarys_loop(d: Difference, own: Reading, peer: Reading) -> tuple[str, str, int] | None:
    """Return cause, reason and strength from where one library's loop stands on both sides."""
    culprits, in_step = d.finding.culprits, peer.stage == "step"
    loop = own.loop.api if own.loop is not None else "the loop"
    if own.by_user:
        if own.stage in ("step", "") or (own.stage in _BEHIND and culprits == (0,)):
            why = f"{who(culprits)} alone called {own.api}{at(own.caller)} in the {own.stage or 'body'} of {loop}"
            return _ALONE, why, 2 if own.stage == "step" and in_step else 1
        return None
    if own.kind in _CONDITIONAL and own.stage not in _BEHIND and in_step:
        return _ALONE, f"{who(culprits)} alone called {own.api} inside {loop}", 1
    if own.stage in _BEHIND and in_step and d.steps.mid_epoch:
        return (
            _ALONE,
            f"{who(culprits)} alone came to the {own.stage} of {loop}, in the middle of an epoch",
            1,
        )
    if own.stage in _BEHIND and in_step:
        why = f"{who(culprits)} reached the {own.stage} of {loop} while the others are still in a step"
        return "uneven_loader", why, 1
    return None


def _in_the_users_loop(d: Difference, own: Reading, peer: Reading) -> tuple[str, str, int] | None:
    """Return cause, reason and strength from two calls of a loop that the user wrote."""
    whose, here = who(d.finding.culprits), f"{own.api}{at(own.caller)}"
    if own.call is None or not own.by_user or (own.call is peer.call and own.caller == peer.caller):
        return None
    if own.kind == "epoch start":
        why = f"{whose} started the next loop at {here} while the others are still inside the previous one"
        return "uneven_loader", why, 1
    if own.kind == "step" or d.times_before(d.own):
        return None  # everybody calls it: who is early or late there is no matter of what the call is
    # Without calls before, the line that stands behind the others' in the function that both are in.
    # Who keeps its best weights does so between steps: a line below theirs may be in the same loop.
    unplaced = not d.history and own.kind != "weights"
    shared = shared_line(d.own_stack, d.peer_stack) if unplaced else None
    behind = d.beyond is not None or (shared is not None and shared[0].line > shared[1].line)
    if behind and d.finding.culprits != (0,) and own.kind not in (*_CONDITIONAL, "exchange"):
        why = f"{whose} reached {here} after the loop while the others are still in it"
        return "uneven_loader", why, 0  # or at the end of its body
    return _ALONE, f"{whose} alone called {here}", 2 if d.inside and own.kind not in _CONDITIONAL else 1


def _even_loader(d: Difference) -> Frame | None:
    """Return the line at which the others' loop began over a loader that gives every rank equally many batches, or None.

    A loader whose library synchronises the order of its samples over the ranks deals that one order out to all of them.
    """
    inside = user_frame(d.peer_stack)
    starts = (d.case.knowledge.read(kind.stack) for kind in reversed(d.history))
    lines = (r.caller for r in starts if r.kind == "epoch start" and r.by_user and r.caller is not None)
    around = (c for c in lines if inside is not None and (c.name, c.file) == (inside.name, inside.file))
    return next(around, None)
