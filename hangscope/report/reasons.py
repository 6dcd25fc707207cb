"""Why this cause and not another: the facts that every output leads with.

The verdict says which evidence decides. If it does not, a fact that names a culprit comes first, then one of another kind; if no evidence names a culprit, the verdict's title does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import Evidence, Location
from hangscope.model.incident import on_group
from hangscope.model.rankset import agree, counted, ranks_phrase, spans
from hangscope.model.regex import regex
from hangscope.report.schema.document import Document, OutlierLine, VerdictPart
from hangscope.report.words import call_words, duration, listed, utc
from hangscope.verdict.claims import accounts_for

SHOWN = 2
_LOCATED, _HOSTS = 8, 4  # named ranks that are listed with their hosts; hosts
_NAMED = 16  # ranks of another explanation that are listed
_SPAN = r"\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?"
_RANKS = regex(rf"(?i)\brank(?:\s+(\d{{1,9}})|s\s+({_SPAN}(?:(?:, ?| and ){_SPAN})*))")


def deciding_facts(verdict: VerdictPart) -> tuple[Evidence, ...]:
    """Return the one or two facts that distinguish this cause from its rivals; at least one names a culprit."""
    ranks, speaking = verdict.culprit_ranks, [fact for fact in verdict.evidence if fact.stance == "for"]
    decisive = [verdict.evidence[i] for i in verdict.deciding if 0 <= i < len(verdict.evidence)]
    if not decisive and speaking:
        first = next((fact for fact in speaking if names(fact, ranks)), speaking[0])
        rest = [fact for fact in speaking if fact is not first]
        decisive = [first, *sorted(rest, key=lambda fact: fact.kind == first.kind)]
    facts = tuple(decisive[:SHOWN])
    if ranks and not any(names(fact, ranks) for fact in facts):
        return (Evidence("method", verdict.title, ranks[0]), *facts[: SHOWN - 1])
    return facts


def names(fact: Evidence, ranks: Sequence[int]) -> bool:
    """Return whether a fact is about one of these ranks."""
    return fact.rank in ranks or mentions(fact.text, ranks)


def mentions(text: str, ranks: Sequence[int]) -> bool:
    """Return whether text names one of these ranks: `rank 3`, `ranks 0-2, 5 and 7`, `ranks 0-1016:8`."""
    found = (one or several for one, several in _RANKS.findall(text))
    named = (span for ranks_said in found for span in spans(ranks_said.replace(" and ", ",")))
    return any(rank in span for span in named for rank in ranks)


def who(verdict: VerdictPart) -> str:
    """Return the named ranks, each with its host, GPU and PID as far as they are known."""
    if not verdict.culprit_ranks:
        return "no rank is named"
    if not verdict.culprits or len(verdict.culprit_ranks) > _LOCATED:
        return ranks_phrase(verdict.culprit_ranks)
    found = []
    for one in verdict.culprits:
        ids = (("on", one.host or None), ("GPU", one.device), ("PID", one.pid))
        known = ", ".join(f"{word} {value}" for word, value in ids if value is not None)
        found.append(f"rank {one.rank}" + (f" ({known})" if known else ""))
    return ", ".join(found)


def hosts(document: Document) -> str:
    """Return the hosts of a job of which no culprit's host is known: `gpu01, gpu02 and 3 more`; empty where none is, too."""
    if any(culprit.host for culprit in document.found.culprits):
        return ""
    return listed(sorted({rank.host for rank in document.ranks if rank.host}), _HOSTS)


def accounts(document: Document) -> str:
    """Return for how many blocked ranks the root cause accounts: `15 of 16 blocked ranks`; empty if for none, or if none is blocked any more."""
    explains = document.found.explains
    shown = explains.ranks and document.status != "no_hang"
    return accounts_for(explains.ranks, explains.of) if shown else ""


def own_place(verdict: VerdictPart) -> Location | None:
    """Return where the culprit is; None if that is only where the ranks wait of which none is named."""
    at, waiting = verdict.location, verdict.waiting_call
    frame = user_frame(waiting.frames) if waiting is not None else None
    if at is None or verdict.culprit_ranks or frame is None or (at.file, at.line) != (frame.file, frame.line):
        return at
    return None


def culprit_call(verdict: VerdictPart, several: bool = False) -> str:
    """Return what the culprit issued, or several: `is in barrier seq 9 on group 1 (tp)`, `issued ...` if that is not pending, or `last enqueued barrier seq 8 on that group`."""
    call = verdict.culprit_call
    if call is None or not call.op:
        return ""
    if call.completed or call.group is not None or verdict.group is None or call.seq == verdict.seq:
        verb = "issued" if call.completed else "are in" if several else "is in"
        return f"{verb} {call_words(call)}" + (f" {on_group(call.group)}" if call.group is not None else "")
    return f"last enqueued {call_words(call)} on that group"


