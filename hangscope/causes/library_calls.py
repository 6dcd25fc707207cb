"""What library calls show about the cause: whether a rank left its loop, or issued a collective alone.

Structure decides: where a library's own loop is on both sides, whether the user's code made the call, whether it was made
before. No name of the user's counts.
"""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Different
from hangscope.knowledge.callsite import shared_line, user_frame
from hangscope.knowledge.library import Reading
from hangscope.model.incident import Frame

#: Stages that a library's loop reaches only when its batches are over.
_AFTER_STEPS = frozenset({"epoch start", "epoch end", "evaluation", "teardown"})
#: Calls that no loop ends with: a rank makes them alone because of a condition.
_CONDITIONAL = frozenset({"turns", "construction", "gradients", "logging"})
_ALONE = "rank_conditional_collective"
#: What leaves the same record: cause, and why.
_RIVALS = {
    "uneven_loader": "a rank with fewer batches issues the collective after the loop first",
    "gradient_sync_mismatch": "a rank that skipped a backward pass (no_sync, a skipped batch) reaches the end of the loop early",
    "rank_conditional_collective": "a rank that skips a step, stops by itself or issues a collective alone after the loop is early as well",
}


def called_from_a_library(case: Case) -> Match | None:
    """A call whose library shows what it is: made by one rank alone, or after a loop that the others are still in."""
    finding = case.finding
    if not isinstance(finding, Different) or finding.tie or finding.change.edit is not None:
        return None
    d = Difference(case)
    if not d.own_stack or not (d.peer_stack or d.peer_gradient) or d.steps.skips:
        return None
    own, peer = case.knowledge.read(d.own_stack), case.knowledge.read(d.peer_stack)
    if not d.peer_stack:  # autograd's thread has no Python frames: a backward pass of the others' loop
        peer = Reading(stage="step", loop=own.loop)
    if own.loop is not None and peer.loop is not None:
        found = _in_a_librarys_loop(d, own, peer, own.loop.api)
    else:
        found = _in_the_users_loop(d, own, peer)
    if found is None:
        return None
    (cause, why, strength), frame = found, None
    if cause == "uneven_loader" and (even := _even_loader(d)) is not None:
        # The line of a backward pass that was skipped is where the others are in it.
        cause, frame = "gradient_sync_mismatch", user_frame(d.peer_stack)
        why += f"; the loader of that loop ({even}) gives every rank the same number of batches, so it skipped a backward pass"
    rivals = [(other, looks) for other, looks in _RIVALS.items() if other != cause and strength < 2]
    evidence = finding.events[:3]
    return answer(
        cause, finding.culprits, why, strength=strength, frame=frame, rivals=rivals, evidence=evidence
    )


def _in_a_librarys_loop(d: Difference, own: Reading, peer: Reading, loop: str) -> tuple[str, str, int] | None:
    """Return cause, reason and strength from where one library's loop is on both sides."""
    whose, in_step, after = who(d.finding.culprits), peer.stage == "step", own.stage in _AFTER_STEPS
    if own.by_user:
        if own.stage not in ("step", "") and not (after and d.finding.culprits == (0,)):
            return None
        why = f"{whose} alone called {own.api}{at(own.caller)} in the {own.stage or 'body'} of {loop}"
        return _ALONE, why, 2 if own.stage == "step" and in_step else 1
    if after and in_step:
        if d.steps.mid_epoch:
            return _ALONE, f"{whose} alone came to the {own.stage} of {loop}, in the middle of an epoch", 1
        return (
            "uneven_loader",
            f"{whose} reached the {own.stage} of {loop} while the others are still in a step",
            1,
        )
    if own.kind in _CONDITIONAL and in_step:
        return _ALONE, f"{whose} alone called {own.api} inside {loop}", 1
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
        return (
            None  # everybody makes this call: which rank is early or late there does not depend on what it is
        )
    # Without collectives before, the line after that of the others in the function that both are in. Whoever keeps its
    # best weights does so between steps: a line below theirs may be in the same loop.
    unplaced = not d.history and own.kind != "weights"
    shared = shared_line(d.own_stack, d.peer_stack) if unplaced else None
    after = d.beyond is not None or (shared is not None and shared[0].line > shared[1].line)
    if after and d.finding.culprits != (0,) and own.kind not in (*_CONDITIONAL, "exchange"):
        return "uneven_loader", f"{whose} reached {here} after the loop while the others are still in it", 0
    return _ALONE, f"{whose} alone called {here}", 2 if d.inside and own.kind not in _CONDITIONAL else 1


def _even_loader(d: Difference) -> Frame | None:
    """Return the line at which the others' loop began over a loader that gives every rank equally many batches, or None.

    A loader whose library synchronizes the order of its samples over the ranks deals out that one order to all of them.
    """
    inside = user_frame(d.peer_stack)
    starts = (d.case.knowledge.read(kind.stack) for kind in reversed(d.history))
    lines = (r.caller for r in starts if r.kind == "epoch start" and r.by_user and r.caller is not None)
    around = (c for c in lines if inside is not None and (c.name, c.file) == (inside.name, inside.file))
    return next(around, None)
