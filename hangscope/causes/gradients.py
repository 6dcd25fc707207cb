"""Rules about gradients and what they are of: parameters without one, other buckets, models that were not built alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case, Match, answer, who
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import aspects, describe
from hangscope.explain.finding import Different
from hangscope.ingest.torch_logs.store import DdpParams, DdpShape, DdpUnfinished, DdpUnused
from hangscope.knowledge.callsite import in_constructor
from hangscope.model.incident import Event
from hangscope.model.rankset import agree


def unused_parameters(case: Case) -> Match | None:
    """DDP itself says which rank got no gradient for which parameters; of one on all ranks, or of an unknown one, nobody is named."""
    named = case.statements.all(DdpUnused)
    events: Sequence[Event] = named or case.statements.all(DdpUnfinished)
    if not events:
        return None
    ranks = tuple(sorted({e.rank for e in events if e.rank is not None}))
    told = ranks or sorted({e.group_rank for e in events if e.group_rank is not None})
    few = 0 < len(ranks) * 2 <= len(case.incident.ranks)
    lists = {(tuple(e.names), tuple(e.indices)) for e in named}
    names = [*dict.fromkeys(n for e in named for n in e.names)] or [
        f"index {i}" for i in dict.fromkeys(i for e in named for i in e.indices)
    ]
    what = f" ({', '.join(names[:4])})" if names else ""
    alike = len(lists) == 1 and len(told) > 1
    rest = (
        "the same ones on all of them, so these ranks do not differ"
        if alike
        else "whether other ranks had one is not known"
    )
    why = f"DDP reports parameters without a gradient{what}{f' on {who(told)}' if told else ''}; {rest}"
    return answer(
        "gradient_sync_mismatch",
        ranks if few else (),
        f"{who(ranks)} had parameters without a gradient{what}" if few else why,
        f"Make every output of the model contribute to the loss on every rank{what}: a branch that depends on the data skips them.",
        "Set find_unused_parameters=True only where the branch is intended.",
        strength=2 if few else 1,
        evidence=events[:4],
    )


def gradient_sets(case: Case) -> Match | None:
    """Backward reduced other buckets on one rank than on its peers, inside the loop."""
    if not isinstance(case.finding, Different):
        return None
    d = Difference(case)
    culprits = case.finding.culprits
    missing, extra = d.gradients(d.skipped), d.gradients(d.added)
    other_buckets = d.own_gradient and d.peer_gradient and d.differs in ("shape", "op")
    # A call that each step makes: one that was made now and then is rather one too many.
    each_step = 2 * d.times_before(d.own) > d.times_before(d.peer)
    goes_on = d.peer_gradient and not d.own_gradient and each_step and d.known and d.steps.loop_over is None
    if not (missing or extra or other_buckets or goes_on):
        return None
    # The user's own all_reduce calls are made by a line of theirs and not by autograd.
    by_hand = d.known and not d.gradients((*d.skipped, *d.added, d.peer))
    if d.ends_epochs or by_hand:
        return None  # it left the loop behind a whole step, the reductions of the next with it
    if other_buckets:
        what = f"reduced a different gradient bucket than the others; it issued {describe(d.own)}, they issued {describe(d.peer)}"
    elif missing or goes_on:
        what = f"skipped gradient reductions; the others are in {describe(d.peer)}"
    else:
        what = "issued a gradient reduction that the others did not issue"
    sure = missing or extra or other_buckets
    return answer(
        "gradient_sync_mismatch",
        culprits,
        f"{who(culprits)} {what}",
        f"Compare the accumulation boundary (no_sync), skipped batches and unused parameters of {who(culprits)} with those of the others: every rank must run the same synchronized backward passes.",
        strength=2 if sure else 1,
        evidence=aspects(case),
    )


def different_models(case: Case) -> Match | None:
    """DDP's own comparison of the ranks' parameters, or its first broadcasts with different sizes."""
    events = case.statements.all(DdpParams)
    own: dict[int, object] = {int(r): int(n) for e in events for r, n in (e.counts or {}).items()}
    shapes = case.statements.all(DdpShape)
    # The check compares with process 0: who does not complain of another size has its size.
    sizes: dict[int, object] = {e.rank: (e.index, e.sizes) for e in shapes if e.rank is not None}
    for by_rank, told_by in ((own, events), ({**dict.fromkeys(case.incident.ranks), **sizes}, shapes)):
        sides = Counter(by_rank.values()).most_common(2)
        if len(sides) < 2:
            continue
        tie = sides[0][1] == sides[1][1]
        odd = [] if tie else sorted(r for r, side in by_rank.items() if side != sides[0][0])
        numbers = ", ".join(f"rank {r}: {own[r]}" for r in sorted(own)[:6])
        why = f"{who(odd or sorted(sizes))} built parameters with other sizes than {agree(odd or sizes, 'its', 'their')} peers"
        if by_rank is own:
            why = f"the ranks built models with different numbers of parameters ({numbers})"
            if len(odd) == 1:
                why = f"rank {odd[0]} built a model with {own[odd[0]]} parameters, the others with {sides[0][0]}"
        return _models(odd, why, 1 if tie else 2, told_by[:4])
    finding = case.finding
    kinds = (finding.own.kind, finding.stuck.kind)
    if not isinstance(finding, Different) or not all(kind and in_constructor(kind) for kind in kinds):
        return None
    why = f"{who(finding.culprits, 'the ranks')} synchronized other parameters while DDP wrapped the model"
    return _models(finding.culprits, why, 1)


def _models(odd: Sequence[int], why: str, strength: int, evidence: Iterable[Event] = ()) -> Match:
    return answer(
        "model_mismatch",
        odd,
        why,
        f"Compare the config, vocabulary size and seed that {who(odd, 'the ranks')} built the model from with those of the others.",
        "Build from one config broadcast by rank 0, and compare a hash of (name, shape) over ranks before wrapping.",
        strength=strength,
        evidence=evidence,
    )
