"""The evidence for and against a verdict, which of it decides, and the verdict as one hypothesis.

A line that occurs in any hang, such as the timeout of a blocked rank, decides nothing. The observation that distinguishes two explanations is also the best advice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hangscope.causes.case import Case, Match, quote
from hangscope.causes.corroboration import corroboration
from hangscope.causes.mismatch import describe
from hangscope.explain.predict import Replay
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.model.conclusion import Evidence, Hypothesis, Verdict
from hangscope.model.incident import CallKind
from hangscope.model.rankset import counted, ranks_phrase
from hangscope.verdict.claims import Issued, Reached
from hangscope.verdict.rivals import blocked_without

MOST = 40  # facts that are listed
MOST_DECIDING = 3
#: What ranks that wait print in any freeze.
_ANYWAY = (WatchdogTimeout, GlooTimeout, GlooClosed, WatchdogStatus, DumpSignal)


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
    return unique(found)[:MOST]


def unique(found: Iterable[Evidence]) -> list[Evidence]:
    """Return evidence without repeats: of one text about one rank the first."""
    kept: dict[tuple[str, int | None], Evidence] = {}
    for item in found:
        kept.setdefault((item.text, item.rank), item)
    return list(kept.values())


def _calls(case: Case) -> Iterator[Evidence]:
    """Yield what members issued at the seq where ranks are stuck, how far the culprits are, and what they issued in addition or skipped."""
    finding, view, seq = case.finding, case.finding.stuck.view, case.finding.stuck.seq
    if view is not None and seq is not None and finding.stuck.pair is None:
        sides: dict[CallKind | None, list[int]] = defaultdict(list)
        reached = {rank: view.members[rank].enqueued or 0 for rank in view.seen}
        for rank, enqueued in reached.items():
            kind = view.kind_of(rank, seq)
            if kind is not None or enqueued >= seq:
                sides[kind].append(rank)
        for kind, ranks in sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))[:6]:
            claim = Issued(tuple(ranks), describe(kind), seq, str(case.frame_of(kind) or ""))
            yield case.recorded(ranks[0], claim.phrase())
        for rank in [r for r in finding.culprits if reached.get(r, seq) < seq][:4]:
            member, done = view.members[rank], view.completed(rank) or 0
            known = member.queue.tells_completion and (not member.unknown or done >= reached[rank])
            claimed = Reached(rank, view.group.label, reached[rank], done if known else None)
            yield case.recorded(rank, claimed.phrase())
    if (change := finding.change).realigned:
        number = counted(abs(change.shift), "more collective" if change.shift > 0 else "fewer collective")
        where = f"{'at' if change.skipped or change.added else 'before'} seq {finding.own.seq}"
        text = f"{ranks_phrase(finding.culprits)} issued {number} {where}; the next {change.matched} match again, shifted by {abs(change.shift)}"
        yield Evidence("dump", text, finding.culprits[0])
    for rank in finding.culprits:
        same = case.incident.ranks[rank].unchanged_snapshots if rank in case.incident.ranks else 0
        if same:
            yield Evidence("dump", f"rank {rank} is at the same collective in {same + 1} dumps", rank)


def _against(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield the evidence against the verdict: the launcher's own root cause, other deaths."""
    for rank, event in sorted(case.statements.exits.items()):
        if event.first and match.culprits and rank not in match.culprits:
            text = f"the launcher reports rank {rank} as its first observed failure"
            yield quote(
                event,
                f"{text}; torchrun reports the first failure it polled, often a victim",
                kind="exit",
                stance="against",
            )
    for death in case.statements.deaths:
        if death.rank not in match.culprits:
            text = f"rank {death.rank} {death.how} as well, later or as a consequence: {death.event.text}"
            yield quote(death.event, text, stance="against")


def deciding(case: Case, match: Match, evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the indexes of the evidence that distinguishes this cause from its rivals, the most decisive first."""
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


def hypothesis(case: Case, match: Match, verdict: Verdict) -> Hypothesis:
    """Return the verdict's own explanation, with what fits it and what contradicts it."""
    against = tuple(item.text for item in verdict.evidence if item.stance == "against")[:3]
    fits = tuple(verdict.evidence[i].text for i in verdict.deciding) or (match.why,)
    # What text alone tells of who waits is no graph that could be replayed.
    explains_all = case.finding.explained >= len(case.finding.waiting)
    left = () if explains_all else blocked_without(Replay(case.graph), verdict.culprit_ranks)
    return Hypothesis(match.cause, verdict.culprit_ranks, fits, (*left, *against))
