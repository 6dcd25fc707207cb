"""What else a pasted text says about the answer: settings that two parts of the job print differently, and what commands show of an identifier.

An engineer looks for the port, address, process or device of the decisive line in everything else that was pasted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from hangscope.causes.case import Case
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex
from hangscope.verdict.phrasing import short

#: A port, a process id or another long number, an address; no time, no size in a list, no part of a longer number.
_IDENTIFIER = regex(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?<![.,:[])(?:[Pp]ort:? |:|=|pid:? |process )(\d{4,7})(?![\w.,\]]\d|\w)"
)
_MOST = 2


def settings(case: Case) -> list[str]:
    """Return sentences on settings that two parts of the job print differently."""
    return [
        f"{_who(u.one[0])} was started with {u.command} {u.one[1]}, {_who(u.other[0])} with {u.other[1]}"
        for text in case.statements.all(Excerpt)
        for u in text.settings
    ]


def shown_of(case: Case, facts: Sequence[str]) -> list[str]:
    """Return sentences on what commands in the text show of what the facts name."""
    read = {" ".join(e.text.split()) for events in case.statements.kinds.values() for e in events}
    return [*_shown(case.statements.all(Excerpt), " ".join(facts), read)][:_MOST]


def same_settings(case: Case) -> list[str]:
    """Return the step that makes the parts of a job agree on their settings; none where nothing differs."""
    names = [u.command for text in case.statements.all(Excerpt) for u in text.settings]
    return [f"Start every part of the job with the same {' and '.join(names)}."] if names else []


def _shown(texts: Sequence[Excerpt], known: str, read: Container[str]) -> Iterator[str]:
    """Yield the lines of commands' outputs that have an identifier of what is known, and that no parser has `read`."""
    wanted = {match[1] or match[0] for match in _IDENTIFIER.finditer(known)}
    for output in (o for text in texts for o in text.outputs if words("looks_up").match(o.command)):
        for line in output.lines:
            if " ".join(line.split()) not in read and any(_has(line, word) for word in wanted):
                yield f"'{short(output.command, 60)}' shows '{short(line)}'"
                break


def _has(line: str, word: str) -> bool:
    before, found, after = line.partition(word)
    return bool(found) and not (before[-1:].isdigit() or after[:1].isdigit())


def _who(writer: str) -> str:
    return f"task {writer}" if writer.isdigit() else writer
