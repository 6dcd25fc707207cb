"""Labelled parts of a text side by side: who shows something else than the others."""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.text.sections import Side
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, compress
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation

_NAMED = 4  # labels of one side
_PLACE = regex(r"\(\S{1,200}:\d+\)$")


def sides(case: Case) -> Observation | None:
    """Read which part is unlike the others; stacks of known ranks are read by themselves."""
    excerpt = next((e for e in case.statements.all(Excerpt) if e.sides), None)
    if excerpt is None or (len(case.stacks) > 1 and not excerpt.sides[0].row):
        return None
    many, *others = excerpt.sides
    few = others[-1]
    odd = len(others) == 1 and _number(few) < _number(many)
    shows = "; ".join(f"{_who(side)} {_shown(side)}" for side in (few, many, *others[:-1])[:_NAMED])
    if many.inside:
        shows += f"; all of them are inside {many.inside}"
    if many.row:
        text = f"what {_who(few)} {_agree(few, 'does', 'do')} at that moment: a stack, clocks, temperature and power of the GPU (nvidia-smi -q -d PERFORMANCE)"
        means = f"That number of {_who(few)} is far from the others': {_agree(few, 'it is', 'they are')} slower, idle or stuck, and every collective waits for the slowest."
    elif odd:
        means = f"{_who(few)} {_agree(few, 'is', 'are')} the only one{_agree(few, '', 's')} elsewhere: the others are alike and most likely wait for {_agree(few, 'it', 'them')}."
        text = f"what keeps {_who(few)} there: the same output a minute later, native frames of all {_agree(few, 'its', 'their')} threads (py-spy dump --native), and {_agree(few, 'its', 'their')} log"
    else:
        means = "They are not at the same place: if each waits for the other there, they wait for different calls and neither comes; the shown parts do not tell which of them left the common path."
        text = "the code before both places: which branch, request or batch one of them has and the other has not"
        if not many.ranks:
            text += "; and a line like `=== rank 3 ===` above each part, which tells whose it is"
    return Observation(
        shows, means, Collect(few.ranks, "stack", text), few.ranks if odd else (), False, odd, (excerpt,)
    )


def _who(side: Side) -> str:
    if side.ranks:
        return f"{agree(side.ranks, 'rank', 'ranks')} {compress(side.ranks)}"
    more = f" and {len(side.labels) - _NAMED} more" if len(side.labels) > _NAMED else ""
    return " and ".join(side.labels[:_NAMED]) + more


def _agree(side: Side, one: str, several: str) -> str:
    return one if _number(side) == 1 else several


def _number(side: Side) -> int:
    return max(len(side.ranks), len(side.labels))


def _shown(side: Side) -> str:
    if _PLACE.search(side.text):
        return f"{_agree(side, 'is', 'are')} at {side.text}"
    return f"{_agree(side, 'shows', 'show')} '{side.text}'"
