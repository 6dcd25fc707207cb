"""Both sides of the divergence: whose call or stack, which frames the other side does not have, and the source lines around.

Source lines come from tracebacks, and from a folder that the user names: a path of a stack is looked for under it by its longest
tail that exists there; nothing outside the folder is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import Stack, on_group
from hangscope.model.rankset import ranks_phrase
from hangscope.report import quotes
from hangscope.report.schema.page import PageFrame, SidePart, Snippet
from hangscope.report.subject import Subject
from hangscope.report.words import call_words, grouped, rank_words, sizes_words, some_ranks
from hangscope.verdict.phrasing import sentence_case

_PLACES = 2  # that are shown without a verdict's own line
_ASKED = 1024  # ranks whose pending collectives are looked at


def sides(subject: Subject) -> tuple[SidePart, ...]:
    """Return the culprit's side and the waiting side, without a side of which nothing is known."""
    left, right = _culprit(subject), _waiting(subject)
    if left is None and right is not None and right.rank is None:
        # No rank is named as the other side, and none as the waiting one: stacks may tell who is there.
        return _shown(subject) or (right,)
    if left is None and right is None and subject.verdict.location is None:
        return () if subject.over else _shown(subject)
    return _both_marked(left, right)


def _shown(subject: Subject) -> tuple[SidePart, ...]:
    """Return where ranks are by their stacks, tracebacks or pending collectives, those at one line together, where the verdict has no line."""
    places: list[tuple[int | None, str, str, Stack]]
    places = [(rank, what, "", stack) for rank, what, stack in quotes.places(subject)]
    for rank in subject.graph.waiting[:_ASKED] if not places else ():
        if (call := subject.first_open(rank)) is not None and (stack := subject.call_stack(rank)):
            places.append((rank, "pending", subject.call_name(call.node, rank), stack))
    alike = grouped(((place[3][0], user_frame(place[3]), place[2]), place) for place in places)
    found: list[SidePart] = []
    for those in sorted(alike.values(), key=len, reverse=True)[:_PLACES]:
        ranks, (first, what, name, stack) = [place[0] for place in those if place[0] is not None], those[0]
        who = sentence_case(ranks_phrase(ranks) if ranks else "a process of no known rank")
        role = subject.role(ranks[0]) if ranks else "unseen"
        found.append(SidePart(role, f"{who}, {what}", name, first, page_frames(stack)))
    return _both_marked(*found) if len(found) == 2 else tuple(found)


def _culprit(subject: Subject) -> SidePart | None:
    """Return the culprit's side: its own traceback, else its stack, else its collective."""
    verdict, node = subject.verdict, subject.node
    rank, call = verdict.culprit_ranks[0] if verdict.culprit_ranks else None, verdict.culprit_call
    if rank is not None:
        trace, stack = quotes.traceback_of(subject, rank), page_frames(subject.stack(rank))
        if trace or stack:
            title = f"Rank {rank}, its {'traceback' if trace else 'stack'}"
            return SidePart("culprit", title, "", rank, trace or stack)
        if call is None and node is not None and _is_in(subject, rank):
            call, kind = verdict.waiting_call, subject.kind_of(node, rank)
            if call is not None and kind is not None:  # the sizes that it passed may be what does not fit
                types = kind.input_dtypes or kind.output_dtypes
                sizes = kind.input_sizes or kind.output_sizes
                call = CallRef(kind.op, call.seq, sizes, types, kind.stack or call.frames)
    if call is None:
        return None
    who = f"Rank {rank}" if rank is not None else "The other side"
    label = call.group or (verdict.group.label if verdict.group is not None else None)
    views = [view for view in subject.views.values() if view.group.label == label]
    enqueued = {m.enqueued for view in views for m in view.members.values() if m.rank == rank}
    is_last = enqueued == {call.seq} if call.completed else call.group is None and call.seq != verdict.seq
    at_last = f"last enqueued {on_group(label)}" if label is not None and is_last else "its collective"
    return SidePart("culprit", f"{who}, {at_last}", _call(call), rank, page_frames(call.frames))


