"""The weights by which findings are compared, each with what it stands for and how it was set.

A finding's score is the share of the waiting ranks that lead to its root, less a price for how surprising such a root is on
such evidence. Prices are steps of one tenth: a root of a more certain kind is not given up for one that explains a tenth of
the ranks more. They follow from what each kind of evidence leaves open, and were fitted to nothing; docs/score.md shows how
they do.
"""

from __future__ import annotations

from hangscope.explain.finding import (
    Absent,
    Circular,
    Different,
    Extra,
    Finding,
    Lagging,
    Late,
    Source,
    Stalled,
    Unpaired,
    Unseen,
    Unstarted,
)

#: What calls show, from what leaves no other reading to what names nobody.
_OF_CALLS: dict[type[Finding], float] = {
    Different: 0.0,
    Unpaired: 0.1,
    Absent: 0.2,
    Extra: 0.2,
    Late: 0.2,
    Lagging: 0.3,
    Unstarted: 0.3,
    Unseen: 0.4,
    Circular: 0.5,
    Stalled: 0.6,
}
#: What it costs that no recorder, but a line of text tells of it.
_OF_TEXT = {
    Source.CALLS: 0.0,
    Source.OWN_WORDS: 0.05,
    Source.REPORT: 0.25,
    Source.HINT: 0.65,
    Source.SILENCE: 0.75,
    Source.OUTPUT: 0.85,
}
#: A circle rests on the order in which a rank waits, which is assumed across groups.
IN_A_CIRCLE = 0.5


def price(finding: Finding, source: Source) -> float:
    """Return what a finding costs, 0 to 1."""
    if source is not Source.CALLS:
        return _OF_TEXT[source]
    if finding.circle is not None:
        return IN_A_CIRCLE
    return _OF_CALLS[type(finding)]
