"""One answer from all observations: what is shown, what it means, whom to look at, the one next thing to collect.

It is given where there are no dumps: what dumps show is told by the verdict itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hangscope.causes.case import Case
from hangscope.conclusion import Collect, Verdict
from hangscope.explain.text.stop import find_stop
from hangscope.regex import regex
from hangscope.verdict.answer import checks, counters, course, named, waits, watchers
from hangscope.verdict.answer.messages import messages
from hangscope.verdict.answer.observation import Observation
from hangscope.verdict.phrasing import EXPLANATION, SUMMARY, TITLE, as_sentence, fitting, sentence_case

Reader = Callable[[Case], Observation | None]

#: What is read, the most telling first.
READERS: tuple[Reader, ...] = (
    named.barrier, named.horovod, checks.mismatch, checks.analyzer, counters.desync, counters.counters, waits.timeouts, watchers.dump_signals, watchers.observed_only, watchers.heartbeats,
    watchers.engines, named.hccl, checks.warnings, named.store, named.announced,
)  # fmt: skip
#: What counts where none of these says anything.
LATER: tuple[Reader, ...] = (
    course.unfinished,
    course.exceptions,
    course.waiting_exceptions,
    course.interrupted,
)
_MOST = 3  # observations of one answer
_LEAST_ROOM = 60
_WORDS = regex(r"[\w.:]{4,}")


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
    return found


def answered(case: Case, verdict: Verdict) -> Verdict:
    """Return a verdict on a text without dumps with its explanation, its suspects and what to collect, in an expert's order."""
    seen = observations(case)
    proved = verdict.cause != "unknown" or any(s.proves for s in seen)
    # A stop that no reader here reads is told by the verdict's own summary.
    own = verdict.cause != "unknown" or (
        not any(s.proves for s in seen) and find_stop(case.statements) is not None
    )
    if not seen and not own and (last := course.last_line(case, proved)) is not None:
        seen = [last]
    if not seen and not own:
        return verdict
    main = seen[0] if seen else Observation("")
    nexts = _nexts(verdict, seen, own)
    shown = [s.shows for s in seen[:_MOST]]
    facts = [verdict.summary, *_new(shown, verdict)] if own else shown
    means = [] if own and verdict.culprit_ranks and not main.means else [main.means]
    tail = [*means, *(f"Next: {item.text}" for item in nexts[:1])]
    if own and (not nexts or not main.next):
        tail = [*means, *verdict.advice[:1]]
    suspects = (verdict.suspect_ranks if own else ()) or main.suspects
    steps = [*(verdict.advice if own else ()), *(sentence_case(item.text) for item in nexts)]
    if not _pasted(case):  # a job's own folder: what was not recorded can be recorded next time
        nexts = [*nexts, *verdict.collect]
        steps = [*steps[:2], *(text for text in verdict.advice if text not in steps)]
    summary = verdict.summary if own else as_sentence(fitting([main.shows], SUMMARY - 1))
    return replace(
        verdict,
        summary=summary,
        title=verdict.title if own else sentence_case(fitting([main.shows], TITLE)),
        explanation=_paragraph([_course(case, facts)], facts, tail),
        suspect_ranks=tuple(sorted({*verdict.culprit_ranks, *suspects})),
        collect=nexts or verdict.collect,
        advice=steps[:3],
    )


def _pasted(case: Case) -> bool:
    """Return whether the text is one excerpt, and not what a job left in files of its own."""
    return len({e.file for events in case.statements.kinds.values() for e in events}) < 2


def _course(case: Case, facts: Sequence[str]) -> str:
    """Return how far the job was, unless a fact quotes the same line."""
    told = course.course(case)
    quoted = told.partition("'")[2].rstrip("'")
    return "" if quoted and any(quoted in fact for fact in facts) else told


def _nexts(verdict: Verdict, seen: Sequence[Observation], own: bool) -> list[Collect]:
    """Return what to collect, the most useful first, each once."""
    found: dict[str, Collect] = {}
    for item in (s.next for s in seen):
        if item is not None:
            found.setdefault(item.text, item)
    if own and verdict.culprit_ranks and not found:
        return [*verdict.collect]
    return list(found.values())[:3]


def _new(shown: Sequence[str], verdict: Verdict) -> Iterator[str]:
    """Yield what is shown beyond the verdict's own summary: more than half of its words are new."""
    known = set(_WORDS.findall(verdict.summary.lower()))
    for text in shown:
        words = set(_WORDS.findall(text.lower()))
        if 2 * len(words - known) > len(words):
            yield text


def _paragraph(before: Sequence[str], facts: Sequence[str], tail: Sequence[str]) -> str:
    """Return the sentences in their order, in the length of an explanation: the later facts go first, then what comes before."""
    end = " ".join(map(as_sentence, filter(None, tail)))
    room = EXPLANATION - len(end) - 1
    head = fitting(map(as_sentence, filter(None, facts[:1])), max(room, _LEAST_ROOM), " ")
    rest = [as_sentence(text) for text in (*filter(None, before), *filter(None, facts[1:]))]
    kept: list[str] = []
    for text in rest:
        if len(" ".join([head, *kept, text])) <= room:
            kept.append(text)
    lead = [text for text in kept if text in {as_sentence(b) for b in before if b}]
    return fitting([" ".join([*lead, head, *(text for text in kept if text not in lead), end])], EXPLANATION)