def is_another_call(verdict: VerdictPart) -> bool:
    """Return whether the culprit's collective is known, and is not the one in which the others are."""
    call = verdict.culprit_call
    return call is not None and bool(call.op) and (call.op, call.seq) != (verdict.op, verdict.seq)


def of_library_call(verdict: VerdictPart) -> str:
    """Return which library call a verdict names, whose it is, and which collective it issues."""
    if not is_another_call(verdict):
        return "the library call that makes this collective"
    its = agree(verdict.culprit_ranks, "its", "their")
    whose = f" of {ranks_phrase(verdict.culprit_ranks)}" if verdict.culprit_ranks else ""
    return f"the library call{whose} that makes {its} own collective"


def other_facts(verdict: VerdictPart, stance: str = "for") -> tuple[Evidence, ...]:
    """Return the rest of the evidence of one stance."""
    first = deciding_facts(verdict)
    return tuple(fact for fact in verdict.evidence if fact.stance == stance and fact not in first)


def still_missing(verdict: VerdictPart, steps: Sequence[str]) -> tuple[Evidence, ...]:
    """Return what is missing and is not among the steps anyway."""
    return tuple(fact for fact in other_facts(verdict, "missing") if not says(steps, fact.text))


def outlier_lines(document: Document) -> list[OutlierLine]:
    """Return the lines that set ranks apart and that no piece of evidence quotes already."""
    known = " ".join(e.text for e in document.found.evidence)
    return [line for line in document.outlier_lines if line.text not in known]


def rivals(document: Document) -> list[tuple[str, str]]:
    """Return the other causes that remain possible, each with why, as it follows the name of the cause."""
    found = []
    for rival in document.hypotheses[1:]:
        who = f" of {ranks_phrase(rival.ranks)}" if 0 < len(rival.ranks) <= _NAMED else ""
        parts = [*rival.fits[:1], *(f"against it: {line}" for line in rival.contradicts[:1])]
        parts += [f"to confirm: {rival.would_decide}"] if rival.would_decide else []
        found.append((rival.cause, f"{who}: {'; '.join(parts)}"))
    return found or [(item.cause, f": {item.why}") for item in document.found.alternatives]


def confidence(document: Document) -> str:
    """Return how sure the verdict is, and why."""
    word, reasons = document.found.confidence, "; ".join(document.confidence_why)
    return f"{word} ({reasons})" if reasons else word


def read_words(document: Document) -> str:
    """Return what was read: `7 dumps, 8 logs`; empty where nothing was."""
    return ", ".join(counted(number, kind) for kind, number in document.sources.items() if number)


def size_words(document: Document) -> str:
    """Return the number of ranks: `8 ranks`, `at least 8 ranks` where no input states it; empty of a job without ranks."""
    if not document.world_size:
        return ""
    return f"{'' if document.world_size_known else 'at least '}{counted(document.world_size, 'rank')}"


def next_steps(document: Document) -> list[str]:
    """Return what to do next, each step once; for an inconclusive report, what to collect comes first."""
    wanted = [document.found.advice, document.missing]
    steps: list[str] = []
    for step in chain(*(wanted[::-1] if document.status == "inconclusive" else wanted)):
        if not says(steps, step):
            steps.append(step)
    return steps


def says(whole: Iterable[str], part: str) -> bool:
    """Return whether one of some texts holds another, whatever the case of its first letter."""
    return any(part.rstrip(".").lower() in text.lower() for text in whole)


def standstill(document: Document) -> str:
    """Return since when nothing moves, and for how long: `2026-11-20 15:13:24 UTC, for 3 min`; empty where no time is known, or the job goes on.

    Dumps count in UTC; the clock of a log may be in any time zone.
    """
    verdict = document.found
    if verdict.since is None or document.status == "no_hang":
        return ""
    seconds = (int(verdict.until) - int(verdict.since)) / 1e9 if verdict.until is not None else 0.0
    when = utc(int(verdict.since), local=not document.sources.get("dump"))
    return when + (f", for {duration(seconds)}" if seconds >= 1 else "")


def commands(document: Document) -> tuple[str, ...]:
    """Return what to run of a job that may still be running: a stack of each named process, on its host."""
    verdict, page = document.found, document.page
    has_ended = page is not None and page.strip is not None and page.strip.life == "ended"
    if verdict.cause not in CATALOG or not CATALOG[verdict.cause].stack_tells or has_ended:
        return ()
    known = [entry for entry in verdict.culprits if entry.pid is not None][:SHOWN]
    return tuple(f"{f'ssh {e.host} ' if e.host else ''}py-spy dump --pid {e.pid}" for e in known)
