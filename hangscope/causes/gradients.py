"""Rules about gradients and their parameters: parameters without a gradient, other buckets, other models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangscope.causes.case import Case, Match, answer, who
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import checked, describe
from hangscope.explain.finding import Different
from hangscope.ingest.torch_logs.store import DdpParams, DdpShape, DdpUnfinished, DdpUnused
from hangscope.knowledge.callsite import in_constructor
from hangscope.model.incident import Event
from hangscope.model.rankset import agree


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
    alike = len(printed) > 1 and len({(tuple(e.names), tuple(e.indices)) for e in named}) == 1
    others = "whether other ranks had one is not known"
    rest = "the same ones on all of them, so these ranks do not differ" if alike else others
    why = f"DDP reports parameters without a gradient{what}{f' on {who(printed)}' if printed else ''}; {rest}"
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
    by_hand = d.known and not d.gradients((*d.skipped, *d.added, d.peer))
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
