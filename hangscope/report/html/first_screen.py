"""What the first screen says: heading, who, where, what, why, how sure, what to do next, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.model.incident import on_group
from hangscope.model.rankset import agree, counted, ranks_phrase
from hangscope.report import reasons, words
from hangscope.report.html.drawings import draw_timeline
from hangscope.report.pictures.stacks import place
from hangscope.report.reasons import is_another_call
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.schema.page import Lines, PageData, PageFrame, SidePart
from hangscope.report.schema.pictures import StripData
from hangscope.report.words import cut, duration, some_ranks
from hangscope.verdict.confidence import USUAL

_CULPRITS, _FRAMES, _STEPS, _CALLS = 2, 3, 3, 3
_HEADLINE, _FACT, _MOMENT, _REASON = 240, 190, 110, 200  # characters
_LONG = 120  # characters above which a headline is set smaller


class FirstScreen:
    """The first screen in words, from a document and its pictures."""

    def __init__(self, document: Document, data: PageData) -> None:
        verdict, undecided = document.found, document.status == "inconclusive"
        steps = [cut(step, words.LINE_CHARS) for step in reasons.next_steps(document)]
        lead = "Inconclusive: " if document.verdict is not None and undecided else ""
        self.headline = self.title = cut(lead + document.title, _HEADLINE)
        self.is_long = len(self.headline) > _LONG
        if document.verdict is not None:
            self.title = f"{words.STATUS_WORDS[document.status]}: {document.title}"
        self.explanation = words.below_title(document.title, verdict.explanation)
        self.size = reasons.size_words(document)
        self.partial = cut(document.partial.text, _FACT) if document.partial.is_partial else ""
        self.who = _who(document)
        self.hosts = reasons.hosts(document)
        self.waiting = _waiting(document)
        self.places = _places(data.sides, verdict)
        self.op = verdict.op or ""
        calls = [side.call for side in data.sides if side.call]
        self.what = _what(verdict) or ([] if self.op else _pending(data) or calls)
        self.inside = "" if is_another_call(verdict) else verdict.api
        self.no_what = "No collective is known to stay pending." if document.status == "no_hang" else ""
        self.why = _why(document, data)
        self.read = reasons.read_words(document)
        self.reasons = _reasons(document)
        self.next_title = "Collect next time" if undecided else "Do next"
        self.steps, self.more_steps = steps[:_STEPS], steps[_STEPS:]
        self.commands = reasons.commands(document)
        strip = _merged(data.strip or StripData((), None, None, True, "unknown"))
        self.moments = _moments(strip)
        self.timeline = draw_timeline(strip)
        self.cost = _cost(strip)


def _who(document: Document) -> list[tuple[str, str]]:
    """Return the named ranks, each with its host and device, and how many more there are."""
    verdict = document.found
    if not verdict.culprit_ranks:
        unnamed = ("No rank is named", "– the evidence points to no single rank")
        return [("No rank is at fault", "") if document.status == "no_hang" else unnamed]
    lines = []
    for entry in verdict.culprits[:_CULPRITS]:
        known = (("device", entry.device), ("local rank", entry.local_rank), ("pid", entry.pid))
        parts = ([entry.host] if entry.host else []) + [f"{w} {v}" for w, v in known if v is not None]
        lines.append((f"rank {entry.rank}", cut(" · ".join(parts), 90)))
    if rest := verdict.culprit_ranks[len(lines) :]:
        lines.append((f"and {len(rest):,} more", some_ranks(rest, 80)) if lines else (ranks_phrase(rest), ""))
    return lines


def _waiting(document: Document) -> str:
    """Return how many ranks are blocked, or waited, and which; empty where none is."""
    ranks = document.found.waiting_ranks
    is_over = bool(ranks) and document.status == "no_hang"
    lines = []
    for state, some in [("waited", list(ranks))] if is_over else document.found.wait_ends.parts(ranks):
        verb = f"{agree(some, 'is', 'are')} {state}" if state == "blocked" else state
        several = f"{len(some):,} ranks {verb}: {some_ranks(some, 70)}"
        lines.append(several if len(some) > 1 else f"rank {some[0]} {verb}")
    return "; ".join(lines)


def _places(sides: Sequence[SidePart], verdict: VerdictPart) -> list[tuple[SidePart, int]]:
    """Return the sides with the frames that the first screen shows, user code that the other side does not have, and how many there are."""
    at = reasons.own_place(verdict)
    here = [PageFrame(at.function, at.file, at.line, True)] if at is not None else []
    found = []
    for side in sides:
        users, fork = [f for f in side.frames if f.user], _fork(side.frames)
        telling = [f for f in users if f.differs] or users[:2] or side.frames[:2]
        frames = [f for f in side.frames if f in telling or f is fork]
        places = [place(f) for f in frames[:_FRAMES]]
        if side.role == "culprit":
            frames = [*(f for f in here if place(f) not in places), *frames]
        shown = replace(side, call=cut(side.call, 80), frames=tuple(frames[:_FRAMES]))
        found.append((shown, len(side.frames)))
    if not found and at is not None:
        title = f"Rank {at.rank}" if at.rank is not None else "One side"
        found.append((SidePart("culprit", title, "", at.rank, tuple(here)), 1))
    return found


def _fork(frames: Sequence[PageFrame]) -> PageFrame | None:
    """Return the frame, of a library or not, at which a stack leaves the other side's: the outermost that differs, inside of a common line of the user if there is one."""
    outer = [*reversed(frames)]
    common = next((i for i, frame in enumerate(outer) if frame.user and not frame.differs), 0)
    return next((frame for frame in outer[common:] if frame.differs), None)


