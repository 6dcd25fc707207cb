"""Which finding explains a freeze best: all that the dumps allow, weighed by what each leaves unexplained.

Order of suspicion at a root: calls that cannot match; a pair of unequal sizes; a seen member that is absent, or an inserted
or dropped call that only shifted what followed; a device that lags; a member that left no dump; a circular wait; a call
that all joined and none completes. What was not chosen is kept with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Absent,
    Candidate,
    Explanation,
    Finding,
    Lagging,
    Nothing,
    Stalled,
    Unseen,
)
from hangscope.explain.generate.absence import Absence
from hangscope.explain.generate.circles import Circles
from hangscope.explain.generate.device_lag import DeviceLag
from hangscope.explain.generate.mismatches import Mismatches
from hangscope.explain.generate.pair_faults import PairFaults
from hangscope.explain.generate.standing_calls import standing_call

#: A root of a more certain kind is not given up for one that merely explains a few ranks more.
ENOUGH = 0.9


def explain(aligned: Aligned) -> Explanation:
    """Return the finding that explains most of those who wait, with its rivals; `Nothing` where nothing is open or differs."""
    absence, circles, lag = Absence(aligned), Circles(aligned), DeviceLag(aligned)
    found = [
        finding
        for finding in (
            Mismatches(aligned).find(),
            PairFaults(aligned).unequal(),
            absence.seen(),
            lag.find(),
            absence.unseen(),
            circles.find(),
            standing_call(aligned),
        )
        if finding is not None
    ]
    if not found:
        return Explanation(circles.apart() or Nothing())
    fitting = _without_artefacts(aligned, lag, found)
    # A dump that is older than its peers' shows a lag of its own making: who merely lags is nobody's victim.
    lagging = lag.ranks if any(isinstance(f, Lagging) for f in fitting) else frozenset()
    shares = [len(f.reached - lagging) / max(1, len(set(f.waiting) - lagging)) for f in fitting]
    best = next(f for f, share in zip(fitting, shares, strict=True) if share >= ENOUGH * max(shares))
    set_aside = [candidate for finding in found for candidate in finding.set_aside]
    for finding in fitting:
        if finding is not best and set(finding.culprits) - set(best.culprits):
            why = f"explains {finding.explained} waiting ranks; {best.name} explains {best.explained}"
            set_aside.append(Candidate(finding.culprits, finding.name, why))
    rivals = tuple(f for f in found if f is not best and _has_a_fault_of_its_own(aligned, f))
    return Explanation(best, rivals, tuple(set_aside))


def _without_artefacts(aligned: Aligned, lag: DeviceLag, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings but those that another one brings about."""
    absent = [f for f in found if isinstance(f, Absent)]
    if absent and any(isinstance(f, Lagging) and lag.is_a_moment_old(f) for f in found):
        return list(absent)
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