def _waiting(subject: Subject) -> SidePart | None:
    """Return the side of the ranks that are in the verdict's collective, or wait for them."""
    verdict = subject.verdict
    call = verdict.waiting_call
    if call is None or not (call.frames or call.op):
        return None
    ranks = call.ranks or verdict.in_call
    if not ranks and any(_is_in(subject, rank) for rank in verdict.culprit_ranks):
        return None  # it is the culprits' own
    who = "the others" if verdict.culprit_ranks else "who is not known"
    if ranks:
        who = rank_words(some_ranks(ranks))
    is_inside = not ranks or subject.node is None or any(_is_in(subject, rank) for rank in ranks)
    how = "" if is_inside else " elsewhere"
    state = subject.waiting_words(ranks) if ranks else "waited" if subject.over else "blocked"
    title = sentence_case(f"{who}, {'waiting' if state == 'blocked' else state}{how}")
    rank, stack = ranks[0] if ranks else None, call.frames
    if not stack:
        left = ((r, found) for r in ranks if (found := subject.stack(r) or subject.call_stack(r)))
        rank, stack = next(left, (rank, stack))
        title += f" (frames of rank {rank})" if len(ranks) > 1 and stack else ""
    return SidePart("waiting", title, _call(call), rank, page_frames(stack))


def _is_in(subject: Subject, rank: int) -> bool:
    return subject.node is not None and any(r == rank for r, _ in subject.graph.calls_of(subject.node))


def _call(call: CallRef) -> str:
    sizes = sizes_words(call.sizes, call.dtypes)
    return " · ".join(filter(None, (call_words(call) if call.op else "", sizes)))


def page_frames(stack: Stack) -> tuple[PageFrame, ...]:
    """Return a stack as the page shows it."""
    return tuple(PageFrame(f.name, f.file, f.line, is_user(f)) for f in stack)


def _both_marked(*both: SidePart | None) -> tuple[SidePart, ...]:
    return tuple(_marked(side, other) for side, other in (both, both[::-1]) if side is not None)


def _marked(side: SidePart, other: SidePart | None) -> SidePart:
    """Return a side with the frames marked that the other side, if it has any, does not have."""
    there = {place(f) for f in other.frames} if other is not None else set()
    if not there:
        return side
    return replace(side, frames=tuple(replace(f, differs=place(f) not in there) for f in side.frames))


def place(frame: PageFrame) -> tuple[str, int]:
    """Return where a frame is, for comparisons: dumps have whole paths, py-spy prints the ends of them."""
    return frame.file.replace("\\", "/").rpartition("/")[2], frame.line


AROUND = 3
MAX_BYTES = 4 << 20
_LINE_CHARS = 200


class SourceFolder:
    """A folder of source code, read as text and only below itself."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def lines(self, path: str) -> list[str]:
        """Return the lines of a stack's file; none where the folder has no such file."""
        parts = [p for p in PurePosixPath(path.replace("\\", "/")).parts if p not in ("/", ".", "..")]
        for start in range(len(parts)):
            with suppress(OSError, ValueError):
                found = self._root.joinpath(*parts[start:]).resolve()
                if found.is_relative_to(self._root) and found.is_file() and found.stat().st_size <= MAX_BYTES:
                    return found.read_text(encoding="utf-8", errors="replace").splitlines()
        return []


def snippets(both: Sequence[SidePart], folder: SourceFolder | None) -> tuple[Snippet, ...]:
    """Return the source around the deciding line on each side."""
    result = []
    for side in both:
        # The user's frame that the other side does not have, else the deepest one.
        users = sorted((f for f in side.frames if f.user), key=lambda frame: not frame.differs)
        for frame in users[:1]:
            label = f"{side.title}: {side.call}" if side.call else side.title
            lines = folder.lines(frame.file) if folder is not None else []
            shown, origin = {frame.line: frame.code} if frame.code else {}, "traceback"
            if frame.line <= len(lines):
                first = max(1, frame.line - AROUND)
                shown = dict(enumerate(lines[first - 1 : frame.line + AROUND], first))
                origin = "source folder"
            if shown and frame.line >= 1:
                found = tuple((number, text[:_LINE_CHARS]) for number, text in shown.items())
                result.append(Snippet(side.role, frame.file, frame.line, label, found, origin))
    return tuple(result)
