"""What an engineer adds to the facts of a pasted text: replies to what its reporter supposes, and what the evidence means.

They are data, in knowledge/stages/remarks.toml, whose head describes the conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from hangscope.causes.case import Case
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.settings import setting
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.conclusion import Verdict
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_REPLIES, _MEANINGS = 2, 1
_OF_A_PATH = frozenset(
    {"network_stall", "unknown", "init_hang", "runtime_deadlock"}
)  # what a path that does not work looks like


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
        if self.people and not regex(f"(?i){self.people}").search(_prose(case)):
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


def _prose(case: Case) -> str:
    return " ".join(e.prose for e in case.statements.all(Excerpt))
