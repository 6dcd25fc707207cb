"""What a text shows beyond the lines that parsers know: its errors, its waits, its bars, and which ranks printed a line that others did not.

It is the answer where nothing else is, and adds what is still unsaid to any other one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from hangscope.causes.case import Case
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.line_groups import BAR, ERROR, OTHER, WAIT, LineGroup
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.model.conclusion import Collect
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.model.tables import entries
from hangscope.verdict.answer.observation import Observation, clock, lasted, others_of
from hangscope.verdict.status import trouble

PROGRAM = "program"  # the topic of errors whose tracebacks say more
_QUOTED = 150  # characters of a line
_MOST = 2  # lines that are added to another answer
_FEW_WORDS = 40  # characters of a line by which it is known again
_GAPS = 3  # ranks that print for each one that does not
_ABOVE = 12  # lines
_FEW = 2  # times that are not worth a word
_LONG = 30  # seconds between the first and the last of lines that are alike
_ASKS = {"kernel log": regex(r"kernel log|dmesg"), "pip list": regex(r"pip list")}
_BUILD = regex(r"[-_]cu\d{1,3}$")
_JOINTS = regex(r"(; |, and |, | and |\. )")
_LOOSE = regex(r"^(?:[;,. ]|and )+|(?:[;, ]| and)+$")
_WORDS = regex(r"\w[\w.:]{2,80}\w")
#: What a message says of its possible reasons: no fact, and no hint that others are excluded.
_HEDGED = regex(
    r"(?i)\b(?:likely|possibly|probably|perhaps|maybe|may be|might be|could be|can be|e\.g\.|for example|such as|please (?:check|make sure|ensure)|make sure|if (?:you|the|this|it))(?:\b|(?<=\.))(?:[^.;\n]|\.(?! [A-Z]|$)){0,200}"
)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a line of trouble is about. `witness`: its writer noticed what happened to another process."""

    name: str
    words: re.Pattern[str]
    means: str
    collect: str
    witness: bool = False


@cache
def topics() -> tuple[Topic, ...]:
    """Return the topics, causes first."""
    return tuple(Topic(**{**t, "words": regex(t["words"])}) for t in entries("stages/topics.toml", "topic"))


def topic_of(text: str) -> Topic | None:
    """Return what a line is about by what it states, None where none of its words is known; what it calls possible is no statement."""
    said = _HEDGED.sub("", text)
    return next((topic for topic in topics() if topic.words.search(said)), None)


def groups(case: Case, *kinds: str) -> list[tuple[str, LineGroup]]:
    """Return (file, lines that are alike) of these kinds, or of all, in the order of the text."""
    return [
        (e.file, g) for e in case.statements.all(Excerpt) for g in e.groups if not kinds or g.kind in kinds
    ]


def main(case: Case) -> Observation | None:
    """Read the errors of a text of which no line is known: the first that tells a cause, else the first of all; then its last wait."""
    errors = [g for _, g in groups(case, ERROR)]
    about = {id(g): topic_of(g.text) for g in errors}
    first = min(errors, key=lambda g: _weight(about[id(g)]), default=None)
    wait = next((g for _, g in reversed(groups(case, WAIT))), None)
    if first is None and wait is None:
        return None
    parts = [f"the text reports {_said(first)}"] if first is not None else []
    later = [g for g in errors if g is not first and about[id(g)] is not None]
    other = max(later, key=lambda g: g.count, default=None)
    parts += [_said(other)] if other is not None else []
    parts += [_said(wait)] if wait is not None and other is None else []
    topic = about[id(first)] if first is not None else topic_of(wait.text if wait is not None else "")
    topic = topic or (about[id(other)] if other is not None else None)
    shows = "; ".join(parts)
    if topic is None:
        return Observation(shows) if first is not None else Observation(f"it is still waiting: {shows}")
    return Observation(shows, topic.means, Collect((), "log", topic.collect))


def _weight(topic: Topic | None) -> int:
    """Return the place of an error: that of a cause before one of no known words, and witnesses last."""
    known = topics()
    causes = sum(not t.witness for t in known)
    return causes if topic is None else known.index(topic) + topic.witness


def _said(group: LineGroup) -> str:
    """Return a line with who printed it, how often, and from when to when."""
    whose = f" of {ranks_phrase(group.ranks)}" if group.ranks else ""
    return f"'{_short(group.text, _QUOTED)}'{whose}{often(group)}"


