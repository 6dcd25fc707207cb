"""The program's code in a pasted text, as far as it shows a collective that one rank alone calls.

    146      if self.trainer.is_global_zero:
    147          self.log("val/mAP", stats["map"], sync_dist=True)

Only a guard of rank 0 is read, and the lines that are indented below it, or a guard at which all others return, and what follows it. If
rank 0 leaves the loop or the function below its guard, it lacks the collective that follows. Which calls every rank must make is a list of words; a call in which
a stack of the same text is waits for others as well. A call that
is elsewhere in the text as well may be made by the others there, and of several nodes each has a local rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_NUMBER = regex(r"^ {0,6}(\d{1,5})[:)|]? ")
_AT = regex(r"\.py(?::|\", line )(\d{1,5})\b")  # of a frame
_CALL = regex(r"([\w.]{1,80})\(")
_STATEMENT = regex(r"[\w\])]\(|[\w\])] ?[-+*/|]?= ?\S|\b(?:return|yield|raise|with)\b")
_LEAVES = regex(r"(?:continue|break|return)$")
#: `r = dist.get_rank()`
_IS_THE_RANK = regex(
    r"^[ \t]{0,40}([a-z]\w{0,20}) ?= ?(?:int\()?(?:[\w.]{0,40}\bget_rank\(\)|os\.environ\[[\"']RANK[\"']\])"
)
_SHOWN, _GUARD = 60, 160  # characters of a statement and of a guard
_OF_A_NODE = regex(r"local|gpu")
_BODY = 24  # lines below a guard


@dataclass(frozen=True, slots=True)
class Guarded:
    """A call behind a guard of rank 0: the words of both, and the line that has the call, by the program's own number where the text shows it.

    `leaves`: the call follows, and this is the statement with which rank 0 leaves before it.
    """

    guard: str
    call: str
    line: int
    leaves: str = ""


def numbered(lines: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Return the (number, statement) of the program's lines that a text shows with their numbers, of those at which its stacks are."""
    stood = {int(at) for _, text in lines for at in _AT.findall(text)}
    found: dict[int, str] = {}
    for _, text in lines:
        if (match := _NUMBER.match(text)) and int(match[1]) in stood and _STATEMENT.search(text, match.end()):
            found.setdefault(int(match[1]), text[match.end() :].split(" #")[0].strip()[:_SHOWN])
    return tuple(found.items())[:_BODY]


def guarded_call(lines: Sequence[tuple[int, str]]) -> Guarded | None:
    """Return the first collective in code that only rank 0 runs, of lines (number, text); so is a call in which a stack of the text is.

    A call of a model, which may be wrapped by DDP or FSDP, counts where there is no other, and so does one that saves a model that is sharded.
    """
    sharded = any(words("sharded").search(text) for _, text in lines)
    names = ("of_all_ranks", *(["of_all_ranks_if_sharded"] if sharded else []), "may_be_of_all_ranks")
    found = (_guarded_call(lines, name) for name in names)
    return next((call for call in found if call is not None), None)


def _guarded_call(lines: Sequence[tuple[int, str]], name: str) -> Guarded | None:
    code = [(number, _NUMBER.sub(" " * 4, text)) for number, text in lines]
    own = {number: int(match[1]) for number, text in lines if (match := _NUMBER.match(text))}
    stood = {int(at) for number, text in lines if number not in own for at in _AT.findall(text)}
    quoted = {number + 1 for number, text in lines if _AT.search(text)}  # below the frames of a traceback
    calls = [row for row in code if row[0] not in quoted]
    several = any(words("several_nodes").search(text) for _, text in code)
    named = "|".join({match[1] for _, text in code if (match := _IS_THE_RANK.match(text))})
    for i, (_, text) in enumerate(code):
        head, *after = (line.split("#")[0].strip() for _, line in code[i : i + 2])
        returns = head.endswith(":") and after == ["return"]  # the others, who pass the guard
        guard = words("guard_of_the_others" if returns else "guard_of_rank_0")
        asked = re.sub(rf"\b(?:{named})\b(?= ?==)", "rank", text.strip()) if named else text.strip()
        if not guard.match(asked) or (several and _OF_A_NODE.search(text)):
            continue
        # Below a return of all others the rest of the function is rank 0's.
        depth = _indent(text) - returns
        for number, below in code[i + 1 + returns : i + 1 + _BODY]:
            if below.strip(" .…") and _indent(below) <= depth:
                break
            statement = below.split("#")[0]
            of_all = words(name).search(statement) or own.get(number) in stood
            call = _CALL.search(statement) if of_all else None
            if call is not None and sum(call[0] in other for _, other in calls) == 1:
                return Guarded(quote(text.strip().rstrip(":"), _GUARD), call[1], own.get(number, number))
        if not returns and (left := _left(code[i : i + 2 * _BODY], words(name))) is not None:
            leaves, number, name = left
            return Guarded(quote(text.strip().rstrip(":"), _GUARD), name, own.get(number, number), leaves)
    return None


def _left(code: Sequence[tuple[int, str]], of_all: re.Pattern[str]) -> tuple[str, int, str] | None:
    """Return the statement with which who passes a guard leaves its loop or function, and the next call of all ranks there (line, call)."""
    depth, leaves, inside = _indent(code[0][1]), "", True
    for number, below in code[1:]:
        statement = below.split("#")[0].strip()
        if not statement.strip(" .…"):
            continue
        inside = inside and _indent(below) > depth
        if inside and _LEAVES.match(statement):
            leaves = statement
        if not inside and (not leaves or _indent(below) < depth or statement.startswith("else")):
            return None
        call = _CALL.search(statement) if not inside and of_all.search(statement) else None
        if call is not None:
            return leaves, number, call[1]
        depth = depth if inside else min(depth, _indent(below))
    return None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
