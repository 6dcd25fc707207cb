"""One answer from all observations: what is shown, what it means, whom to look at, the one next thing to collect.

It is given where there are no dumps: what dumps show is told by the verdict itself. One voice speaks: where the verdict names a
cause, other lines add facts, and only what was read from the lines that it rests on may say what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hangscope.causes.case import Case
from hangscope.explain.text.stop import find_stop
from hangscope.model.conclusion import Collect, Verdict
from hangscope.model.regex import regex
from hangscope.verdict.answer import (
    checks,
    counters,
    course,
    ends,
    named,
    places,
    sides,
    telling,
    waits,
    watchers,
)
from hangscope.verdict.answer.messages import messages
from hangscope.verdict.answer.observation import Observation
from hangscope.verdict.phrasing import EXPLANATION, SUMMARY, TITLE, as_sentence, cited, fitting, sentence_case

Reader = Callable[[Case], Observation | None]

#: What is read, the most telling first.
READERS: tuple[Reader, ...] = (
    ends.process, ends.crash, course.unfinished, ends.outside, places.stacks, sides.sides, places.held, named.barrier, named.horovod, checks.mismatch, checks.analyzer, counters.desync, counters.counters,
    waits.timeouts, watchers.dump_signals, watchers.heartbeats, watchers.engines, named.hccl, checks.warnings, waits.failed,
    named.store, named.announced,
)  # fmt: skip
#: What counts where none of these says anything.
LATER: tuple[Reader, ...] = (
    places.of_no_rank,
    course.exceptions,
    course.waiting_exceptions,
    course.interrupted,
    course.over,
    watchers.gpus,
)
_DEFAULT = " of group 0 (default_pg)"  # is meant where a title names no group
_MOST = 3  # observations of one answer
_ENDS = frozenset({"crashed_rank", "init_hang", "gpu_stall"})  # of which no recorder tells more
#: Causes that say no more than who; the others say why.
_WHO = frozenset(
    {"crashed_rank", "gpu_stall", "init_hang", "network_stall", "slow_rank", "stuck_rank", "unknown"}
)
_LEAST_ROOM = 60
_KNOWN_BY = 30  # characters at the end of a line
_WORDS = regex(r"\w[\w.:]{2,80}\w")


def observations(case: Case) -> list[Observation]:
    """Return what the text shows, the most telling first."""
    found = [seen for read in READERS if (seen := read(case)) is not None]
    known = [*messages(case)]
    faults = [seen for entry, seen in known if not entry.benign and not entry.follows]
    found = [*(s for s in faults if s.blamed), *found, *(s for s in faults if not s.blamed)]
    later = [seen for read in LATER if (seen := read(case)) is not None]
    found += [seen for seen in later if not (found and seen.proves)]
    found += [seen for entry, seen in known if entry.follows]
    found += [seen for entry, seen in known if entry.benign and seen.means]
    moving = course.moving(case)
    if moving is None:
        return found
    if any(s.proves for s in found) and find_stop(case.statements) is not None:
        return [*found, moving]
    slow = [s for s in found if s.suspects and not s.proves]  # who holds up a job that moves
    return [*slow, moving, *(s for s in found if s not in slow)]


def answered(case: Case, verdict: Verdict) -> Verdict:
    """Return a verdict on a text without dumps with its explanation, its suspects and what to collect, in an expert's order."""
    seen = observations(case)
    if verdict.cause != "unknown":
        return _completed(case, verdict, seen)
    # A stop that no reader here reads is told by the verdict's own summary.
    if not any(s.proves for s in seen) and find_stop(case.statements) is not None:
        return _completed(case, verdict, seen)
    if not any(s.means or s.next for s in seen) and not case.stacks:
        told, last = telling.main(case), course.last_line(case)
        if told is not None and last is not None and not told.means:
            told = replace(told, means=last.means, next=last.next)
        seen = [s for s in (told or last,) if s is not None]
    # Where ranks stood adds to an answer, and is none by itself.
    return _told(case, verdict, seen) if any(s.means or s.next for s in seen) else verdict


