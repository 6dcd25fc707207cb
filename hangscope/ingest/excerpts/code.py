"""The program's code in a pasted text, as far as it shows a collective that one rank alone calls.

    146      if self.trainer.is_global_zero:
    147          self.log("val/mAP", stats["map"], sync_dist=True)

Only a guard of rank 0 is read, and the lines that are indented below it. Which calls every rank must make is a list of words. A call that
is elsewhere in the text as well may be made by the others there, and of several nodes each has a local rank 0.
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
_NODES = regex(
    r"(?i)--nnodes[= ](?!1\b)\d|\b(?:[2-9]|[1-9]\d{1,4}|two|three|four) ?(?:nodes|machines|hosts|servers|boxes|pods)\b"
)
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
    several = any(_NODES.search(text) for _, text in code)
    for i, (_, text) in enumerate(code):
        if not _GUARD.match(text.strip()) or (several and "local" in text):
            continue
        depth = _indent(text)
        for number, below in code[i + 1 : i + 1 + _BODY]:
            if below.strip() and _indent(below) <= depth:
                break
            statement = below.split("#")[0]
            call = _CALL.search(statement) if words("of_all_ranks").search(statement) else None
            if call is not None and sum(call[0] in other for _, other in code) == 1:
                return Guarded(text.strip().rstrip(":"), call[1], number)
    return None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
