"""Why this cause and not another: the facts that every output leads with.

The verdict says which of its evidence decides. Where it does not, the facts that name a culprit come first, and one of
another kind after them; a verdict whose evidence names no culprit gets the sentence that its calls make.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.conclusion import CallRef, Evidence, Hypothesis
from hangscope.frames import Frame
from hangscope.knowledge.callsite import is_user
from hangscope.rankset import ranks_phrase
from hangscope.regex import regex
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.words import call_words, counted, duration, sizes_words, utc

SHOWN = 2
_RANKS = regex(r"(?i)\branks?\s+(\d{1,9}(?:[-:]\d{1,9})*(?:,\d{1,9}(?:[-:]\d{1,9})*)*(?: and \d{1,9})?)")
_SPAN = regex(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def deciding_facts(verdict: VerdictPart) -> tuple[Evidence, ...]:
    """Return the one or two facts that tell this cause from its rivals; of named ranks at least one names one."""
    told = tuple(verdict.evidence[i] for i in verdict.deciding if 0 <= i < len(verdict.evidence))
    facts = told[:SHOWN] or _derived(verdict)
    if verdict.culprit_ranks and not any(names(fact, verdict.culprit_ranks) for fact in facts):
        facts = (_sentence(verdict), *facts[: SHOWN - 1])
    return facts


def names(fact: Evidence, ranks: Sequence[int]) -> bool:
    """Return whether a fact speaks of one of these ranks."""
    return fact.rank in ranks or mentions(fact.text, ranks)


def mentions(text: str, ranks: Sequence[int]) -> bool:
    """Return whether text names one of these ranks: `rank 3`, `ranks 0-2,5`, `ranks 0-1016:8`."""
    for found in _RANKS.finditer(text):
        for span in _SPAN.finditer(found[1]):
            first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
            if any(first <= rank <= last and (rank - first) % max(1, step) == 0 for rank in ranks):
                return True
    return False


def _derived(verdict: VerdictPart) -> tuple[Evidence, ...]:
    speaking = [fact for fact in verdict.evidence if fact.stance == "for"]
    if not speaking:
        return ()
    first = next((f for f in speaking if names(f, verdict.culprit_ranks)), speaking[0])
    rest = [f for f in speaking if f is not first]
    second = next((f for f in rest if f.kind != first.kind), rest[0] if rest else None)
    return (first,) if second is None else (first, second)


def _sentence(verdict: VerdictPart) -> Evidence:
    who = ranks_phrase(verdict.culprit_ranks)
    call, waiting = verdict.culprit_call, verdict.waiting_call
    others = ranks_phrase(verdict.in_call or verdict.waiting_ranks) if verdict.waiting_ranks else "the others"
    stuck = call_words(waiting) if waiting is not None else verdict.op or "call"
    if verdict.cause == "slow_rank":
        text = f"{who} came when the timeout of {others} was over"
    elif verdict.cause == "init_hang":
        text = (
            f"{who} did not join; {others} {'waits' if len(verdict.waiting_ranks) == 1 else 'wait'} for that"
        )
    elif call is None:
        text = f"{who} {'is' if len(verdict.culprit_ranks) == 1 else 'are'} not in the {stuck} that {others} wait in"
    elif call.group is not None:
        text = f"{who}: {call_words(call)} on group {call.group}, while {others} wait in {stuck}"
    elif call.seq == verdict.seq and call.op == verdict.op:
        text = f"{who}: {call_words(call)}{_arguments(call)}, as {others}{_arguments(waiting)}"
    elif call.seq == verdict.seq:
        text = f"{who}: {call_words(call)}, where {others} made {stuck}"
    else:
        text = f"{who}: last call on that group {call_words(call)}, while {others} wait in {stuck}"
    return Evidence("method", text, verdict.culprit_ranks[0])


def _arguments(call: CallRef | None) -> str:
    if call is None:
        return ""
    text = sizes_words(call.sizes, call.dtypes)
    return f" {text}" if text else ""


def other_facts(verdict: VerdictPart, stance: str = "for") -> tuple[Evidence, ...]:
    """Return the rest of the evidence of one stance."""
    first = deciding_facts(verdict)
    return tuple(fact for fact in verdict.evidence if fact.stance == stance and fact not in first)


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the deepest frame of user code, or None."""
    return next(filter(is_user, frames), None)


def weighed(document: Document) -> list[Hypothesis]:
    """Return the other explanations that were weighed, of which something tells why they are not the best."""
    return [h for h in document.hypotheses[1:] if h.would_decide or h.contradicts]


def read_words(document: Document) -> str:
    """Return what was read: `7 dumps, 8 logs`; empty where nothing was."""
    return ", ".join(counted(number, kind) for kind, number in document.sources.items() if number)


def standstill(verdict: VerdictPart) -> str:
    """Return since when nothing moves, and for how long: `2026-11-20 15:13:24 UTC, for 3 min`; empty where no time is known."""
    if verdict.since is None:
        return ""
    stood = (int(verdict.until) - int(verdict.since)) / 1e9 if verdict.until is not None else 0.0
    return utc(int(verdict.since)) + (f", for {duration(stood)}" if stood >= 1 else "")