def _what(verdict: VerdictPart) -> list[str]:
    """Return what the waiting ranks are stuck in (without its op), then what the culprit issued instead."""
    stuck, group = verdict.waiting_call, verdict.group
    parts = [f"seq {verdict.seq}"] if verdict.seq is not None else []
    if stuck is not None:
        parts.append(words.sizes_words(stuck.sizes, stuck.dtypes))
    if group is not None:
        members = counted(len(group.ranks), "rank") if group.members_known else "members not known"
        parts.append(f"{on_group(group.label).removeprefix('on ')}, {members}")
    lines = [line] if (line := " · ".join(filter(None, parts))) else []
    if not is_another_call(verdict):
        return lines
    several = len(verdict.culprit_ranks) > 1
    issued = f"the culprit{'s' if several else ''} {reasons.culprit_call(verdict, several)}"
    return [*(lines or [""]), issued + (f", inside {verdict.api}" if verdict.api else "")]


def _pending(data: PageData) -> list[str]:
    nodes = data.waitfor.nodes if data.waitfor is not None else ()
    calls = (n for n in nodes if n.kind == "call" and n.count and n.label != words.NOT_NAMED)
    lines = [
        f"{n.label} · {f'{n.group}, ' if n.group else ''}{counted(n.count, 'rank')} in it"
        for n in sorted(calls, key=lambda n: -n.count)
    ]
    is_one = len(lines) == _CALLS + 1
    return words.first_of(lines, _CALLS, f"{{:,}} more {'is' if is_one else 'are'} pending")


def _why(document: Document, data: PageData) -> list[tuple[str, str, bool]]:
    """Return the deciding facts cut to fit: text, source, and whether it is a quoted line."""
    facts = reasons.deciding_facts(document.found)
    shown = [(cut(f.text, _FACT), words.cut_path(f.at, 60), f.kind in ("log", "exit")) for f in facts]
    story = data.story
    if shown or document.status != "inconclusive" or story is None or story.kind != "known":
        return shown
    first = story.parts[0]
    lines = first.lines[:2] if isinstance(first, Lines) and not first.kind else ()
    return [(cut(line, _FACT), "", False) for line in lines]


def _reasons(document: Document) -> list[str]:
    """Return why the confidence is what it is; where another explanation remains possible, which, and what would confirm it."""
    lines = list(document.confidence_why)
    for rival in document.hypotheses[1:2] if lines[:1] == [USUAL] else ():
        other = "another cause" if rival.cause == "unknown" else rival.cause
        lines[0] = f"{other} remains possible; to confirm: {rival.would_decide}"
    return [cut(line, _REASON) for line in lines[:2]]


def _merged(strip: StripData) -> StripData:
    moments = []
    for those in words.grouped((moment.at, moment) for moment in strip.moments).values():
        moments.append(replace(those[0], text="; ".join(cut(m.text, _MOMENT) for m in those)))
    return replace(strip, moments=tuple(moments))


def _moments(strip: StripData) -> list[tuple[str, str, str, str]]:
    """Return the points of the strip: kind, wall clock, what, and how long after the one before."""
    times = [int(moment.at) for moment in strip.moments]
    result = []
    for moment, at, before in zip(strip.moments, times, [*times[:1], *times], strict=False):
        is_close = sum(abs(at // 10**9 - other // 10**9) <= 1 for other in times) > 1  # itself, and another
        clock = words.utc(at, fine=bool(at % 10**9) and is_close, local=moment.local)
        gap = f"+{duration((at - before) / 1e9)}" if at - before >= 1e6 else ""
        result.append((moment.kind, clock, cut(moment.text, 2 * _MOMENT), gap))
    return result


def _cost(strip: StripData) -> str:
    if strip.stalled_s is None:
        return ""
    hours = strip.rank_hours or 0.0
    amount = f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 0.1 else ""
    return f"stalled for {duration(strip.stalled_s)}" + (f", {amount} GPU-hours" if amount else "")
