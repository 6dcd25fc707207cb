"""What stands for a verdict, against it and beside it: evidence, what of it decides, alternatives, all that was weighed.

A line that is true of any freeze, such as the timeout of a rank that waited, decides nothing. What tells two explanations
apart is one observation, and the best advice there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from hangscope.causes.case import Case, Match, quote
from hangscope.causes.corroboration import corroboration
from hangscope.causes.mismatch import describe
from hangscope.conclusion import Alternative, Evidence, Hypothesis, Verdict
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.incident import CallKind
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.catalog import CATALOG
from hangscope.rankset import ranks_phrase

MOST = 40  # facts that are listed
MOST_DECIDING = 3
MOST_HYPOTHESES = 6
#: What ranks that wait print in any freeze.
_ANYWAY = (WatchdogTimeout, GlooTimeout, GlooClosed, WatchdogStatus, DumpSignal)
#: What the record of a cause looks like as well, and why.
_RIVALS = {
    "uneven_loader": ("rank_conditional_collective", "an extra call at the end of the loop looks the same"),
    "rank_conditional_collective": ("uneven_loader", "who left a loop early makes the call behind it first"),
    "crashed_rank": ("early_exit", "a process that ends without a trace may also have returned early"),
    "early_exit": ("crashed_rank", "without its exit code, a killed process looks the same"),
    "gradient_sync_mismatch": ("rank_conditional_collective", "a skipped step has no reductions, either"),
    "collective_order_mismatch": ("stuck_rank", "a host that is busy elsewhere makes the same circle"),
    "stuck_rank": ("slow_rank", "one snapshot cannot tell blocked from slow"),
}


def collect(case: Case, match: Match, missing: list[str]) -> list[Evidence]:
    """Return the evidence for a match, against it, and what is missing, without repeats."""
    found = (
        *_calls(case),
        *match.evidence,
        *map(quote, case.finding.events[:8]),
        *corroboration(case, match),
        *islice(_against(case, match), 6),
        *(Evidence("method", text, stance="missing") for text in missing),
    )
    unique: dict[tuple[str, int | None], Evidence] = {}
    for item in found:
        unique.setdefault((item.text, item.rank), item)
    return list(unique.values())[:MOST]


def _calls(case: Case) -> Iterator[Evidence]:
    """Yield what members called at the seq that ranks are stuck at, how far the culprits came, and what they made more or less."""
    finding, view, seq = case.finding, case.finding.stuck.view, case.finding.stuck.seq
    if view is not None and seq is not None and finding.stuck.pair is None:
        sides: dict[CallKind | None, list[int]] = defaultdict(list)
        reached = {rank: view.members[rank].enqueued or 0 for rank in view.seen}
        for rank, enqueued in reached.items():
            kind = view.kind_of(rank, seq)
            if kind is not None or enqueued >= seq:
                sides[kind].append(rank)
        for kind, ranks in sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))[:6]:
            frame = case.frame_of(kind)
            at = f" at {frame}" if frame else ""
            yield case.recorded(ranks[0], f"{ranks_phrase(ranks)}: {describe(kind)} at seq {seq}{at}")
        for rank in [r for r in finding.culprits if reached.get(r, seq) < seq][:4]:
            member, done = view.members[rank], view.completed(rank) or 0
            told = member.queue.tells_completion and (not member.unknown or done >= reached[rank])
            completed = f"last completed {done}" if told else "its record tells no completions"
            text = f"rank {rank}: last enqueued seq {reached[rank]}, {completed} on group {view.group.label}"
            yield case.recorded(rank, text)
    if (change := finding.change.edit) is not None:
        edit = change.edit
        calls, how = f"call{'s' if edit.length > 1 else ''}", "more" if edit.kind == "extra" else "less"
        where = f"{'at' if change.calls else 'before'} seq {change.seq}"
        text = f"{ranks_phrase(change.ranks)} made {edit.length} {calls} {how} {where}; {edit.confirmed} calls behind match again, shifted by {edit.length}"
        yield Evidence("dump", text, change.ranks[0])
    for rank in finding.culprits:
        same = case.incident.ranks[rank].unchanged_snapshots if rank in case.incident.ranks else 0
        if same:
            yield Evidence("dump", f"rank {rank}'s frontier is the same in {same + 1} dumps", rank)


def _against(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what speaks against the verdict: the launcher's own root cause, other deaths."""
    for rank, event in sorted(case.statements.exits.items()):
        if event.first and match.culprits and rank not in match.culprits:
            text = f"the launcher names rank {rank} as its first observed failure"
            yield quote(event, f"{text}; it names whom it polled first", kind="exit", stance="against")
    for death in case.statements.deaths:
        if death.rank not in match.culprits:
            text = f"rank {death.rank} {death.how} as well, later or as a consequence: {death.event.text}"
            yield quote(death.event, text, stance="against")


