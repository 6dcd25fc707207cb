"""Two calls that cannot match, argument by argument."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.rankset import ranks_phrase
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.schema.stories import Argument, MismatchStory
from hangscope.report.subject import Subject
from hangscope.report.words import sizes_words


def mismatch(subject: Subject, classes: Sequence[Behaviour]) -> MismatchStory | None:
    """Return the two sides' arguments, or None where one of them is not known or they are alike."""
    del classes
    verdict = subject.verdict
    if verdict is None or verdict.culprit_call is None or verdict.waiting_call is None:
        return None
    left, right = verdict.waiting_call, verdict.culprit_call
    rows = tuple(
        Argument(name, one, other)
        for name, one, other in zip(_NAMES, _values(left), _values(right), strict=True)
        if one or other
    )
    if not any(row.differs for row in rows):
        return None
    others = verdict.in_call or verdict.waiting_ranks
    return MismatchStory(
        ranks_phrase(others).capitalize() if others else "One side",
        ranks_phrase(verdict.culprit_ranks).capitalize() if verdict.culprit_ranks else "The other side",
        rows,
    )


_NAMES = ("call", "seq", "sizes", "type", "line")


def _values(call: CallRef) -> tuple[str, ...]:
    frame = user_frame(call.frames)
    return (
        call.op,
        "" if call.seq is None else str(call.seq),
        sizes_words(call.sizes, most=4),
        ", ".join(dict.fromkeys(call.dtypes)),
        str(frame) if frame is not None else "",
    )
