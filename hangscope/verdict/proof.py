"""What proves which rank is at fault, or why: `high` needs a kind of proof, not only the absence of doubts.

Ranks of one role are compared at one collective, with the user's lines on both sides; or two independent sources name the same
ranks; or a line that these ranks alone printed agrees with what their collectives show.
"""

from __future__ import annotations

from hangscope.causes.case import Case, Match
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Absent, Different, Extra, Source, Unseen
from hangscope.ingest.job_logs.progress import Progress
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_NUMBER = regex(r"[_ -]?#")  # in the description of several groups
_PEERS = 2  # that were seen in the collective in which the named ranks are not
#: Causes that the two lines of a comparison show, where they are those of a library's call or of the loop itself.
_OF_THE_LINES = frozenset({"rank_conditional_collective", "model_mismatch"})
OF_THE_LOOP = "uneven_loader"  # of which the place of a collective alone is a weak sign


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found: `of_rank` and `of_cause` why the named ranks, and the cause, are proved; empty where they are not.

    `lines`: the lines of both sides are known. `sources`: at least two independent sources agree. `counts`: so do the numbers of
    calls on two groups, compared with ranks that run the same program.
    """

    of_rank: str = ""
    of_cause: str = ""
    lines: bool = False
    sources: bool = False
    counts: bool = False


def prove(case: Case, match: Match) -> Proof:
    """Return what proves a match."""
    own = [o for o in case.statements.outlier_lines if o.telling and set(o.ranks) == set(match.culprits)]
    alone = bool(own)
    lines, sources = _compared(case, match), _sources(case, match, alone)
    counts = next((c for c in case.explanation.contradictions if set(c.ranks) == set(match.culprits)), None)
    if not match.culprits or not (lines or sources or counts):
        return Proof(lines=lines)
    why = f"{ranks_phrase(match.culprits)} and the others are at different lines of one step"
    if counts is not None:
        names = (_NUMBER.sub("", kind[2]) for kind in (counts.ahead, counts.behind))
        more, fewer = (name or "its other group" for name in names)
        why = f"{ranks_phrase(counts.ranks)} issued more calls on {more} and fewer on {fewer} than {ranks_phrase(counts.peers)}, which run the same program"
    elif not lines:
        same = "rank" if len(match.culprits) == 1 else "ranks"
        why = f"{', '.join(sources[:-1])} and {sources[-1]} name the same {same}"
    # Sources that agree on who is missing say less of what a rank called in place of its peers' collective.
    absent = match.cause == "stuck_rank" and isinstance(case.finding, Absent)
    missing = absent and Source.CALLS.value[1] in sources
    by_line = match.cause in _OF_THE_LINES and Source.OUTPUT.value[1] in sources and alone
    by_text = bool(sources) and (match.strength == 2 or ((missing or by_line) and not match.rivals))
    by_text = by_text or (lines and match.strength == 2 and match.cause in _OF_THE_LINES)
    # If only the line of its collective says that a rank exited its loop, the handler of an exception may be there, too.
    weak = match.cause == OF_THE_LOOP and match.strength < 2 and match.api is None
    steps = {(e.file, e.line) for e in case.statements.all(Progress)}
    counts_steps = any((o.file, o.line) in steps for o in own)
    by_place = weak and not counts_steps and Difference(case).steps.loop_over is None
    # If collectives prove the ranks, the usual reading of these is the right one (measured, docs/score.md).
    loops = any(cause == OF_THE_LOOP for cause, _ in match.rivals)
    contested = loops and match.strength < 2 and match.api is None
    of_cause = match.strength > 0 and (not case.from_text or by_text) and not (by_place or contested)
    return Proof(why, why if of_cause else "", lines, bool(sources), counts is not None)


def _compared(case: Case, match: Match) -> bool:
    """Return whether several peers were seen in a collective, and the culprits at another line of the user's, or of a library's."""
    finding, stuck = case.finding, case.finding.stuck
    if not isinstance(finding, Different | Extra) or finding.tie or finding.assumed or finding.guess:
        return False
    if any(kind is not None and kind.of_a_thread for kind in (finding.own.kind, stuck.kind)):
        return False  # threads of one rank have no order among them
    own, peer = case.stack_of(finding.own.kind, match.culprits), case.stack_of(stuck.kind, finding.waiting)
    inside = set(finding.waiting)
    if stuck.node is not None:
        inside = {rank for rank, _ in case.graph.calls_of(stuck.node)}
    several = len(inside.difference(match.culprits)) >= max(_PEERS, len(match.culprits) + 1)
    return several and user_frame(own) is not None and user_frame(peer) is not None and own != peer


def _sources(case: Case, match: Match, alone: bool) -> list[str]:
    """Return the independent sources that name exactly the culprits, where there are at least two."""
    if isinstance(case.finding, Unseen) and not match.strength:
        return []  # a rank without a record is silent in every source
    named = set(match.culprits)
    agree = {w.source.value[1] for w in case.explanation.weighed if set(w.finding.culprits) == named}
    agree |= {Source.OUTPUT.value[1]} if alone else set()
    return sorted(agree) if len(agree) > 1 else []