def alternatives(match: Match, others: Sequence[Match]) -> list[Alternative]:
    """Return at most three other causes that the evidence allows, each with why."""
    # What a finer cause explains for certain is a mismatch by definition, and no rival of it.
    finer = match.strength == 2 or match.cause == "collective_order_mismatch"
    told = [(o.cause, o.why) for o in others if not (finer and o.cause == "collective_mismatch")]
    whys: dict[str, str] = {}
    for cause, why in (*match.rivals, *told):
        whys.setdefault(cause, why)
    if match.strength < 2 and not match.rivals and match.cause in _RIVALS:
        cause, why = _RIVALS[match.cause]
        whys = {cause: why, **whys}
    return [Alternative(cause, why) for cause, why in whys.items() if cause != match.cause][:3]


def deciding(case: Case, match: Match, evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the indexes of the evidence that tells this cause from its rivals, the most telling first."""
    culprits = set(match.culprits)
    anyway = {(e.file, e.line) for e in case.statements.all(*_ANYWAY) if e.rank not in culprits}
    own = {(item.text, item.rank) for item in match.evidence}
    ranked = []
    for index, item in enumerate(evidence):
        source = item.source and (item.source.file, item.source.line)
        if item.stance == "for" and item.kind != "method" and source not in anyway:
            weight = (item.rank in culprits, (item.text, item.rank) in own, item.kind == "dump")
            if any(weight) or not culprits:
                ranked.append((*(not part for part in weight), index))
    return tuple(index for *_, index in sorted(ranked)[:MOST_DECIDING])


def hypotheses(case: Case, match: Match, others: Sequence[Match], verdict: Verdict) -> list[Hypothesis]:
    """Return the explanations that were weighed, best first, each with what fits it and what contradicts it."""
    replay = Replay(case.graph)
    against = tuple(item.text for item in verdict.evidence if item.stance == "against")[:3]
    fits = tuple(verdict.evidence[i].text for i in verdict.deciding) or (match.why,)
    # What text alone tells of who waits is no graph that could be replayed.
    explains_all = case.finding.explained >= len(case.finding.waiting)
    left = () if explains_all else _left(replay, verdict.culprit_ranks)
    result = [Hypothesis(match.cause, verdict.culprit_ranks, fits, (*left, *against))]
    told = {(match.cause, verdict.culprit_ranks), ("unknown", verdict.culprit_ranks)}
    rows = [(other.cause, other.culprits, other.why, "") for other in others]
    rows += [("unknown", c.ranks, c.what, c.why_set_aside) for c in case.explanation.set_aside]
    for cause, named, why, why_not in rows:
        ranks = tuple(sorted(set(named)))
        if (cause, ranks) not in told and (ranks or not why_not):
            told.add((cause, ranks))
            contradicts = (*filter(None, [why_not]), *_left(replay, ranks))
            result.append(Hypothesis(cause, ranks, (why,), contradicts, CATALOG[cause].would_decide))
    return result[:MOST_HYPOTHESES]


def _left(replay: Replay, ranks: Sequence[int]) -> tuple[str, ...]:
    """Return who would still wait if these ranks had done what is expected of them, as a contradiction, or nothing."""
    if not 0 < len(ranks) <= MOST_REPLAYED:
        return ()
    stuck = replay.stuck(ranks) - set(ranks)
    return (f"it leaves unexplained why {ranks_phrase(stuck)} would wait",) if stuck else ()
