"""What a text shows beyond the lines that parsers know: its errors, its waits, its bars, and which ranks printed a line that others did not.

It is the answer where nothing else is, and adds to any other answer what that does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from functools import cache

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import others_of
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.line_groups import BAR, ERROR, OTHER, WAIT, LineGroup
from hangscope.ingest.lines import vocabulary
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.model.tables import entries
from hangscope.verdict.answer.observation import HEDGED, Observation, repeated
from hangscope.verdict.phrasing import adds, short, words

ALL_OF_THEM = "which are all of them"  # who printed a line
_MOST = 2  # lines that are added to another answer
_GAPS = 3  # ranks that print for each one that does not
_ASKS = {"kernel log": regex(r"kernel log|dmesg"), "pip list": regex(r"pip list")}
_ABOVE = 12  # lines
# with which what follows a part that is left out goes on
_LEFT_OVER = ("then ", "on ", "of ", "for ", "as ", "or ")
#: what people are asked to run, and may have run
_COMMANDS = regex(
    r"\b(?:ray status|ulimit -l|df -h|kubectl describe|kubectl get events|nvidia-smi topo|ss -ltn|sacct|scontrol show|ibv_devinfo|ibstat|lsmod|free -g)\b"
)
_JOINTS = regex(r"(; |, and |, | and |\. )")
_LOOSE = regex(r"^(?:[;,. ]|and )+|(?:[;, ]| and)+$")
#: A port, a process id or another long number, an address; no time, no size in a list, no part of a longer number.
_IDENTIFIER = regex(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?<![.,:[])(?:[Pp]ort:? |:|=|pid:? |process )(\d{4,7})(?![\w.,\]]\d|\w)"
)
_LOOKED_UP = 2  # outputs of commands


@dataclass(frozen=True, slots=True)
class Topic:
    """What an error is about. `witness`: its process noticed what happened to another one."""

    name: str
    title: str
    words: re.Pattern[str]
    collect: str
    witness: bool = False


@cache
def topics() -> tuple[Topic, ...]:
    """Return the topics, causes first."""
    return tuple(Topic(**{**t, "words": regex(t["words"])}) for t in entries("stages/topics.toml", "topic"))


def topic_of(text: str) -> Topic | None:
    """Return what a line is about by what it states, None where none of its words is known; what it calls possible is no statement."""
    stated = HEDGED.sub("", text)
    return next((topic for topic in topics() if topic.words.search(stated)), None)


def groups(case: Case, *kinds: str) -> list[LineGroup]:
    """Return the lines that are alike, of these kinds or of all, in the order of the text."""
    return [g for e in case.statements.all(Excerpt) for g in e.groups if not kinds or g.kind in kinds]


def often(group: LineGroup) -> str:
    """Return how often a line was printed, and from when to when."""
    return repeated(group.count, group.began, group.ended, "such lines")


def main(case: Case) -> Observation | None:
    """Read the errors of a text of which no line is known: the first that shows a cause, else the first of all; then the last wait."""
    errors = groups(case, ERROR)
    about = {id(g): topic_of(g.text) for g in errors}
    first = min(errors, key=lambda g: _weight(about[id(g)]), default=None)
    wait = next(reversed(groups(case, WAIT)), None)
    if first is None and wait is None:
        return None
    later = [g for g in errors if g.text != (first and first.text) and about[id(g)] is not None]
    other = max(later, key=lambda g: g.count, default=None)
    parts = [_quote(g) for g in (first, other or wait) if g is not None]
    topic = next((t for g in (first, other) if g is not None and (t := about[id(g)])), None)
    shows = f"{'the text reports' if topic is None else f'{topic.title}:'} {'; '.join(parts)}"
    return Observation(shows, topic.collect if topic is not None else "")


def _weight(topic: Topic | None) -> int:
    """Return the order of an error: causes, then those of no known words, then witnesses."""
    known = topics()
    causes = sum(not t.witness for t in known)
    return causes if topic is None else known.index(topic) + topic.witness


def _quote(group: LineGroup) -> str:
    """Return a line with who printed it, how often, and from when to when."""
    whose = f" of {ranks_phrase(group.ranks)}" if group.ranks else ""
    return f"'{short(group.text)}'{whose}{often(group)}"


def roll(case: Case, answer: str) -> str:
    """Return which ranks printed the last line that several did, and which of them did not; empty where none did."""
    called = [g for g in groups(case, OTHER, WAIT, ERROR) if len(g.ranks) > 1 and len(words(g.text)) > _MOST]
    texts = case.statements.all(Excerpt)
    heard = {r for g in called for r in g.ranks}
    if not called or {r for e in texts for n in e.named for r in n.ranks} - heard:
        return ""  # lines of another form name others
    last = called[-1]
    size = max([*(g.size for g in called if g.size), *(e.sizes[-1] for e in texts if e.sizes)], default=None)
    absent, silent = others_of(size, heard), sorted(heard - set(last.ranks))
    gaps = sorted(set(range(max(heard))) - heard)
    what = "that" if short(last.text) in answer else f"lines like '{short(last.text, 80)}'"
    text = f"{ranks_phrase(last.ranks)}{f' of {size}' if size else ''} printed {what}"
    if absent or (not silent and 0 < _GAPS * len(gaps) <= len(last.ranks)):
        missing = absent or gaps
        return f"{text}; {ranks_phrase(missing)} {agree(missing, 'is', 'are')} not in this text"
    if silent:
        return f"{text}; {ranks_phrase(silent)} printed an earlier line and not this one"
    return f"{text}, {ALL_OF_THEM}" if size and len(heard) == size else ""


def unsaid(case: Case, answer: str, read: Set[int]) -> Iterator[str]:
    """Yield what a text has beyond an answer, which was read from lines of these numbers: bars, errors with causes first, and waits."""
    known, most = words(answer), _MOST
    errors = [g for g in causes(case) if len(words(g.text)) > _MOST]  # no row of a table
    first: dict[Topic | None, LineGroup] = {}
    for group in sorted(errors, key=lambda g: _weight(topic_of(g.text))):
        first.setdefault(topic_of(group.text), group)
    long = [group for group in groups(case, WAIT) if "from" in often(group)]
    for group in [*groups(case, BAR), *first.values(), *long]:
        new = group.kind == BAR or read.isdisjoint(group.numbers)
        if most and new and short(group.text) not in answer and adds(group.text, known):
            most -= 1
            known |= words(group.text)
            bar = f"a progress bar is at '{group.text}'"
            yield bar if group.kind == BAR else f"the text also has {_quote(group)}"


def causes(case: Case) -> list[LineGroup]:
    """Return the errors about something that fails by itself, in the order of the text."""
    about = [(topic_of(g.text), g) for g in groups(case, ERROR)]
    return [g for topic, g in about if topic is not None and not topic.witness]


def of_ranks(case: Case, ranks: Sequence[int], read: Set[int]) -> Iterator[str]:
    """Yield the first error that these ranks alone printed, unless it was read: these are the numbers of lines that were."""
    own = [g for g in causes(case) if g.ranks and {*g.ranks} <= {*ranks} and read.isdisjoint(g.numbers)]
    for group in own[:1]:
        yield f"{ranks_phrase(group.ranks)} printed '{short(group.text)}'{often(group)}"


def of_others(case: Case, waiting: Sequence[int]) -> Observation | None:
    """Read the error that other ranks printed than those that wait: what these waited for is probably there."""
    files = {e.file for e in case.statements.all(Excerpt)}
    # Files of their own may be of an earlier attempt, and their errors are read by the parsers.
    if len(files) != 1 or not waiting:
        return None
    own = [g for g in causes(case) if g.ranks and not set(g.ranks) & set(waiting)]
    first = min(own, key=lambda g: g.numbers, default=None)
    if first is None:
        return None
    shows = f"{ranks_phrase(first.ranks)}, which {agree(first.ranks, 'is', 'are')} not among those that time out, printed '{short(first.text)}'{often(first)}"
    wanted = f"the whole error of {ranks_phrase(first.ranks)}: the others wait for what failed there"
    return Observation(shows, wanted, "log", first.ranks, True, len(first.ranks) == 1)


def before_an_abort(case: Case, read: Set[int]) -> Iterator[str]:
    """Yield the error right above the abort that an answer rests on."""
    for abort in [e.line for e in case.statements.all(Terminate) if e.line in read][:1]:
        above = [(n, g) for g in groups(case, ERROR) for n in g.numbers if abort - _ABOVE <= n < abort]
        for _, group in sorted(above, key=lambda item: item[0])[-1:]:
            yield f"right before it the text has {_quote(group)}"


def present(case: Case) -> list[re.Pattern[str]]:
    """Return patterns of what requests ask for that the text already contains."""
    texts = case.statements.all(Excerpt)
    run = " ".join(command for e in texts for command in e.commands)
    exhibits, commands = (name for e in texts for name in e.exhibits), dict.fromkeys(_COMMANDS.findall(run))
    return [*(_ASKS[name] for name in exhibits), *(regex(rf"\b{re.escape(name)}") for name in commands)]


def without(text: str, words: Sequence[re.Pattern[str]]) -> str:
    """Return a text without the parts that match one of the patterns and what depends on them; empty if nothing remains."""
    kept, depth, dropped = [""], 0, False
    for part in _JOINTS.split(text):
        inside, depth = depth > 0, depth + part.count("(") - part.count(")")
        if not _JOINTS.fullmatch(part) and not inside:
            dropped = any(word.search(part) for word in words) or (dropped and part.startswith(_LEFT_OVER))
        kept.append("" if dropped else part)
    return _LOOSE.sub("", "".join(kept))


def settings(case: Case) -> tuple[list[str], list[str]]:
    """Return sentences on settings that two parts of the job print differently, and the step that makes them agree."""
    unlike = [u for text in case.statements.all(Excerpt) for u in text.settings]
    sides = [[f"task {n}" if n.isdigit() else n for n in (u.one[0], u.other[0])] for u in unlike]
    facts = [
        f"{one} was started with {u.command} {u.one[1]}, {other} with {u.other[1]}"
        for u, (one, other) in zip(unlike, sides, strict=True)
    ]
    step = f"Start every part of the job with the same {' and '.join(u.command for u in unlike)}."
    return facts, [step] if unlike else []


def shown_of(case: Case, facts: Sequence[str]) -> list[str]:
    """Return sentences on what commands in the text show of an identifier of the facts, in lines that no parser reads."""
    read = {" ".join(e.text.split()) for events in case.statements.kinds.values() for e in events}
    wanted = [re.escape(match[1] or match[0]) for match in _IDENTIFIER.finditer(" ".join(facts))]
    if not wanted:
        return []
    same, found = regex(rf"(?<!\d)(?:{'|'.join(wanted)})(?!\d)"), list[str]()
    for output in (o for text in case.statements.all(Excerpt) for o in text.outputs):
        if vocabulary.words("looks_up").match(output.command):
            lines = (n for n in output.lines if same.search(n) and " ".join(n.split()) not in read)
            found += [f"'{short(output.command, 60)}' shows '{short(line)}'" for line in lines][:1]
    return found[:_LOOKED_UP]