def _short(text: str, limit: int) -> str:
    """Return the beginning and the end of a line that is too long."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2].rsplit(" ", 1)[0], text[-limit // 2 :].partition(" ")[2]
    return f"{head} … {tail}" if tail else text[: limit - 1] + "…"


def often(group: LineGroup) -> str:
    """Return ` (5 times, from 07:12:44 to 07:16:44: 240 s)`; empty of a line that came once."""
    if group.count < 2:
        return ""
    began, ended = group.began, group.ended
    span = ""
    if began is not None and ended is not None and ended - began >= _LONG:
        span = f" from {clock(began)} to {clock(ended)}, {lasted(round((ended - began) * 1000))}"
    return f" ({group.count} times{span})" if span or group.count > _FEW else ""


def roll(case: Case, told: str) -> str:
    """Return, beside what is told, which ranks printed the last line that several did, and which of them did not, in a sentence; empty where none did."""
    called = [g for _, g in groups(case, OTHER, WAIT, ERROR) if len(g.ranks) > 1]
    if not called:
        return ""
    sizes = [g.size for g in called if g.size] + [
        e.sizes[-1] for e in case.statements.all(Excerpt) if e.sizes
    ]
    size, heard = max(sizes, default=None), {r for g in called for r in g.ranks}
    last = called[-1]
    silent = sorted(heard - set(last.ranks))
    named = {r for e in case.statements.all(Excerpt) for n in e.named for r in n.ranks}
    gaps = sorted(set(range(max(heard))) - heard)
    if named - heard:  # lines of another form tell of others
        return ""
    absent = others_of(size, heard)
    whose = ranks_phrase(last.ranks) + (f" of {size}" if size else "")
    what = "that" if _short(last.text, _QUOTED) in told else f"'{_short(last.text, 80)}'"
    text = f"{whose} printed {what}"
    if absent:
        return f"{text}; {ranks_phrase(absent)} {agree(absent, 'is', 'are')} not in this text"
    if silent:
        return f"{text}; {ranks_phrase(silent)}, which {agree(silent, 'is', 'are')} heard before, did not"
    if 0 < _GAPS * len(gaps) <= len(last.ranks):
        return (
            f"{text}; {ranks_phrase(gaps)}, by number among them, {agree(gaps, 'is', 'are')} not in this text"
        )
    return f"{text}, so none of the {size} is missing at that point" if size and len(heard) == size else ""


def unsaid(case: Case, told: str, lines: Collection[tuple[str, int]]) -> Iterator[str]:
    """Yield what lines say that an answer (`told`, read from `lines`) does not: bars, errors with causes first, and waits."""
    if listed := versions(case):
        yield listed
    known, most = set(_WORDS.findall(told.lower())), _MOST
    causes = [(topic_of(g.text), file, g) for file, g in groups(case, ERROR)]
    causes = sorted((c for c in causes if c[0] and not c[0].witness), key=lambda c: _weight(c[0]))
    first = {topic: (file, g) for topic, file, g in reversed(causes)}
    long = [(file, g) for file, g in groups(case, WAIT) if "from" in often(g)]
    for file, group in [*groups(case, BAR), *reversed(first.values()), *long]:
        words = set(_WORDS.findall(group.text.lower()))
        read = any((file, number) in lines for number in group.numbers) and group.kind != BAR
        if not most or read or 2 * len(words - known) <= len(words):
            continue
        most -= 1
        known |= words
        if group.kind == BAR:
            yield f"meanwhile a progress bar is at '{group.text}'"
        else:
            yield f"the text also has {_said(group)}"
    if complaint := next((e.complaint for e in case.statements.all(Excerpt) if e.complaint), ""):
        quoted = any(_squeezed(complaint)[:_FEW_WORDS] in _squeezed(e.text) for e in trouble(case))
        if complaint[:_FEW_WORDS] not in told and not quoted:
            yield f"the reporter writes: '{_short(complaint, _QUOTED)}'"


def before(case: Case, lines: Collection[tuple[str, int]]) -> Iterator[str]:
    """Yield the error that stands right above the abort that an answer rests on: what it follows from."""
    aborts = {(e.file, e.line) for e in case.statements.all(Terminate)}
    for file, line in sorted(aborts.intersection(lines))[:1]:
        above = [
            (max(n for n in g.numbers if n < line), g)
            for of, g in groups(case, ERROR)
            if of == file and min(g.numbers) < line and line not in g.numbers
        ]
        number, group = max(above, key=lambda item: item[0], default=(0, None))
        if group is not None and line - number <= _ABOVE:
            yield f"right before it the text has {_said(group)}"


def _squeezed(text: str) -> str:
    return "".join(text.split())


def cause(case: Case) -> Topic | None:
    """Return what the errors of a text are about, the cause before what others notice of it; None of witnesses alone."""
    known = [topic for _, g in groups(case, ERROR) if (topic := topic_of(g.text)) is not None]
    return min((t for t in known if not t.witness and t.name != PROGRAM), key=topics().index, default=None)


def versions(case: Case) -> str:
    """Return the packages of a list in the text, with those of which two builds are installed; empty where there is none."""
    told = dict(pair for e in case.statements.all(Excerpt) for pair in e.versions)
    stems: dict[str, list[str]] = {}
    for name, version in told.items():
        stems.setdefault(_BUILD.sub("", name), []).append(f"{name} {version}")
    twice = next((both for both in stems.values() if len(both) > 1), None)
    if twice:
        return f"{' and '.join(twice)} are both installed: builds of one library that may overwrite each other's files; uninstall all of them and install the one that this build needs"
    return (
        f"the list of packages has {', '.join(f'{n} {v}' for n, v in [*told.items()][:5])}"
        if len(told) > 1
        else ""
    )


def present(case: Case) -> list[re.Pattern[str]]:
    """Return the words of requests for what is in the text already."""
    return [_ASKS[name] for e in case.statements.all(Excerpt) for name in e.exhibits]


def without(text: str, words: Sequence[re.Pattern[str]]) -> str:
    """Return a text without the parts that hold one of the words, and without what follows from such a part; empty where nothing is left."""
    kept, depth, dropped = [""], 0, False
    for part in _JOINTS.split(text):
        inside, depth = depth > 0, depth + part.count("(") - part.count(")")
        if not _JOINTS.fullmatch(part) and not inside:
            dropped = any(word.search(part) for word in words) or (dropped and part.startswith("then "))
        kept.append("" if dropped else part)
    return _LOOSE.sub("", "".join(kept))
