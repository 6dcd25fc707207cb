"""Rules about programs: what library calls show about loops that ended earlier on some ranks, other gradients and models.

Structure decides: where a library's own loop is on both sides, whether the user's code made the call, whether it was made
before. No name of the user's counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import checked, describe
from hangscope.explain.finding import Different
from hangscope.explain.text.stop import stopped
from hangscope.ingest.excerpts.code import Guarded
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.torch_logs.store import DdpParams, DdpShape, DdpUnfinished, DdpUnused
from hangscope.knowledge.callsite import in_constructor, shared_line, user_frame
from hangscope.knowledge.library import Reading
from hangscope.model.incident import Event, Frame
from hangscope.model.rankset import agree

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
    finding, d = case.finding, Difference(case)
    if finding.tie or finding.change.realigned or d.steps.shorter is not None:
        return None
    if not d.own_stack or not (d.peer_stack or d.peer_gradient) or d.steps.skips:
        return None
    own, peer = case.knowledge.read(d.own_stack), case.knowledge.read(d.peer_stack)
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
    match = answer(
        cause, finding.culprits, why, strength=strength, rivals=rivals, evidence=finding.events[:3]
    )
    return replace(match, frame=frame)


def _in_a_librarys_loop(d: Difference, own: Reading, peer: Reading, loop: str) -> tuple[str, str, int] | None:
    """Return cause, reason and strength from where one library's loop is on both sides."""
    whose, in_step, after = who(d.finding.culprits), peer.stage == "step", own.stage in _AFTER_STEPS
    if own.by_user:
        why = f"{whose} alone called {own.api}{at(own.caller)} in the {own.stage or 'body'} of {loop}"
        return _ALONE, why, 2 if own.stage == "step" and in_step else 1
    if after and in_step:
        why = f"{whose} reached the {own.stage} of {loop} while the others are still in a step"
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
    # Where everybody makes this call, which rank is early or late there does not depend on what it is.
    if own.kind == "step" or d.times_before(d.own):
        return None
    # Without collectives before, the line after that of the others in the function that both are in. Whoever keeps its
    # best weights does so between steps: a line below theirs may be in the same loop.
    unplaced = not d.history and own.kind != "weights"
    shared = shared_line(d.own_stack, d.peer_stack) if unplaced else None
    after = d.beyond is not None or (shared is not None and shared[0].line > shared[1].line)
    if after and d.finding.culprits != (0,) and own.kind not in (*_CONDITIONAL, "exchange"):
        why = f"{whose} reached {here}, probably after the loop, while the others are still in it"
        return "uneven_loader", why, 0
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


def unused_parameters(case: Case) -> Match | None:
    """DDP reports which rank got no gradient for which parameters; where all ranks report it, or no rank is known, nobody is named."""
    named = case.statements.all(DdpUnused)
    events: Sequence[Event] = named or case.statements.all(DdpUnfinished)
    if not events:
        return None
    ranks = sorted({e.rank for e in events if e.rank is not None})
    names = [n for e in named for n in e.names] or [f"index {i}" for e in named for i in e.indices]
    what = f" ({', '.join([*dict.fromkeys(names)][:4])})" if names else ""
    fix = f"Make every output of the model contribute to the loss on every rank{what}: a branch that depends on the data skips them."
    flag = "Set find_unused_parameters=True only where the branch is intended."
    if 0 < len(ranks) * 2 <= len(case.incident.ranks):
        why = f"{who(ranks)} had parameters without a gradient{what}"
        return answer("gradient_sync_mismatch", ranks, why, fix, flag, strength=2, evidence=events[:4])
    printed = ranks or sorted({e.group_rank for e in events if e.group_rank is not None})
    running = {e.pid for e in case.statements.all(CleanupSignal)}
    failed = {e.local_rank for e in case.statements.all(Exit)}
    if not ranks and len(printed) == 1 <= len(running) and failed == {*printed}:
        others = f"the other {len(running)} still ran when the launcher ended them"
        why = f"{who(printed)} had parameters without a gradient{what}, and {others}"
        return answer("gradient_sync_mismatch", printed, why, fix, flag, evidence=events[:4])
    kinds = ({tuple(e.names) for e in named if e.names}, {tuple(e.indices) for e in named if e.indices})
    alike = len(printed) > 1 and all(len(kind) < 2 for kind in kinds)
    why = f"DDP reports parameters without a gradient{what}{f' on {who(printed)}' if printed else ''}; whether other ranks had one is not known"
    if alike:
        why = f"DDP reports the same parameters without a gradient on all of {who(printed)}: no rank differs, and the loss leaves a part of the model out everywhere"
        fix = f"Find the branch of the model with these parameters{what}, and why the loss does not use it: a wrong script or loss for this model, an auxiliary head, layers that should be frozen."
        flag = "Set find_unused_parameters=True only if that is intended."
    return answer("gradient_sync_mismatch", (), why, fix, flag, evidence=events[:4])


