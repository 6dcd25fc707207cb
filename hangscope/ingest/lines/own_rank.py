"""The rank that a program itself puts before its lines, in no form of torch or of a launcher.

    [rank 3] step 640 loss 1.25
    rank3 epoch 0 finished
    (Rank 3/16) waiting for a batch
    [proc 3] bye
    INFO rank=3 saving
    2026-10-30 17:40:01 | INFO | rank:3 | start epoch 2
    17:40:01 rank 3 epoch 2 finished
    [  12.4s] rank 3 epoch 2 finished

Only a program's own lines are read so: `[Rank 3]` in a line of the watchdog is a number within a group.
"""

from __future__ import annotations

from dataclasses import replace

from hangscope.ingest.lines.prefixes import Line
from hangscope.model.regex import regex

_END = r"(?:[\])>]:?|[:,|]|(?= )) ?"
#: a clock without a date, or what counts seconds or milliseconds
_CLOCK = (
    r"\[? {0,6}(?:\d{1,3}(?::\d\d){1,2}(?:[.,]\d{1,9})?|\d{1,10}\.\d{1,9}s?|\d{5,13}(?:ms)?)\]?[ |:-]{1,3}"
)
_OWN = regex(
    rf"(?:{_CLOCK})?(?:[A-Z]{{4,8}}:? )?[\[(<]?(?:global[_ -])?(?i:rank|rang|ранг|ранк|ランク|랭크)[ :#=_-]{{0,2}}(\d{{1,5}})(?:(?:/| of )\d{{1,5}})?{_END}"
    r"|[\[(<](?:r|proc|process|процесс|卡|进程|プロセス|프로세스)[ :#=_-]{0,2}(\d{1,5})[\])>]:? ?"
    # fields of a logger between bars, of which one is the rank
    r"|r(\d{1,5}) ?\| ?|(?:\| ?)?(?:[A-Z]{4,8} {0,4}\| ?)?(?i:rank)[ :=#_-]{0,2}(\d{1,5}) ?\| ?"
)


def by_itself(line: Line) -> Line:
    """Return a program's own line without the rank that it begins with, as a line of that rank; others as they are."""
    match = _OWN.match(line.text) if line.rank is None and line.source is None else None
    if match is None:
        return line
    return replace(
        line,
        text=line.text[match.end() :],
        rank=int(next(filter(None, match.groups()))),
        origin=f"{line.origin}{match[0].strip()}",
    )
