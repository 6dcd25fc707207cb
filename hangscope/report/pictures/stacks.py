"""Both sides of the divergence: whose call or stack, and which frames the other side does not have."""

from __future__ import annotations

from dataclasses import replace

from hangscope.knowledge.callsite import is_user
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import Stack
from hangscope.model.rankset import ranks_phrase
from hangscope.report import quotes
from hangscope.report.schema.stories import PageFrame, SidePart
from hangscope.report.subject import Subject
from hangscope.report.words import call_words, sizes_words


def sides(subject: Subject) -> tuple[SidePart, ...]:
    """Return the culprit's side and the waiting side, without a side of which nothing is known. For the culprit, its own traceback is preferred, then its stack, then its collective."""
    verdict = subject.verdict
    if verdict is None:
        return ()
    waiting = verdict.waiting_call
    left, right = _culprit(subject), None
    if waiting is not None and (waiting.frames or waiting.op):
        rank = verdict.in_call[0] if verdict.in_call else None
        who = (
            ranks_phrase(verdict.in_call)
            if 0 < len(verdict.in_call) <= 4
            else f"rank {rank}"
            if rank is not None
            else "waiting"
        )
        behind = "" if subject.inside(verdict.in_call) else " indirectly"
        right = SidePart(
            "waiting",
            f"{who}, waiting{behind}".capitalize(),
            _call(waiting),
            rank,
            page_frames(waiting.frames),
        )
    return tuple(_marked(side, other) for side, other in ((left, right), (right, left)) if side is not None)


def _culprit(subject: Subject) -> SidePart | None:
    verdict = subject.verdict
    assert verdict is not None
    rank = verdict.culprit_ranks[0] if verdict.culprit_ranks else None
    call = verdict.culprit_call
    if rank is not None:
        trace = quotes.traceback_of(subject, rank)
        if trace:
            return SidePart("culprit", f"Rank {rank}, its traceback", "", rank, trace)
        record = subject.incident.ranks.get(rank)
        if record is not None and record.threads and record.threads[0][1]:
            return SidePart("culprit", f"Rank {rank}, its stack", "", rank, page_frames(record.threads[0][1]))
    if call is None:
        return None
    who = f"Rank {rank}" if rank is not None else "The other side"
    there = call.seq == verdict.seq or call.group is not None
    word = "its collective" if there else "last enqueued on that group:"
    return SidePart("culprit", f"{who}, {word}", _call(call), rank, page_frames(call.frames))


def _call(call: CallRef) -> str:
    sizes = sizes_words(call.sizes, call.dtypes)
    return " · ".join(filter(None, (call_words(call) if call.op else "", sizes)))


def page_frames(stack: Stack) -> tuple[PageFrame, ...]:
    """Return a stack as the page shows it."""
    return tuple(PageFrame(f.name, f.file, f.line, is_user(f)) for f in stack)


def _marked(side: SidePart, other: SidePart | None) -> SidePart:
    """Return a side with the frames marked that the other side, if it has any, does not have."""
    there = {(f.file, f.line) for f in other.frames} if other is not None else set()
    if not there:
        return side
    frames = tuple(replace(frame, differs=(frame.file, frame.line) not in there) for frame in side.frames)
    return replace(side, frames=frames)
