"""What the first screen says: heading, who, where, what, why, how sure, and when."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.conclusion import Evidence
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report.reasons import read_words
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.schema.pictures import Moment, StripData
from hangscope.report.schema.stories import PageFrame, SidePart
from hangscope.report.words import cut, cut_path, duration, sizes_words, some_ranks, utc
from hangscope.verdict.confidence import USUAL

FIRST_CULPRITS, FIRST_FRAMES = 2, 3
HEADLINE_CHARS, FACT_CHARS, NOTE_CHARS, REASON_CHARS = 240, 190, 120, 200
SOME = 8  # ranks that a line has room for
STANCES = (("for", "For the verdict"), ("against", "Against it"), ("missing", "Missing"))
#: Above this length a headline is set smaller.
LONG_HEADLINE = 120


@dataclass(frozen=True, slots=True)
class Place:
    """One side in Where: who, in which collective, and the deciding frames, innermost first."""

    role: str
    title: str
    call: str
    frames: tuple[PageFrame, ...]
    stack: int


def who(verdict: VerdictPart | None, status: str) -> tuple[tuple[str, str], ...]:
    """Return the named ranks, each with its host and device, and how many more there are."""
    if verdict is None or not verdict.culprit_ranks:
        if status == "no_hang":
            return (("No rank is at fault", ""),)
        return (("No rank is named", "– the evidence points to no single rank"),)
    lines = []
    for entry in verdict.culprits[:FIRST_CULPRITS]:
        words = (("device", entry.device), ("local rank", entry.local_rank), ("pid", entry.pid))
        parts = ([entry.host] if entry.host else []) + [f"{w} {v}" for w, v in words if v is not None]
        lines.append((f"rank {entry.rank}", cut(" · ".join(parts), 90)))
    rest = verdict.culprit_ranks[len(lines) :]
    if rest:
        head = f"and {counted(len(rest), 'more')}".replace("mores", "more") if lines else ranks_phrase(rest)
        lines.append((head, some_ranks(rest, 80) if lines else ""))
    return tuple(lines)


def waiting(verdict: VerdictPart | None, status: str) -> str:
    """Return how many ranks wait, and which; empty where none does."""
    if verdict is None or not verdict.waiting_ranks:
        return ""
    ranks = verdict.waiting_ranks
    if len(ranks) == 1:
        return f"rank {ranks[0]} {'was' if status == 'no_hang' else 'is'} blocked"
    return f"{len(ranks):,} ranks {'were' if status == 'no_hang' else 'are'} blocked: {some_ranks(ranks, 70)}"


def places(sides: Sequence[SidePart], verdict: VerdictPart | None) -> tuple[Place, ...]:
    """Return the sides as the first screen shows them: the frames of user code that the other side does not have."""
    found = []
    for side in sides:
        frames = (
            [f for f in side.frames if f.differs and f.user]
            or [f for f in side.frames if f.user][:2]
            or list(side.frames[:2])
        )
        location = verdict.location if verdict is not None else None
        if side.role == "culprit" and location is not None:
            here = (location.file, location.line)
            if here not in [(f.file, f.line) for f in frames[:FIRST_FRAMES]]:
                frames = [PageFrame(location.function, location.file, location.line, True), *frames]
        found.append(
            Place(side.role, side.title, cut(side.call, 80), tuple(frames[:FIRST_FRAMES]), len(side.frames))
        )
    if not found and verdict is not None and verdict.location is not None:
        at = verdict.location
        title = f"Rank {at.rank}" if at.rank is not None else "One side"
        found.append(Place("culprit", title, "", (PageFrame(at.function, at.file, at.line, True),), 1))
    return tuple(found)


def what(verdict: VerdictPart | None) -> tuple[str, ...]:
    """Return what the waiting ranks are stuck in (without its op), then what the culprit enqueued instead."""
    if verdict is None:
        return ()
    stuck, culprit = verdict.waiting_call, verdict.culprit_call
    parts = [f"seq {verdict.seq}"] if verdict.seq is not None else []
    if stuck is not None:
        parts.append(sizes_words(stuck.sizes, stuck.dtypes))
    if verdict.group is not None:
        members = (
            counted(len(verdict.group.ranks), "rank") if verdict.group.members_known else "members not known"
        )
        parts.append(f"group {verdict.group.label}, {members}")
    line = " · ".join(part for part in parts if part)
    lines = [line] if line else []
    if (
        lines
        and culprit is not None
        and (culprit.op, culprit.seq) != (verdict.op, verdict.seq)
        and culprit.op
    ):
        seq = f" seq {culprit.seq}" if culprit.seq is not None else ""
        if culprit.group is not None:
            lines.append(f"the culprit issued {culprit.op}{seq} on group {culprit.group}")
        elif culprit.seq == verdict.seq:
            lines.append(f"the culprit issued {culprit.op}{seq} there")
        else:
            lines.append(f"the culprit's last enqueued collective on that group: {culprit.op}{seq}")
    return tuple(lines)


def shown_facts(facts: Sequence[Evidence]) -> tuple[tuple[str, str, bool], ...]:
    """Return facts cut to fit: text, source, and whether it is a quoted line."""
    return tuple((cut(f.text, FACT_CHARS), cut_path(f.at, 60), f.kind == "log") for f in facts)


def sources(document: Document) -> str:
    """Return what was read: `read: 7 dumps, 8 logs`."""
    found = read_words(document)
    return f"read: {found}" if found else ""


def moments(strip: StripData | None) -> tuple[tuple[str, str, str, str], ...]:
    """Return the points of the strip: kind, wall clock, what, and how long after the one before."""
    result = []
    before: Moment | None = None
    shown = strip.moments if strip is not None else ()
    seconds = [int(moment.at) // 10**9 for moment in shown]
    for place, (moment, second) in enumerate(zip(shown, seconds, strict=True)):
        near = any(abs(second - other) <= 1 for other in seconds[:place] + seconds[place + 1 :])
        exact = bool(int(moment.at) % 10**9) and near
        gap = (int(moment.at) - int(before.at)) / 1e9 if before is not None else 0.0
        result.append(
            (
                moment.kind,
                utc(int(moment.at), fine=exact),
                cut(moment.text, 110),
                f"+{duration(gap)}" if gap >= 1e-3 else "",
            )
        )
        before = moment
    return tuple(result)


def cost(strip: StripData | None) -> str:
    """Return how long the job was stalled and what that cost; empty where it is not known."""
    if strip is None or strip.stalled_s is None:
        return ""
    hours = strip.rank_hours or 0.0
    amount = f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 0.1 else ""
    return f"stalled for {duration(strip.stalled_s)}" + (f", {amount} GPU-hours" if amount else "")


def sure_reasons(document: Document) -> tuple[str, ...]:
    """Return why the confidence is what it is; where another explanation remains possible, which, and what would confirm it."""
    reasons = list(document.confidence_why)
    for rival in document.hypotheses[1:2] if reasons[:1] == [USUAL] else ():
        reasons[0] = f"{rival.cause} remains possible; to confirm: {rival.would_decide}"
    return tuple(cut(line, REASON_CHARS) for line in reasons[:2])


def headline(document: Document) -> str:
    """Return the sentence of the heading; that of an inconclusive report says so."""
    if document.verdict is not None and document.status == "inconclusive":
        return cut(f"Inconclusive: {document.title}", HEADLINE_CHARS)
    return cut(document.title, HEADLINE_CHARS)
