"""Several faults at once: roots that no other explains, each named beside the first.

The wait-for graph is run on as if the named ranks had done what is expected of them. Where ranks are still stuck, the other
findings that leave no other reading are added if they free anybody but those they name: two roots are two faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.causes.rules import match_all
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Explanation, Finding
from hangscope.explain.predict import Replay
from hangscope.verdict.doubts import EXPLAINS

MOST = 4  # faults of one freeze that are told apart; more at once have one reason, which is looked for first


@dataclass(frozen=True, slots=True)
class Faults:
    """One match for all faults, and how many waiting ranks they explain together (None: there is one fault)."""

    match: Match
    explained: int | None = None


def with_the_others(case: Case, best: Match) -> Faults:
    """Return the best match with those of the other roots without which ranks would still wait."""
    if not best.culprits or not case.explanation.rivals or not case.graph.waiting:
        return Faults(best)
    replay = Replay(case.graph)
    first = set(best.culprits)
    alone = replay.stuck(first)
    answers = [_about(case, rival, first) for rival in case.explanation.rivals[:MOST]] if alone else []
    others = [match for match in answers if match is not None]
    left = replay.stuck(_named(first, others)) & alone
    if left >= alone - _named(set(), others):
        return Faults(best)  # nobody but they themselves would be freed
    named = _named(first, others)
    reached = {rank for root in case.graph.roots if named.intersection(root.ranks) for rank in root.explains}
    explained = len(reached - left - named)
    if not others:
        return Faults(best)
    whole = explained >= EXPLAINS * len(set(case.graph.waiting) - named)
    return Faults(_joined(best, others, whole), explained)


def _named(first: set[int], others: Sequence[Match]) -> set[int]:
    return first.union(*(match.culprits for match in others))


def _about(case: Case, rival: Finding, named: set[int]) -> Match | None:
    """Return the answer about the ranks of another root, where it leaves no other reading."""
    ranks = set(rival.culprits) - named
    answers = (
        m
        for m in match_all(replace(case, explanation=Explanation(rival)), [])
        if m.culprits and set(m.culprits) <= ranks
    )
    match = next(answers, None)
    if match is None or match.strength < 2 or (case.statements.deaths and not _told(match)):
        return None
    return match


def _told(match: Match) -> bool:
    """Return whether stacks or lines tell of a fault, or the process ended: beside a dead rank counts tell nothing.

    Its peers abort their communicators, which completes calls of some and not of others.
    """
    return match.cause == "crashed_rank" or any(item.kind in ("stack", "log") for item in match.evidence)


def _joined(best: Match, added: Sequence[Match], whole: bool) -> Match:
    """Return one match that names all; cause, line and first advice are those of the first.

    Where it is not the `whole` story, there is a fault more that nobody named.
    """
    others = "; ".join(f"{match.why} ({match.cause})" for match in added)
    return replace(
        best,
        culprits=tuple(sorted({rank for match in (best, *added) for rank in match.culprits})),
        why=f"{best.why}; and, by a fault of {'its' if len(added) == 1 else 'their'} own, {others}",
        strength=min(best.strength, int(whole)),
        evidence=[item for match in (best, *added) for item in match.evidence],
        advice=[
            *best.advice[:1],
            *(f"For {ranks_phrase(m.culprits)}: {m.advice[0]}" for m in added if m.advice),
            *best.advice[1:],
        ],
    )
