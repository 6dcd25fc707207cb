"""Where processes are: by the labelled parts of a text, and how busy their GPUs are."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.causes.programs import guarded_code
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.sections import Side
from hangscope.ingest.job_logs.activity import BUSY, IDLE, GpuUse
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.rankset import agree, compress, in_words, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation

_SHOWN = 4  # places, or labels of one side
_PLACE = regex(r"\(\S{1,200}:\d+\)$")
_WORK = 0.6  # of the limit of a GPU's power, from which on it computes
_SPEED = regex(r"(?i)\bscore|\d ?%|\d ?(?:ms|s|W)\b")


def sides(case: Case) -> Observation | None:
    """Read which labelled part is unlike the others; stacks of known ranks are read by themselves."""
    excerpt = next((e for e in case.statements.all(Excerpt) if e.sides), None)
    if excerpt is None or (len(case.stacks) > 1 and not excerpt.sides[0].row):
        return None
    if excerpt.sides[0].row and case.statements.all(WatchdogTimeout):
        return None  # what differs are the milliseconds of one wait
    many, *others = excerpt.sides
    few = others[-1]
    outlier = len(others) == 1 and _number(few) < _number(many)
    shows = "; ".join(f"{_labels(side)} {_shown(side)}" for side in (few, many, *others[:-1])[:_SHOWN])
    shows += f"; all of them are inside {many.inside}" if many.inside else ""
    text = f"a stack of {_labels(few)} with native frames, twice, a minute apart (py-spy dump --native), and its log"
    if many.row:
        text = f"a stack of {_labels(few)} at that moment, with clocks, temperature and power of its GPU (nvidia-smi -q -d PERFORMANCE)"
        other = f"what {_labels(few)} did differently before that line: its configuration, its data, a branch"
        text = text if _SPEED.search(few.text) else other
    elif not outlier:
        text = "which branch, request or batch one of them has and the other does not: the code before both places"
    suspects = few.ranks if outlier else ()
    return Observation(shows, text, "stack", suspects, False, outlier, (excerpt,), vague=not outlier)


def _labels(side: Side) -> str:
    if side.ranks:
        return ranks_phrase(side.ranks)
    more = f" and {len(side.labels) - _SHOWN} more" if len(side.labels) > _SHOWN else ""
    return " and ".join(side.labels[:_SHOWN]) + more


def _number(side: Side) -> int:
    return max(len(side.ranks), len(side.labels))


def _shown(side: Side) -> str:
    one = _number(side) == 1
    if _PLACE.search(side.text):
        return f"{'is' if one else 'are'} at {side.text}"
    return f"{'shows' if one else 'show'} '{side.text}'"


def gpus(case: Case) -> Observation | None:
    """Read nvidia-smi's table: which GPUs are busy and which are idle."""
    uses = sorted(case.statements.all(GpuUse), key=lambda e: e.gpu)
    idle, busy = [e for e in uses if e.percent <= IDLE], [e for e in uses if e.percent >= BUSY]
    if len({e.gpu for e in uses}) < 2 or len(idle) + len(busy) < len(uses):
        return None
    parts = [_used(some) for some in (busy, idle) if some]
    text = "a stack of every process (py-spy dump --pid PID)"
    if not busy:  # nothing runs there, and what does is on the host
        return Observation(f"nvidia-smi shows {parts[0]}: no kernel is running there", events=tuple(uses))
    if idle:
        text += f": what the process on {_cards(idle)} does, and which collective the process on {_cards(busy)} is in"
    spin = "" if idle else ": NCCL's kernels spin while they wait, so that is no sign of work"
    if all(e.watts and e.limit and e.watts > _WORK * e.limit for e in busy):
        spin = ": they compute, as their power shows; a kernel that only waits draws far less"
    shows = f"nvidia-smi shows {' and '.join(parts)}{spin}"
    text = text if len(case.stacks) < 2 else ""  # stacks of several ranks say more
    return Observation(shows, text, "stack", events=tuple(uses))


def _cards(uses: Sequence[GpuUse]) -> str:
    numbers = [e.gpu for e in uses]
    return f"GPU{agree(numbers, '', 's')} {in_words(compress(numbers))}"


def _used(uses: Sequence[GpuUse]) -> str:
    """Return how busy GPUs are, with the power that they draw: `GPUs 0-3 at 0 to 3 % (71 to 84 W)`."""
    percents, watts = [e.percent for e in uses], [e.watts for e in uses if e.watts is not None]
    ranges = [" to ".join(map(str, sorted({min(some), max(some)}))) for some in (percents, watts) if some]
    return f"{_cards(uses)} at {ranges[0]} %" + (f" ({ranges[1]} W)" if watts else "")


def guarded(case: Case) -> Observation | None:
    """Quote the collective that only rank 0 calls by the program's code, where the job stopped."""
    code = guarded_code(case)
    if code is None:
        return None
    where = f"{code.call} (line {code.line}{'' if code.leaves else f', below `{code.guard}`'}), which every rank must call"
    shows = f"in the code of this text, only rank 0 calls {where}: rank 0 waits there for the others, who go on to their next collective"
    wanted = f"Move {code.call} out of that branch, so that all ranks call it, and guard only what rank 0 alone may do (the write, the print)"
    if code.leaves:
        shows = f"in the code of this text, rank 0 alone takes `{code.leaves}` below `{code.guard}`, and so does not reach {where}: the others wait there for rank 0"
        wanted = f"Take `{code.leaves}` on every rank, or move {code.call} before that branch"
    return Observation(shows, wanted, "other", (0,), blamed=True, cause="rank_conditional_collective")
