"""What a process was doing when it raised: the line of the program, and the calls of libraries from there to where it failed."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.causes.ends.unnamed import whose
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Verdict
from hangscope.model.frames import Frame, Stack
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.phrasing import short

#: Functions that only pass a call on (torch/nn/modules/module.py, torch/distributed/c10d_logger.py and decorators by their usual names).
_PASSING = frozenset(
    {"wrapper", "inner", "_fn", "_call_impl", "_wrapped_call_impl", "__call__", "decorate_context"}
)
_SHOWN = 4  # calls
_CODE = 80  # characters of a line


def position(case: Case, verdict: Verdict) -> str:
    """Return where the named ranks raised their error, of a verdict on nobody those that lost a peer or timed out; empty where no traceback shows it."""
    culprits = {*verdict.culprit_ranks}
    raised = [e for e in case.statements.all(RankException) if e.code]
    own = [e for e in raised if e.rank in culprits or (not culprits and e.symptom)]
    places: dict[tuple[Frame, str], list[RankException]] = defaultdict(list)
    for event in own:
        if (frame := user_frame(event.frames)) is not None:
            places[frame, event.code or ""].append(event)
    if not places:
        return ""
    (frame, code), events = max(places.items(), key=lambda item: len(item[1]))
    inside = calls(events[0].frames, frame)
    path = f", in {' > '.join(inside)}" if inside else ""
    ranks = [e.rank for e in events if e.rank is not None]
    at = f"{frame.file.rsplit('/', 1)[-1]}:{frame.line}"
    who = ranks_phrase(ranks) if ranks else whose(case, events)
    return f"{who} {agree(ranks or (0,), 'was', 'were')} at '{short(code, _CODE)}' ({at}){path}"


def calls(stack: Stack, user: Frame) -> list[str]:
    """Return the functions of libraries from a line of the user's to the innermost frame, without those that only pass a call on; of many the first and the last ones."""
    inner = reversed(stack[: stack.index(user)])
    names = [f.name for f in inner if f.name not in _PASSING and not f.name.startswith("<")]
    names = [name for name, before in zip(names, ["", *names], strict=False) if name != before]
    half = _SHOWN // 2
    return names if len(names) <= _SHOWN else [*names[:half], "…", *names[-half:]]