def _told(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> Verdict:
    """Return the answer to a text that establishes no cause: its most telling lines speak."""
    main = next(s for s in seen if s.means or s.next)
    nexts = _nexts(case, seen if any(s.proves for s in seen) else [main])
    facts = [main.shows, *(s.shows for s in seen if s is not main)][:_MOST]
    if not main.suspects and (roll := telling.roll(case, main.shows)):
        facts.append(roll)
    step = next((f"Next: {item.text}" for item in nexts), "")
    steps = [sentence_case(item.text) for item in nexts]
    if not _pasted(case):  # a job's own folder: what was not recorded can be recorded next time
        nexts = [*nexts, *verdict.collect]
        steps = [*steps[:2], *(text for text in verdict.advice if text not in steps)]
    return replace(
        verdict,
        **_headed(main.shows),
        explanation=_paragraph(case, facts, main.means, step, seen),
        suspect_ranks=tuple(sorted({*verdict.culprit_ranks, *main.suspects})),
        collect=nexts or verdict.collect,
        advice=steps[:3],
    )


def _completed(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> Verdict:
    """Return a verdict that speaks for itself, with the facts of other lines beside it."""
    deciding = [verdict.evidence[i] for i in verdict.deciding]
    at = {(f.source.file, f.source.line): f for f in deciding if f.source is not None and f.source.line}
    lines, culprits = at.keys(), verdict.culprit_ranks
    low = verdict.confidence == "low"
    its = [s for s in seen if s.reads(lines) or _is_of(s, verdict)]
    # Who is named for silence alone is not accused: the lines that were printed speak.
    proved = any(s.proves for s in seen)
    unheard = low and proved and bool(culprits) and not any(map(case.statements.of_rank.get, culprits))
    if not its and (unheard or (not culprits and (not lines or verdict.category == "external"))):
        its = [s for s in seen if s.proves]  # it rests on several lines together, or tells of the end alone
    main = next((s for s in its if s.means or s.next), its[0] if its else Observation(""))
    # What names the same ranks by its own numbers says more than the claim.
    names = main.blamed and main.suspects == culprits and bool(culprits or main.reads(lines))
    names = names and verdict.cause in _WHO
    several = (
        not lines and not culprits and bool(main.shows) and verdict.cause in _WHO
    )  # then the lines say what the claim sums up
    told = names or several or unheard or _covers(main.shows, verdict.summary)
    claim = [] if told else [verdict.summary]
    shown = [main.shows, *(s.shows for s in (*its, *seen) if s is not main)]
    if not its:  # the lines that decide speak for themselves, numbers and all
        shown = [*telling.before(case, lines), *(cited(f) for f in at.values() if f.quoted), *shown]
    facts = [*claim, *_new(shown, " ".join(claim))][: _MOST + 1]
    nexts, means = _nexts(case, its), main.means
    vague = bool(main.next) or (not means and "".join(verdict.advice[:1]).startswith("Fix the "))
    topic = (telling.cause(case) or telling.topic_of(main.shows)) if not nexts and vague else None
    if topic is not None and topic.name != telling.PROGRAM:
        means, nexts = means or topic.means, [Collect(culprits, "log", topic.collect)]
    step = f"Next: {nexts[0].text}" if nexts else "".join(verdict.advice[:1])
    steps = [sentence_case(nexts[0].text)] if nexts else [*verdict.advice[:2]]
    if not _pasted(case):
        nexts = [*nexts, *verdict.collect]
        steps = [*steps, *verdict.advice]
    elif low and not nexts and verdict.cause not in _ENDS:
        nexts = [*verdict.collect]
    return replace(
        verdict,
        **(_headed(main.shows) if told and (unheard or not culprits) else {}),
        explanation=_paragraph(case, facts, means, step, seen, lines),
        suspect_ranks=tuple(sorted({*culprits, *verdict.suspect_ranks, *main.suspects})),
        collect=nexts,
        advice=list(dict.fromkeys(steps))[:3],
    )


def _headed(shows: str) -> dict[str, Any]:
    """Return a summary and a title of what lines show."""
    title = sentence_case(fitting([shows.replace(_DEFAULT, "")], TITLE))
    return {"summary": as_sentence(fitting([shows], SUMMARY - 1)), "title": title}


def _is_of(seen: Observation, verdict: Verdict) -> bool:
    """Return whether lines name the ranks of a verdict, or establish its cause where it names nobody."""
    if not verdict.culprit_ranks:
        return bool(seen.cause) and seen.cause == verdict.cause
    sure = seen.blamed or verdict.confidence == "low"  # who is left over is told by a doubtful verdict alone
    return seen.suspects == verdict.culprit_ranks and sure


def _pasted(case: Case) -> bool:
    """Return whether the text is one excerpt, and not what a job left in files of its own."""
    return len({e.file for events in case.statements.kinds.values() for e in events}) < 2


def _course(case: Case, facts: Sequence[str]) -> str:
    """Return how far the job was, unless a fact quotes the same line."""
    told = course.course(case)
    quoted = told.partition("'")[2].rstrip("'…")[-_KNOWN_BY:]
    return "" if quoted and any(quoted in fact for fact in facts) else told


def _nexts(case: Case, seen: Sequence[Observation]) -> list[Collect]:
    """Return what to collect, the most useful first, each once, and nothing that is in the text."""
    present = telling.present(case)
    found: dict[str, Collect] = {}
    for item in (s.next for s in seen):
        if item is not None and (text := telling.without(item.text, present) if present else item.text):
            found.setdefault(text, replace(item, text=text))
    return [*found.values()][:3]


def _covers(text: str, other: str) -> bool:
    """Return whether a text holds nearly all of another one's words."""
    words = set(_WORDS.findall(other.lower()))
    return bool(text) and 4 * len(words - set(_WORDS.findall(text.lower()))) <= len(words)


def _new(shown: Sequence[str], known: str) -> Iterator[str]:
    """Yield what is shown beyond what is known: more than half of its words are new."""
    seen = set(_WORDS.findall(known.lower()))
    for text in shown:
        words = set(_WORDS.findall(text.lower()))
        if 2 * len(words - seen) > len(words):
            seen |= words
            yield text


def _paragraph(
    case: Case,
    facts: Sequence[str],
    means: str,
    step: str,
    seen: Sequence[Observation],
    read: Collection[tuple[str, int]] = (),
) -> str:
    """Return the sentences in their order, in the length of an explanation: what is less telling is left out where it does not fit."""
    after, end = (as_sentence(text) if text else "" for text in (means, step))
    room = EXPLANATION - len(after) - len(end) - 2
    first, *rest = [as_sentence(text) for text in facts if text] or [""]
    kept = [fitting([first], max(room, _LEAST_ROOM), " ")]
    lines = {*read, *((e.file, e.line) for s in seen if s.shows in facts for e in s.events)}
    far = _course(case, facts)
    told = " ".join((*facts, far, means, step))
    unsaid = telling.unsaid(case, told, lines) if _pasted(case) else ()
    for text in (*rest, far, *unsaid):
        if text and len(" ".join([*kept, as_sentence(text)])) <= room:
            kept.append(as_sentence(text))
    return fitting([" ".join(filter(None, [*kept, after, end]))], EXPLANATION)
