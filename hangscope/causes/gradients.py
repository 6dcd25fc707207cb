"""Rules about gradients and what they are of: parameters without one, other buckets, models that were not built alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import aspects, describe
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Different
from hangscope.incident import Event
from hangscope.ingest.torch_logs.store import DdpParams, DdpShape, DdpUnfinished, DdpUnused
from hangscope.knowledge.callsite import in_constructor


def unused_parameters(case: Case) -> Match | None:
    """DDP itself says which rank got no gradient for which parameters; of one on all ranks, or of an unknown one, nobody is named."""
    named = case.statements.all(DdpUnused)
    events: Sequence[Event] = named or case.statements.all(DdpUnfinished)
    if not events:
        return None
    ranks = tuple(sorted({e.rank for e in events if e.rank is not None}))
    told = ranks or sorted({e.group_rank for e in events if e.group_rank is not None})
    few = bool(ranks) and len(ranks) * 2 <= len(case.incident.ranks)
    names = [n for e in named for n in e.names] or [f"index {i}" for e in named for i in e.indices]
    what = f" ({', '.join(names[:4])})" if names else ""
    why = f"DDP's backward ended without a gradient for parameters{what}{f' on {ranks_phrase(told)}' if told else ''}; whether other ranks had one is not told"
    return Match(
        "gradient_sync_mismatch",
        ranks if few else (),
        f"only {ranks_phrase(ranks)} had parameters without a gradient{what}" if few else why,
        strength=2 if few else 1,
        evidence=[quote(e) for e in events[:4]],
        frame=case.frame_of(case.finding.own.kind),
        advice=[
            f"Make every output of the model take part in the loss on every rank{what}: a branch that depends on the data leaves them out.",
            "Set find_unused_parameters=True only where the branch is meant.",
        ],
    )


def gradient_sets(case: Case) -> Match | None:
    """Backward reduced other buckets on one rank than on its peers, inside the loop."""
    if not isinstance(case.finding, Different):
        return None
    d = Difference(case)
    culprits = case.finding.culprits
    missing, extra = d.gradients(d.skipped) and not d.too_soon, d.gradients(d.added)
    # a call by hand more or less, and each bucket meets the next
    shifted = case.finding.change.edit is not None and not d.gradients(d.edited)
    other_buckets = d.own_gradient and d.peer_gradient and d.differs in ("shape", "op") and not shifted
    placed = d.position is not None and d.position[0] == "inside" and d.steps.loop_over(culprits) is None
    goes_on = d.peer_gradient and not d.own_gradient and (d.in_loop_before or placed)
    ahead = d.own_gradient and not d.peer_gradient and bool(d.times_before(d.peer))
    if not (d.cut_short or missing or extra or other_buckets or goes_on or ahead):
        return None
    if not d.cut_short and (d.ends_epochs or _by_hand(d)):
        return None  # it left the loop behind a whole step, the reductions of the next with it
    who = ranks_phrase(culprits) if culprits else "one side"
    if other_buckets:
        why = f"{who} reduces gradient bucket {describe(d.own)} where the others reduce {describe(d.peer)}"
    elif d.cut_short:
        why = f"{who} left out the last gradient reductions of a backward pass, of which the others are in {describe(d.peer)}"
    elif missing or goes_on:
        why = f"{who} left out {len(d.skipped) or 'a'} gradient reduction{'s' if len(d.skipped) > 1 else ''} and went on inside the loop"
    else:
        why = f"{who} made a gradient reduction that the others did not make"
    advice = [
        f"Compare the accumulation boundary (no_sync), skipped batches and unused parameters of {who} with the others': every rank must run the same backward passes with synchronisation."
    ]
    return Match(
        "gradient_sync_mismatch",
        culprits,
        why,
        # A pass that an error cut short ends in a call of the handler, which nobody had made before.
        strength=2 if missing or extra or other_buckets or (d.cut_short and d.times_before(d.own)) else 1,
        frame=case.frame_of(d.own),
        advice=advice,
        evidence=aspects(case),
    )


def _by_hand(d: Difference) -> bool:
    """Return whether the reductions are the user's own all_reduce calls, made by a line of theirs and not by autograd."""
    kinds = [kind for kind in (*d.skipped, *d.added, d.peer) if kind is not None]
    return bool(kinds) and not d.gradients(kinds)


def different_models(case: Case) -> Match | None:
    """DDP's own comparison of the ranks' parameters, or its first broadcasts with different sizes."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    events = case.statements.all(DdpParams)
    for event in events:
        for rank, count in (event.counts or {}).items():
            counts[int(rank)][int(count)] += 1
    own: dict[int, object] = {rank: c.most_common(1)[0][0] for rank, c in counts.items()}
    for event in events:  # a rank's word about itself counts more than its peers'
        told = event.counts or {}
        if event.rank in told:
            own[event.rank] = int(told[event.rank])  # type: ignore[index]
    shapes = case.statements.all(DdpShape)
    # The check compares with process 0: who does not complain of another size has its size.
    sizes: dict[int, object] = {e.rank: (e.index, e.sizes) for e in shapes if e.rank is not None}
    for by_rank, told_by in ((own, events), ({**dict.fromkeys(case.incident.ranks), **sizes}, shapes)):
        sides = Counter(by_rank.values()).most_common(2)
        if len(sides) < 2:
            continue
        tie = sides[0][1] == sides[1][1]
        odd = () if tie else tuple(sorted(r for r, side in by_rank.items() if side != sides[0][0]))
        numbers = ", ".join(f"rank {r}: {own[r]}" for r in sorted(own)[:6])
        return _models(
            odd,
            f"the ranks have different numbers of parameters ({numbers})"
            if by_rank is own
            else f"parameters of {ranks_phrase(odd or tuple(sizes))} have other sizes than those of their peers",
            [quote(e) for e in told_by[:4]],
            case,
            1 if tie else 2,
        )
    finding = case.finding
    if (
        isinstance(finding, Different)
        and finding.own.kind
        and finding.stuck.kind
        and in_constructor(finding.own.kind)
        and in_constructor(finding.stuck.kind)
    ):
        return _models(
            finding.culprits,
            f"{ranks_phrase(finding.culprits) if finding.culprits else 'the ranks'} synchronise other parameters while DDP wraps the model",
            [],
            case,
            1,
        )
    return None


def _models(odd: tuple[int, ...], why: str, evidence: list[Evidence], case: Case, strength: int) -> Match:
    return Match(
        "model_mismatch",
        odd,
        why,
        strength=strength,
        evidence=evidence,
        frame=case.frame_of(case.finding.own.kind),
        advice=[
            f"Compare the config, vocabulary size and seed that {ranks_phrase(odd) if odd else 'the two sides'} built the model from with those of the others.",
            "Build from one config broadcast by rank 0, and compare a hash of (name, shape) over ranks before wrapping.",
        ],
    )
