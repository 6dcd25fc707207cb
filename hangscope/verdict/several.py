"""Several faults at once: roots that no other root explains, named together with the first.

The wait-for graph is replayed as if the named ranks had done what is expected of them. If ranks are still stuck, the other unambiguous findings are added if they free any rank that they do not name: two roots are two faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case, Match
from hangscope.causes.rules import match_all
from hangscope.explain.finding import Explanation, Finding, Lagging
from hangscope.explain.predict import Replay
from hangscope.ingest.job_logs.faults import CudaError, Xid
from hangscope.model.rankset import ranks_phrase

MOST = 4  # faults of one freeze that are reported separately; more at once have one common cause, which is searched first


def with_the_others(case: Case, best: Match) -> Match:
    """Return the best match, joined with those of other roots that are needed to free all ranks."""
    if not best.culprits or not case.explanation.rivals:
        return best
    replay, first = Replay(case.graph), set(best.culprits)
    alone = replay.stuck(first)
    answers = [_about(case, rival, first) for rival in case.explanation.rivals[:MOST] if alone]
    others = [match for match in answers if match is not None]
    added = {rank for match in others for rank in match.culprits}
    # Else nobody but they themselves would be freed.
    return best if replay.stuck(first | added) >= alone - added else _joined(best, others)


def _about(case: Case, rival: Finding, named: set[int]) -> Match | None:
    """Return the match for the ranks of another root if it is unambiguous. When a rank dies, its peers abort their communicators, which completes collectives on some of them only; so counts prove nothing next to a death."""
    ranks = set(rival.culprits) - named
    answers = match_all(replace(case, explanation=Explanation(rival)), [])
    match = next((m for m in answers if m.culprits and ranks.issuperset(m.culprits)), None)
    if match is None or match.strength < 2:
        return None
    by_events = match.cause == "crashed_rank" or any(item.kind in ("stack", "log") for item in match.evidence)
    view, died = rival.stuck.view, {death.rank for death in case.statements.deaths}
    if isinstance(rival, Lagging) and view is not None and not died.isdisjoint(view.members):
        by_events = any(case.statements.of(rank, Xid, CudaError) for rank in ranks)
    return match if by_events or not died else None


def _joined(best: Match, added: Sequence[Match]) -> Match:
    """Return one match that names all ranks; cause, line and first advice are those of the best."""
    others = "; ".join(f"{match.why} ({match.cause})" for match in added)
    return replace(
        best,
        culprits=tuple(sorted({rank for match in (best, *added) for rank in match.culprits})),
        why=f"{best.why}; and independently, {others}",
        strength=min(best.strength, 1),
        evidence=[item for match in (best, *added) for item in match.evidence],
        advice=[
            *best.advice[:1],
            *(
                f"For {ranks_phrase(m.culprits)}: {m.advice[0][:1].lower()}{m.advice[0][1:]}"
                for m in added
                if m.advice
            ),
            *best.advice[1:],
        ],
    )
