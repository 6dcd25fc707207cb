"""What an engineer adds to the facts of a pasted text: replies to what its reporter supposes, what the evidence means, and where an error was raised.

Remarks are data, in knowledge/stages/remarks.toml, whose head describes the conditions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

from hangscope.causes.case import Case
from hangscope.causes.ends.unnamed import whose
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.excerpts.commands import setting
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import Verdict
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame, Stack
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.model.tables import entries
from hangscope.verdict.phrasing import short

#: Functions that only pass a call on (torch/nn/modules/module.py, torch/distributed/c10d_logger.py and decorators by their usual names).
_PASSING = frozenset(
    {"wrapper", "inner", "_fn", "_call_impl", "_wrapped_call_impl", "__call__", "decorate_context"}
)
_SHOWN = 4  # calls
_CODE = 80  # characters of a line
_REPLIES, _MEANINGS = 2, 1
# what a path that does not work looks like
_OF_A_PATH = frozenset({"network_stall", "unknown", "init_hang", "runtime_deadlock"})


@dataclass(frozen=True, slots=True)
class Remark:
    """One entry of the table."""

    says: str
    people: str = ""
    causes: Sequence[str] = ()
    programs: bool = False
    kinds: Sequence[str] = ()
    lines: str = ""
    without: Sequence[str] = ()
    stopped: bool = False
    one_host: bool = False

    def fits(self, case: Case, verdict: Verdict) -> bool:
        """Return whether all conditions hold."""
        if self.causes or self.programs:
            known = CATALOG[verdict.cause]
            if verdict.cause not in self.causes and not (self.programs and known.of_programs):
                return False
        events = {kind.kind: found for kind, found in case.statements.kinds.items() if found}
        if any(kind in events for kind in self.without):
            return False
        texts = [e.text for kind in self.kinds for e in events.get(kind, ())]
        if self.kinds and not any(regex(self.lines).search(text) for text in texts):
            return False
        if self.stopped and find_stop(case.statements) is None:
            return False
        prose = " ".join(e.prose for e in case.statements.all(Excerpt))
        if self.people and not regex(f"(?i){self.people}").search(prose):
            return False
        return not self.one_host or case.on_one_host


@cache
def table() -> tuple[Remark, ...]:
    """Return the entries of the table."""
    return tuple(Remark(**entry) for entry in entries("stages/remarks.toml", "remark"))


def remarks(case: Case, verdict: Verdict) -> Iterator[str]:
    """Yield what is added to the answer with this verdict: replies, then what the evidence means."""
    fitting = [remark for remark in table() if remark.fits(case, verdict)]
    yield from [*_helped(case, verdict), *(remark.says for remark in fitting if remark.people)][:_REPLIES]
    yield from [remark.says for remark in fitting if not remark.people][:_MEANINGS]


def _helped(case: Case, verdict: Verdict) -> Iterator[str]:
    """Yield which path the setting points to with which the job runs, where the verdict does not say so itself."""
    for helped in dict.fromkeys(e.helped for e in case.statements.all(Excerpt) if e.helped):
        if verdict.cause in _OF_A_PATH and helped not in verdict.summary:
            yield f"That {helped} helps points to {setting(helped).path}: check {setting(helped).look}"


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
