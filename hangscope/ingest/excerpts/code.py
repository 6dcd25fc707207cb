"""The program's code in a pasted text, as far as it shows a collective that one rank alone calls.

    146      if self.trainer.is_global_zero:
    147          self.log("val/mAP", stats["map"], sync_dist=True)

Only a guard of rank 0 is read, and the lines that are indented below it. Which calls every rank must make is a list of words.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.ingest.job_logs.vocabulary import words
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_NUMBER = regex(r"^ {0,6}\d{1,5}[:)|]? ")
_GUARD = regex(
    r"^if\b(?!.{0,80}\b(?:not|or)\b).{0,80}(?:\bis_(?:main|local_main|world)_process(?:_zero)?\b|\bis_global_zero\b|\bis_(?:master|rank_?0|rank_zero)\b"
    r"|\b(?:get_|global_|local_|world_)?rank(?:\(\))? ?== ?0\b)"
)
_CALL = regex(r"([\w.]{1,80})\(")
_BODY = 24  # lines below a guard


@dataclass(frozen=True, slots=True)
class Guarded:
    """A call behind a guard of rank 0: the words of both, and the line of the text that has the call."""

    guard: str
    call: str
    line: int


def guarded_call(lines: Sequence[tuple[int, str]]) -> Guarded | None:
    """Return the first collective in code that only rank 0 runs, of lines (number, text)."""
    code = [(number, _NUMBER.sub(" " * 4, text)) for number, text in lines]
    for i, (_, text) in enumerate(code):
        if not _GUARD.match(text.strip()):
            continue
        depth = _indent(text)
        for number, below in code[i + 1 : i + 1 + _BODY]:
            if below.strip() and _indent(below) <= depth:
                break
            statement = below.split("#")[0]
            if words("of_all_ranks").search(statement) and (call := _CALL.search(statement)):
                return Guarded(text.strip().rstrip(":"), call[1], number)
    return None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
