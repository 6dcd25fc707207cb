"""Whose text follows a line that somebody wrote above it.

    Stack of rank 3:                             whoever collects dumps into one text, right above a process's
    ranks 1-3 all show                           one stack for several ranks
    $ py-spy dump --pid 812  # rank 3            a remark after a command
    ==> dumps/rank3.txt <==                      a file of which the text is a copy
    The one that prints nothing (rank 0) is at:  a sentence that ends in a colon and names one rank at its end or in brackets

There are titles above stacks, logs and the entries of dumps.
"""

from __future__ import annotations

import re

from hangscope.ingest.files.naming import rank_of_log, says_rank
from hangscope.model.regex import regex

_SENTENCE = 160  # characters of a line that may be a title
_TITLE_LIMIT = 80
_MOST = 4096  # ranks of one title
_OF_A_DUMP = (
    "the|begin|global|py-?spy|cuda-?gdb|gdb|p|faulthandler|stacks?|stack-?traces?|traces?|back-?traces?|dumps?|output|main|threads?"
    "|process|processes|pid|logs?|last|tail|lines?|std(?:err|out)|file"
)
_SOME = r"\d{1,7}(?:(?:-|–|\.{2,3}|, ?| ?& ?| and | to | und | et | bis )\d{1,7}){0,15}"
_AFTER = r"all|both|is|are|show|shows|look|looks|like|this|same|the|stuck|waits?|at|here"
_TITLE = regex(
    rf"^[\W_]{{0,12}}(?:(?:{_OF_A_DUMP}|of|for|on|from)[\W_]{{1,4}}){{0,8}}ranks?[\W_]{{0,3}}({_SOME})"
    rf"(?:[\W_]{{1,4}}(?:{_OF_A_DUMP}|{_AFTER}|\d{{1,10}})){{0,8}}(?: ?[(\[][^()\[\]]{{1,40}}[)\]])?[\W_]{{0,12}}$",
    re.IGNORECASE,
)
_ENDS = regex(
    rf"\branks?[ :#]{{0,2}}({_SOME})(?: (?:{_AFTER}|{_OF_A_DUMP})){{0,5}} ?[:：]\W{{0,3}}$", re.IGNORECASE
)
_IN_BRACKETS = regex(rf"[(\[（]ranks?[ :#=]{{0,2}}({_SOME})[)\]）]", re.IGNORECASE)
_MENTION = regex(r"\branks?\W{0,3}\d", re.IGNORECASE)
_BUT = regex(
    r"\b(?:except|but|besides|than|without|unlike|excluding|other|instead|au(?:ß|ss)er|sauf|excepto|salvo|кроме)\b[^.;]{0,30}$"
    r"|\b(?:not|for|waits?|after|before|until) $",
    re.IGNORECASE,
)
_FILE = regex(
    r"^(?:[=#*>-]{1,6} ?|\$ (?:cat|less|tail|head) (?:-\S{1,8} ){0,3})(\S{1,300}?)(?: ?[=#*<:-]{1,6})?$"
)
_REMARK = regex(r"^\S{0,80}[$#%>] .{1,120}? # ?ranks? {0,2}(\d{1,7})$", re.IGNORECASE)  # after a command
_STEP = regex(r"-|–|\.{2,3}| to | bis ")


def ranks_titled(text: str) -> tuple[int, ...]:
    """Return the ranks (global, ascending) whose stack or lines follow a line like this; none where it is no title."""
    if len(text) > _SENTENCE or "ank" not in text.lower():
        return ()
    if len(text) <= _TITLE_LIMIT and (match := _TITLE.match(text)):
        return _numbers(match[1])
    if (file := _FILE.match(text)) and says_rank(file[1].rsplit("/", 1)[-1]):
        rank, _ = rank_of_log(file[1])
        return () if rank is None else (rank,)
    if remark := _REMARK.match(text.rstrip()):
        return _numbers(remark[1])
    if not text.rstrip("`* ").endswith((":", "：")):
        return ()
    alone = len(_MENTION.findall(text)) == 1
    match = _ENDS.search(text) or (_IN_BRACKETS.search(text) if alone else None)
    return () if match is None or _BUT.search(text[: match.start()]) else _numbers(match[1])


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `3`, `1-3`, `1..3` or `0, 2 and 3`."""
    ranks: set[int] = set()
    for part in re.split(r", ?| ?& ?| and | und | et ", text):
        first, *rest = (int(number) for number in _STEP.split(part))
        last = rest[-1] if rest else first
        if last - first >= _MOST:
            return ()
        ranks |= set(range(first, last + 1))
    return tuple(sorted(ranks))
