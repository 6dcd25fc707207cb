"""A verdict in plain sentences: its title, its summary and its explanation, each within its maximal length.

A verdict consists of facts (`claims.py`); this module puts the sentences together. A part that does not fit is dropped
completely, the last first, so that no sentence ends in the middle. Helpers for new sentences: `rankset.ranks_phrase` and
`rankset.agree` for ranks and their verbs, `as_sentence` for the capital and the full stop, `fitting` for a limit.

`worded(verdict, act, blocked)` makes all three texts. To say more in an explanation, put the fact first among the verdict's
`deciding` evidence (its text is quoted), or the next step first in `collect`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import Evidence, Verdict
from hangscope.model.rankset import ranks_phrase, spans
from hangscope.model.regex import regex
from hangscope.verdict.claims import Act

TITLE, SUMMARY, EXPLANATION = 80, 240, 900
_SHOWN = 190  # of a quoted fact
_SLACK = 24  # characters that it is not worth to leave out
_BUILT_AT = regex(r"\[/\S{1,200}\.(?:cc|cpp|h):\d{1,6}\] ")  # where torch's sources were when it was built
#: gloo/transport/tcp/pair.cc
_NO_NEWS = regex(r" This is typically caused by a remote worker (?:crashing|hanging).*$")
_NO_TITLE = 12  # characters that say nothing yet
_BREAK = regex(r"[;.:,] | (?:while|in the|at|between|of group|of the groups|on group|on host) ")
#: What no cut may remove, where a cut would break a list or a clause, and what may not end a text.
_CONTRAST = regex(r", (?:the others?|a peer)\b| while (?:the others|a peer|ranks? [\d, and-]{1,80}) called\b")
_LISTED = regex(r", \d|, \S{1,60}(?:, \S{1,60}){0,16} and | at (?!\S{0,200}[.:\d])")
_DANGLING = regex(
    r"(?:[:;] ranks? [\d,\- and]{1,80}|\b(?:is|are|was|were|has|have|been|not|called|the others?))$"
)
_SOURCE = regex(r"\A[Aa]ccording to [^,]{1,80}, ")
_SENTENCE, _CLAUSE = regex(r"; |\. (?=[A-Z])"), regex(r"; |: |\. (?=[A-Z])")
#: What a text that is too long leaves out first: sizes of tensors, then remarks in parentheses, at last lines of code.
_LESS = (
    regex(r"\((?:\[[\d, ]*\][, ]*)+\w*\)"), regex(r" \((?![\w./<>-]+:\d+\))[^()]*\)"), regex(r" \([^()\s]+:\d+\)"),
)  # fmt: skip
_PLACED = regex(r"(?:\(| at )[^()\s]+:\d+")
_OPENED, _CLOSED = regex(r"(?:^|[\s(])'"), regex(r"(?<=\S)'(?!\w)")
_WORDS = regex(r"\w[\w.:]{2,80}\w")
_RANGE = r"\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?"
_MANY_RANKS = regex(rf"\b[Rr]anks ({_RANGE}(?:, {_RANGE}){{4,4000}} and {_RANGE})")
_NO_CAUSE, _QUOTED = "the logs do not show the cause", "; the summary quotes the most relevant line"
_FEW = 16  # suspects that a title lists
_QUOTING = regex(r" is '[^']{24,}")
_IF = regex(r"\Aonly if ([^:]+): (.+)")
#: With which verb a step begins, by what is wanted.
_VERBS = (
    (regex(r"(?:on every node )?(?:whether|how|what|which|why|where) "), "Find out"),
    (regex(r"a (?:rerun|run|start) |the same run "), "Try"),
    (regex(r"(?:kubectl|df|ldd|dmesg|cat|\w{1,6}-smi|ray status|nvidia-bug-report\.sh)\b"), "Run"),
)
_NOUN = regex(r"(?<![A-Z])[A-Z]{1,40}_[A-Z_]{1,80}\b")  # a variable that is set
PROGRAMS = frozenset({"srun", "mpirun", "torchrun", "wandb", "kubectl", "systemd", "glibc"})
_JOINTS = " ,;:(-"
_LEADING_ON = ("in", "at", "of", "on", "to", "from", "and", "or", "the", "a", "an", "with", "for", "by")
_PREFIX = regex(r"^(?:\[[^\]]{1,90}\]:?\s*)+")


def worded(verdict: Verdict, act: Act, blocked: str) -> Verdict:
    """Return a verdict with its title, its summary and its explanation."""
    claim = sentence_case(act.phrase().rstrip("."))
    summary = fitting([claim, blocked], SUMMARY - 1).rstrip(" ,;:") + "."
    found = replace(verdict, title=title(verdict, act), summary=summary)
    return replace(found, explanation=explanation(found, claim, blocked))


def title(verdict: Verdict, act: Act) -> str:
    """Return who did what and where, in at most 80 characters: `Rank 3 skipped all_reduce (train.py:87)`."""
    claim = sentence_case(act.what.rstrip("."))
    place = act.place if not _PLACED.search(claim) else ""
    for end in (place, ""):
        if short := condensed(claim, TITLE - len(end)):
            return short + end
    short = clauses(claim, TITLE)
    if not short.endswith("…"):
        return short + place if len(short) + len(place) <= TITLE and not _PLACED.search(short) else short
    who, did = ranks_phrase(verdict.culprit_ranks), CATALOG[verdict.cause].act
    if verdict.culprit_ranks and len(who) + len(did) < TITLE:
        return sentence_case(f"{who} {did}" if did else f"{who}: {CATALOG[verdict.cause].title}")
    return sentence_case(CATALOG[verdict.cause].title)


def retitled(verdict: Verdict) -> Verdict:
    """Return a verdict whose title is a complete clause: a title that breaks off or quotes a long line is replaced."""
    if not (verdict.title.endswith("…") or _broken(verdict.title) or _QUOTING.search(verdict.title)):
        return verdict
    known = CATALOG[verdict.cause].title
    if verdict.cause == "unknown":
        suspected = bool(verdict.suspect_ranks) and len(verdict.suspect_ranks) < _FEW
        among = f"; suspected: {ranks_phrase(verdict.suspect_ranks)}" if suspected else ""
        known = _NO_CAUSE + (_QUOTED if _OPENED.search(verdict.summary) else among)
    return replace(verdict, title=sentence_case(known))


def in_the_imperative(verdict: Verdict) -> Verdict:
    """Return a verdict whose steps begin with a verb, where they name only what is wanted: `the logs of rank 2`."""
    wanted = {sentence_case(item.text): imperative(item.text) for item in verdict.collect}
    collect = [replace(item, text=imperative(item.text)) for item in verdict.collect]
    return replace(verdict, collect=collect, advice=[wanted.get(step, step) for step in verdict.advice])


def imperative(wanted: str) -> str:
    """Return what is wanted as a step: `Collect the logs of rank 2`, `Find out whether …`; a step stays as it is."""
    if not wanted[:1].islower() and not _NOUN.match(wanted):
        return wanted
    if only := _IF.match(wanted):
        return f"If {only[1]}, collect {only[2]}"
    verb = next((verb for pattern, verb in _VERBS if pattern.match(wanted)), "Collect")
    return f"{verb} {wanted}"


def explanation(verdict: Verdict, claim: str, blocked: str) -> str:
    """Return what the evidence shows, what that means and what to do next, in at most 900 characters."""
    shown = (verdict.evidence[i] for i in verdict.deciding[:2])
    steps = [*(item.text for item in verdict.collect[:1] if verdict.confidence == "low"), *verdict.advice[:1]]
    known = words(" ".join((claim, blocked, *steps[:1])))
    facts = [cited(fact) for fact in shown if adds(without_prefix(fact.text), known)]
    start = fitting([claim, blocked], EXPLANATION // 2)
    return fitting(map(as_sentence, (start, *facts, *suspects(verdict), *steps[:1])), EXPLANATION, " ")


def words(text: str) -> set[str]:
    """Return the words of a text by which it is compared with others."""
    return set(_WORDS.findall(text.lower()))


def adds(text: str, known: set[str]) -> bool:
    """Return whether at least half of the words of a text are new."""
    own = words(text)
    return 2 * len(own - known) >= max(1, len(own))


def suspects(verdict: Verdict) -> list[str]:
    """Return the suspects as a sentence if no rank is named for certain, else nothing."""
    others = [r for r in verdict.suspect_ranks if r not in verdict.culprit_ranks]
    if len(verdict.suspect_ranks) == 1 and others:
        return [f"The first rank to look at is {others[0]}"]
    if not others or len(verdict.suspect_ranks) > max(8, len(verdict.waiting_ranks)):
        return []
    return [f"The suspects are {ranks_phrase(verdict.suspect_ranks)}"]


def without_prefix(line: str) -> str:
    """Return a line without the parts in brackets that begin it."""
    return _PREFIX.sub("", line) or line


def short(text: str, limit: int = 170, end: int = 2) -> str:
    """Return a text on one line, without the middle of one that is too long; its end has one part in `end` of what remains.

    Where torch was built, and what gloo says of any lost connection, is no news.
    """
    text = _NO_NEWS.sub("", _BUILT_AT.sub("", " ".join(text.split())))
    if len(text) <= limit + _SLACK:
        return text
    tail = text[-(limit // end) :].partition(" ")[2]
    head = text[: limit - limit // end]
    words = head.rsplit(" ", 1)[0]
    head = words if 2 * len(words) > len(head) else head
    return f"{head} … {tail}" if tail else text[: limit - 1] + "…"


def cited(fact: Evidence) -> str:
    """Return a fact as short as an explanation quotes it, on one line; a line of a file with who printed it."""
    line = " ".join(fact.text.split())
    line = without_prefix(line) if fact.quoted else line
    line = short(line, _SHOWN, end=4)
    whose = f"rank {fact.rank}" if fact.rank is not None else "the log"
    says = f"a line about {whose} says" if fact.kind == "exit" else f"{whose} reports"
    return f'{says}: "{line}"' if fact.quoted else line


def fitting(parts: Iterable[str], limit: int, joint: str = "; ") -> str:
    """Return the parts joined, without those that no longer fit; the first is shortened to the clauses that fit."""
    found = ""
    for part in filter(None, parts):
        longer = f"{found}{joint}{part}" if found else clauses(part, limit)
        found = longer if len(longer) <= limit else found
    return found


def clauses(text: str, limit: int) -> str:
    """Return a text that fits: condensed, or cut before one of its clauses, else between two words, with a mark."""
    if short := condensed(text, limit):
        return short
    for detail in (_SOURCE, *_LESS[:-1]):
        text = detail.sub("", _counted(text))
    ends = (end for end in range(_NO_TITLE, limit) if _BREAK.match(text, end))
    whole = [n for n in ends if not (_broken(text[:n]) or _cut_off(text, n))]
    return _ended(text[: max(whole)]) if whole else text[: limit - 1].rsplit(" ", 1)[0] + "…"


def _cut_off(text: str, end: int) -> bool:
    """Return whether a cut at `end` leaves the begin of a list or of a clause, or removes what the others did."""
    rest = _CLAUSE.split(text[end:], 1)[0]
    return bool(_LISTED.match(rest) or _CONTRAST.search(rest) or _DANGLING.search(text[:end]))


def _ended(text: str) -> str:
    """Return a text without the words and marks at its end that lead on to more."""
    text = text.rstrip(_JOINTS)
    while text.rpartition(" ")[2] in _LEADING_ON:
        text = text.rpartition(" ")[0].rstrip(_JOINTS)
    return text


def condensed(text: str, limit: int) -> str:
    """Return a text, or its first clause, with as few details dropped as possible so that it fits; empty if it does not."""
    head = _SENTENCE.split(text, 1)[0]
    shorter = [text, text if _broken(head) else head]
    shorter.append(_SOURCE.sub("", shorter[-1]))
    for detail in _LESS:
        shorter.append(detail.sub("", shorter[-1]))
        shorter.append(shorter[-1].replace(" while the others called ", ", the others "))
        shorter.append(shorter[-1].replace(", the others with ", ", the others "))
    shorter.append(_counted(shorter[-1]))
    return next((short for short in shorter if len(short) <= limit), "")


def _counted(text: str) -> str:
    """Return a text with the number of ranks in place of a long list of them."""
    return str(_MANY_RANKS.sub(lambda m: f"{sum(map(len, spans(m[1].replace(' and ', ',')))):,} ranks", text))


def _broken(text: str) -> bool:
    """Return whether text ends inside of brackets or a quotation; an apostrophe is none."""
    quotes = len(_OPENED.findall(text)) > len(_CLOSED.findall(text)) or text.count('"') % 2 == 1
    return quotes or any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))


def sentence_case(text: str) -> str:
    """Return a text that begins with a capital, unless its first word is a name of code."""
    word = text.split(" ")[0].rstrip(",.;:'").removesuffix("'s")
    named = word in PROGRAMS or word != word.lower()
    return text if named or not word.isalpha() else text[:1].upper() + text[1:]


def as_sentence(text: str) -> str:
    """Return a text as a sentence, with a capital and a full stop."""
    text = sentence_case(text.strip())
    return text if text.rstrip("\"')").endswith((".", "!", "?", "…")) else text + "."
