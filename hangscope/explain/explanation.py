"""Which finding explains a freeze best: all that the dumps allow, weighed by what each leaves unexplained.

Order of suspicion at a root: calls that cannot match; a pair of unequal sizes; a seen member that is absent; a device
that lags; a member that left no dump; a circular wait; a call that all joined and none completes. What was not chosen is
kept with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope import incident
from hangscope.align.nodes import Instance, Untold
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Absent,
    Candidate,
    Different,
    Explanation,
    Finding,
    Lagging,
    Nothing,
    OwnCall,
    Source,
    Stalled,
    Unseen,
    Weighed,
)
from hangscope.explain.generate.absence import Absence
from hangscope.explain.generate.circles import Circles
from hangscope.explain.generate.device_lag import DeviceLag
from hangscope.explain.generate.mismatches import Mismatches
from hangscope.explain.generate.pair_faults import PairFaults
from hangscope.explain.generate.standing_calls import standing_call
from hangscope.explain.predict import Replay
from hangscope.explain.statements.bounds import behind
from hangscope.explain.text.hypotheses import told
from hangscope.explain.weights import price


def explain(aligned: Aligned) -> Explanation:
    """Return the finding that fits best, with its rivals; `Nothing` where nothing is open and no line tells of a root."""
    found = _of_calls(aligned)
    weighed = [*_by_calls(aligned, found), *_by_text(aligned)]
    if not weighed:
        return Explanation(Nothing(), from_text=True)
    best = max(weighed, key=lambda w: w.score)  # of equals the first, which is of the more certain kind
    set_aside = [candidate for w in weighed if w.source is best.source for candidate in w.finding.set_aside]
    for w in weighed:
        if w is not best and w.source is best.source and set(w.finding.culprits) - set(best.finding.culprits):
            why = f"explains {w.finding.explained} waiting ranks; {best.finding.name} explains {best.finding.explained}"
            set_aside.append(Candidate(w.finding.culprits, w.finding.name, why))
    rivals = tuple(f for f in found if f is not best.finding and _has_a_fault_of_its_own(aligned, f))
    weighed.sort(key=lambda w: -w.score)
    recorded = any(
        r.calls_file and r.absence is not incident.Absence.TOLD for r in aligned.incident.ranks.values()
    )
    from_text = best.source is not Source.CALLS or not recorded
    finding = (
        _with_its_lines(aligned, best.finding, from_text) if best.source is Source.CALLS else best.finding
    )
    return Explanation(finding, from_text, rivals, tuple(set_aside), tuple(weighed))


def _with_its_lines(aligned: Aligned, finding: Finding, from_text: bool) -> Finding:
    """Return a finding by calls with the lines that state them, where no recorder does, and with what both assume."""
    view = finding.stuck.view
    assumed = finding.assumed or (view is not None and incident.ASSUMED in view.group.name)
    if not from_text or finding.events:
        return replace(finding, assumed=assumed)
    lines = behind(aligned.stated, finding.waiting, finding.culprits)
    assumed = assumed or any(e.rank_assumed for e in lines)
    return replace(finding, assumed=assumed, events=tuple(lines))


def _of_calls(aligned: Aligned) -> list[Finding]:
    """Return the roots that the calls show, those of a more certain kind first."""
    absence, circles = Absence(aligned), Circles(aligned)
    found = (
        Mismatches(aligned).find(),
        PairFaults(aligned).unequal(),
        absence.seen(),
        DeviceLag(aligned).find(),
        absence.unseen(),
        circles.find(),
        standing_call(aligned),
    )
    return [finding for finding in found if finding is not None] or [
        finding for finding in (circles.apart(),) if finding is not None
    ]


def _by_calls(aligned: Aligned, found: Sequence[Finding]) -> list[Weighed]:
    fitting = _without_artefacts(aligned, found)
    # A dump that is older than its peers' shows a lag of its own making: who merely lags is nobody's victim.
    lagging = DeviceLag(aligned).ranks if any(isinstance(f, Lagging) for f in fitting) else frozenset()
    return [
        Weighed(
            f,
            Source.CALLS,
            len(f.reached - lagging) / max(1, len(set(f.waiting) - lagging)) - price(f, Source.CALLS),
        )
        for f in fitting
    ]


def _by_text(aligned: Aligned) -> list[Weighed]:
    """Return what text tells, held against the calls that are open."""
    replay = Replay(aligned.graph)
    # Of whom no line tells for whom they wait, every root may be the one.
    opened = aligned.graph.open_calls.items()
    waiting = frozenset(rank for rank, calls in opened if calls and not isinstance(calls[0].node, Untold))
    weighed = []
    for stated, source in told(aligned.incident, aligned.stated):
        finding = _in_its_own_call(aligned, stated) if source is Source.REPORT else stated
        culprits = frozenset(finding.culprits)
        left = replay.stuck(culprits) & waiting - culprits if waiting and culprits else frozenset()
        share = 1 - len(left) / max(1, len(waiting - culprits))
        weighed.append(Weighed(finding, source, share - price(finding, source)))
    return weighed


def _in_its_own_call(aligned: Aligned, finding: Finding) -> Finding:
    """Return a report's word on who is absent, where all of them are in a call of their own, as that they are in another one."""
    calls = [aligned.graph.open_calls.get(rank, [None])[0] for rank in finding.culprits]
    nodes = [call.node for call in calls if call is not None and isinstance(call.node, Instance)]
    if not isinstance(finding, Absent) or not nodes or len(nodes) < len(calls):
        return finding
    view = aligned.views[nodes[0].gid]
    own = OwnCall(view.kind_of(finding.culprits[0], nodes[0].seq), nodes[0].seq)
    return Different(
        finding.culprits, finding.stuck, own, waiting=finding.waiting, reached=finding.reached, assumed=finding.assumed,
        events=finding.events,
    )  # fmt: skip


def _without_artefacts(aligned: Aligned, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings but those that another one brings about."""
    unseen = any(isinstance(f, Unseen) for f in found)
    if unseen and (aligned.ended or any(isinstance(f, Lagging) and len(f.culprits) != 1 for f in found)):
        # The peers of a rank that died abort their communicators, which completes calls of some and not of others.
        found = [f for f in found if not isinstance(f, Lagging)]
    places = [(f.stuck.view, f.stuck.seq) for f in found]
    return [
        f
        for f, place in zip(found, places, strict=True)
        if not isinstance(f, Stalled) or places.count(place) == 1
    ]


def _has_a_fault_of_its_own(aligned: Aligned, finding: Finding) -> bool:
    """Return whether ranks stopped, ended or lag by what was seen of themselves, and not by what others wait for."""
    if isinstance(finding, Unseen):
        return set(finding.culprits) <= aligned.ended
    return isinstance(finding, Absent | Lagging)
