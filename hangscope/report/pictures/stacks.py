"""Both sides of the divergence: whose call or stack, and which frames the other side does not have."""

from __future__ import annotations

from dataclasses import replace

from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import Stack
from hangscope.model.rankset import ranks_phrase
from hangscope.report import quotes
from hangscope.report.schema.stories import PageFrame, SidePart
from hangscope.report.subject import Subject
from hangscope.report.words import call_words, grouped, sizes_words
from hangscope.verdict.phrasing import sentence_case

_NAMED = 4  # waiting ranks that a title lists
_PLACES = 2  # that are shown without a verdict's own line
_ASKED = 1024  # ranks whose pending collectives are looked at


def sides(subject: Subject) -> tuple[SidePart, ...]:
    """Return the culprit's side and the waiting side, without a side of which nothing is known."""
    left, right = _culprit(subject), _waiting(subject)
    if left is None and right is not None and right.rank is None:
        # No rank is named as the other side, and none as the waiting one: stacks may tell who is there.
        return _shown(subject) or (right,)
    if left is None and right is None and (subject.verdict is None or subject.verdict.location is None):
        return () if subject.over else _shown(subject)
    return tuple(_marked(side, other) for side, other in ((left, right), (right, left)) if side is not None)


def _shown(subject: Subject) -> tuple[SidePart, ...]:
    """Return where ranks are by their stacks, tracebacks or pending collectives, those at one line together, where the verdict has no line."""
    places = quotes.places(subject)
    calls = [] if places else _pending(subject)
    alike = grouped(
        ((stack[0], user_frame(stack), what if calls else ""), (rank, what, stack))
        for rank, what, stack in places or calls
    )
    found = []
    for those in sorted(alike.values(), key=len, reverse=True)[:_PLACES]:
        ranks, (rank, what, stack) = [r for r, _, _ in those if r is not None], those[0]
        who = sentence_case(ranks_phrase(ranks) if ranks else "a process of no known rank")
        side = ("waiting", f"{who}, pending", what) if calls else ("idle", f"{who}, {what}", "")
        found.append(SidePart(*side, rank, page_frames(stack)))
    return tuple(found)


def _pending(subject: Subject) -> list[tuple[int | None, str, Stack]]:
    """Return where ranks enqueued the collectives that their dumps show as pending."""
    found: list[tuple[int | None, str, Stack]] = []
    for rank in subject.graph.waiting[:_ASKED]:
        call = subject.first_open(rank)
        kind = subject.kind_of(call.node, rank) if call is not None else None
        if call is not None and kind is not None and kind.stack:
            found.append((rank, subject.call_name(call.node, rank), kind.stack))
    return found


def _culprit(subject: Subject) -> SidePart | None:
    """Return the culprit's side: its own traceback, else its stack, else its collective."""
    verdict = subject.verdict
    if verdict is None:
        return None
    rank, call = verdict.culprit_ranks[0] if verdict.culprit_ranks else None, verdict.culprit_call
    if rank is not None:
        trace, stack = quotes.traceback_of(subject, rank), page_frames(subject.stack(rank))
        if trace or stack:
            title = f"Rank {rank}, its {'traceback' if trace else 'stack'}"
            return SidePart("culprit", title, "", rank, trace or stack)
    if call is None and rank is not None and _is_in(subject, rank):
        call = verdict.waiting_call
    if call is None:
        return None
    who = f"Rank {rank}" if rank is not None else "The other side"
    is_there = call.completed or call.seq == verdict.seq or call.group is not None or verdict.group is None
    title = f"{who}, {'its collective' if is_there else 'last enqueued'}"
    return SidePart("culprit", title, _call(call), rank, page_frames(call.frames))


def _waiting(subject: Subject) -> SidePart | None:
    """Return the side of the ranks that are in the verdict's collective, or wait for them."""
    verdict = subject.verdict
    call = verdict.waiting_call if verdict is not None else None
    if verdict is None or call is None or not (call.frames or call.op):
        return None
    ranks = call.ranks or verdict.in_call
    if not ranks and any(_is_in(subject, rank) for rank in verdict.culprit_ranks):
        return None  # it is the culprits' own
    rank = ranks[0] if ranks else None
    who = "the others" if verdict.culprit_ranks else "who is not known"
    if ranks:
        who = ranks_phrase(ranks if len(ranks) <= _NAMED else ranks[:1])
    how = "" if not ranks or subject.inside(ranks) else " elsewhere"
    title = f"{who}, {'waited' if subject.over else 'waiting'}{how}".capitalize()
    return SidePart("waiting", title, _call(call), rank, page_frames(call.frames))


def _is_in(subject: Subject, rank: int) -> bool:
    """Return whether a rank is in the call that the verdict names."""
    return subject.node is not None and any(r == rank for r, _ in subject.graph.calls_of(subject.node))


def _call(call: CallRef) -> str:
    sizes = sizes_words(call.sizes, call.dtypes)
    return " · ".join(filter(None, (call_words(call) if call.op else "", sizes)))


def page_frames(stack: Stack) -> tuple[PageFrame, ...]:
    """Return a stack as the page shows it."""
    return tuple(PageFrame(f.name, f.file, f.line, is_user(f)) for f in stack)


def _marked(side: SidePart, other: SidePart | None) -> SidePart:
    """Return a side with the frames marked that the other side, if it has any, does not have."""
    there = {place(f) for f in other.frames} if other is not None else set()
    if not there:
        return side
    return replace(side, frames=tuple(replace(f, differs=place(f) not in there) for f in side.frames))


def place(frame: PageFrame) -> tuple[str, int]:
    """Return where a frame is, for comparisons: dumps have whole paths, py-spy prints the ends of them."""
    return frame.file.replace("\\", "/").rpartition("/")[2], frame.line