def gradient_sets(case: Case) -> Match | None:
    """Backward reduced other buckets on one rank than on its peers, inside the loop."""
    d, culprits = Difference(case), case.finding.culprits
    missing = d.gradients(d.skipped)
    other_buckets = d.own_gradient and d.peer_gradient and d.differs in ("shape", "op")
    # A collective of each step: one that was issued now and then is rather an extra one.
    each_step = 2 * d.times_before(d.own) > d.times_before(d.peer)
    goes_on = d.peer_gradient and not d.own_gradient and each_step and d.steps.loop_over is None
    sure = missing or d.gradients(d.added) or other_buckets
    by_hand = d.known and not d.gradients((*d.skipped, d.peer))
    if not (sure or goes_on) or by_hand or d.ends_epochs:
        return None  # a line of the user's issued it; or the rank left the loop, and so skipped the reductions of a step
    what = "issued a gradient reduction that the others did not issue"
    if other_buckets:
        what = f"reduced a different gradient bucket than the others; it issued {describe(d.own)}, they issued {describe(d.peer)}"
    elif missing or goes_on:
        what = f"skipped gradient reductions; the others are in {describe(d.peer)}"
    why, strength = f"{who(culprits)} {what}", 2 if sure else 1
    return answer("gradient_sync_mismatch", culprits, why, strength=strength, evidence=checked(case))


def different_models(case: Case) -> Match | None:
    """DDP's own comparison of the ranks' parameters, or its first broadcasts with different sizes."""
    counts, shapes = case.statements.all(DdpParams), case.statements.all(DdpShape)
    numbers: dict[int, object] = {int(r): int(n) for e in counts for r, n in (e.counts or {}).items()}
    # The check compares with process 0: who does not complain of another size has its size.
    sizes: dict[int, object] = {e.rank: (e.index, e.sizes) for e in shapes if e.rank is not None}
    for by_rank, events in ((numbers, counts), ({**dict.fromkeys(case.incident.ranks), **sizes}, shapes)):
        parts = Counter(by_rank.values()).most_common(2)
        if len(parts) < 2:
            continue
        tie = parts[0][1] == parts[1][1]
        outliers = [] if tie else sorted(r for r, value in by_rank.items() if value != parts[0][0])
        whose = outliers or sizes
        why = f"{who(whose)} built parameters with other sizes than {agree(whose, 'its', 'their')} peers"
        if by_rank is numbers:
            shown = ", ".join(f"rank {r}: {numbers[r]}" for r in sorted(numbers)[:6])
            why = f"the ranks built models with different numbers of parameters ({shown})"
            if len(outliers) == 1:
                why = f"rank {outliers[0]} built a model with {numbers[outliers[0]]} parameters, the others with {parts[0][0]}"
        return answer("model_mismatch", outliers, why, strength=1 if tie else 2, evidence=events[:4])
    finding = case.finding
    kinds = (finding.own.kind, finding.stuck.kind)
    if not isinstance(finding, Different) or not all(kind and in_constructor(kind) for kind in kinds):
        return None
    why = f"{who(finding.culprits, 'the ranks')} synchronized other parameters while DDP wrapped the model"
    return answer("model_mismatch", finding.culprits, why)


def guarded_code(case: Case) -> Guarded | None:
    """Return the collective that the code in a text calls on rank 0 alone, where the job stopped."""
    return next(
        (e.guarded for e in case.statements.all(Excerpt) if e.guarded and stopped(case.statements)), None
    )


def stands_behind_a_guard(case: Case) -> Match | None:
    """Rank 0's stack is in the collective that the program's code, as far as it was pasted, calls on rank 0 alone."""
    code, stacks = guarded_code(case), case.stacks
    if code is None or 0 not in stacks or code.leaves:
        return None
    name = code.call.rsplit(".", 1)[-1]
    return _behind_a_guard(code, 1) if any(frame.name == name for frame in stacks[0].stack) else None


def called_behind_a_guard(case: Case) -> Match | None:
    """The program's code, as far as it was pasted, calls a collective on rank 0 alone, and nothing names another rank."""
    code = guarded_code(case)
    culprits = set(case.finding.culprits)
    if code is None or culprits - {0} or (culprits and isinstance(case.finding, Different)):
        return None
    return _behind_a_guard(code, 0)


def _behind_a_guard(code: Guarded, strength: int) -> Match:
    why = f"only rank 0 calls {code.call} (`{code.guard}`), by the code in this text; every rank must call it"
    fix = f"Call {code.call} on every rank, and guard only what rank 0 alone may do: the write, the print."
    if code.leaves:
        why = f"rank 0 alone takes `{code.leaves}` (`{code.guard}`) before {code.call}, by the code in this text; every rank must call it"
        fix = f"Take `{code.leaves}` on every rank, or call {code.call} before it."
    return answer("rank_conditional_collective", (0,), why, fix, strength=strength)
