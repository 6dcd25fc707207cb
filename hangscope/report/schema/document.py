"""The report as typed objects: what every output is made of. The field names of `Document` are the keys of the JSON report.

Keys may be added within a major version, never renamed or removed; nanoseconds are strings, because a browser's numbers
lose integers above 2^53; ranks and inputs are folded into classes above `FOLD_ABOVE` ranks. Ranks are global.
"""

from __future__ import annotations

from dataclasses import field

from hangscope.model import conclusion
from hangscope.model.conclusion import OMITTED
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.incident import group_label
from hangscope.report.schema.page import PageData

SCHEMA = "hangscope.report/1"
FOLD_ABOVE = 1024


@dataclass(frozen=True, slots=True)
class Partial:
    """Which ranks left no dump; `missing_ranks` is written `0-2,5`."""

    is_partial: bool
    text: str
    missing_ranks: str = ""


@dataclass(frozen=True, slots=True)
class CulpritPart:
    """A named rank and where it ran."""

    rank: int
    host: str | None = None
    local_rank: int | None = None
    device: int | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The group of the verdict."""

    name: str
    desc: str
    role: str | None = None
    ranks: tuple[int, ...] = ()
    members_known: bool = True

    @property
    def label(self) -> str:
        """Return how the group is written for a person: `0 (default_pg)`."""
        return group_label(self.name, self.desc)


@dataclass(frozen=True, slots=True)
class Explains:
    """How many of the waiting ranks the root accounts for."""

    ranks: int
    of: int


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """The `verdict` of the report."""

    cause: str
    confidence: str
    culprit_ranks: tuple[int, ...]
    culprits: tuple[CulpritPart, ...]
    category: str
    group: GroupRef | None
    op: str | None
    seq: int | None
    is_p2p: bool
    waiting_ranks: tuple[int, ...]
    in_call: tuple[int, ...]
    explains: Explains
    fingerprint: str
    culprit_call: conclusion.CallRef | None
    waiting_call: conclusion.CallRef | None
    location: conclusion.Location | None
    summary: str
    evidence: tuple[conclusion.Evidence, ...]
    advice: tuple[str, ...]
    alternatives: tuple[conclusion.Alternative, ...]
    deciding: tuple[int, ...] = ()
    api: str | None = None
    since: str | None = None
    until: str | None = None
    title: str = ""
    explanation: str = ""
    rank_confidence: str = "low"
    cause_confidence: str = "low"
    suspect_ranks: tuple[int, ...] = ()
    collect: tuple[conclusion.Collect, ...] = ()
    wait_ends: conclusion.WaitEnds = conclusion.WaitEnds()


NO_VERDICT = VerdictPart(
    "", "", (), (), "", None, None, None, False, (), (), Explains(0, 0), "", None, None, None, "", (), (), ()
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CandidatePart:
    """Ranks that were considered as culprits and ruled out."""

    ranks: str
    cause: str
    why_set_aside: str


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """Ranks with the same frontier on one group (seqs); None where it is not known. `at_least`: the end of later calls is not recorded."""

    ranks: str
    enqueued: int | None
    completed: int | None
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class GroupPart:
    """One process group; `ranks` is written `0-1023` in a large job."""

    name: str
    desc: str
    role: str | None
    ranks: tuple[int, ...] | str
    members_known: bool
    frontier: tuple[FrontierRow, ...]


@dataclass(frozen=True, slots=True)
class RankPart:
    """One rank, or a class of equal ranks (`ranks`, `count`) in a large job."""

    rank: int | None = field(default=None, metadata=OMITTED)
    ranks: str | None = field(default=None, metadata=OMITTED)
    count: int | None = field(default=None, metadata=OMITTED)
    host: str | None = None
    state: str = "unseen"
    standing: str = ""
    absence: str | None = None
    last_call: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchPart:
    """A branch of the merged stacks: frames, outermost first, that all of `ranks` are in; `depth` counts the forks above."""

    depth: int
    ranks: str
    count: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class InputPart:
    """One file and what became of it, or a class of equal files in a large job."""

    file: str
    count: int | None = field(default=None, metadata=OMITTED)
    kind: str = ""
    rank: int | None = None
    ranks: str | None = field(default=None, metadata=OMITTED)
    status: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WindowPart:
    """Which calls of a group were kept by some ranks (seqs, both included)."""

    ranks: str
    group: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class CoveragePart:
    """What was read."""

    files: int = 0
    used: int = 0
    set_aside: int = 0
    ignored: int = 0
    windows: tuple[WindowPart, ...] = ()
    windows_left_out: int | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, slots=True)
class WarningPart:
    """What could not be read or does not fit."""

    code: str
    file: str | None
    line: int | None
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SeenBefore:
    """Earlier incidents of the same bug in the store. `first` and `last` are days (UTC), `note` is the latest that somebody left."""

    times: int
    first: str = ""
    last: str = ""
    last_job: str = ""
    last_report: str = ""
    note: str = ""
    ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return it as a sentence; empty where there are none."""
        job = f" ({self.last_job})" if self.last_job else ""
        several = f"{self.times:,} times before, first on {self.first}, last"
        times = several if self.times > 1 else "once before,"
        note = f". Note: {self.note}" if self.note else ""
        end = "" if self.note.endswith(".") else "."
        return f"Seen {times} on {self.last}{job}{note}{end}" if self.times else ""


@dataclass(frozen=True, slots=True)
class OutlierLine:
    """A log line that sets `ranks` apart: `how` is only, missing, count or value, `note` the same as a sentence."""

    ranks: tuple[int, ...]
    how: str
    note: str
    text: str
    source: conclusion.Source


@dataclass(frozen=True, slots=True)
class Document:
    """One report. `page` is what only the HTML page shows; the JSON report is without it."""

    schema: str
    status: str
    headline: str
    world_size: int
    partial: Partial
    verdict: VerdictPart | None
    world_size_known: bool = True
    confidence_why: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    sources: dict[str, int] = field(default_factory=dict)
    candidates: tuple[CandidatePart, ...] = ()
    hypotheses: tuple[conclusion.Hypothesis, ...] = ()
    ruled_out: tuple[conclusion.RuledOut, ...] = ()
    groups: tuple[GroupPart, ...] = ()
    ranks: tuple[RankPart, ...] = ()
    inputs: tuple[InputPart, ...] = ()
    coverage: CoveragePart = CoveragePart()
    warnings: tuple[WarningPart, ...] = ()
    stacks: tuple[BranchPart, ...] = ()
    stacks_left_out: int | None = field(default=None, metadata=OMITTED)
    outlier_lines: tuple[OutlierLine, ...] = ()
    tool_version: str = ""
    seen_before: SeenBefore | None = field(default=None, metadata=OMITTED)
    report_path: str | None = field(default=None, metadata=OMITTED)
    page: PageData | None = field(default=None, metadata=OMITTED)

    @classmethod
    def without_claims(cls, message: str, hint: str, tool_version: str) -> Document:
        """Return the document of an analysis that could not be done: inconclusive, with the reason as its one warning."""
        return cls(
            schema=SCHEMA,
            status="inconclusive",
            headline=f"Inconclusive: {message}.",
            world_size=0,
            partial=Partial(True, "nothing could be analysed"),
            verdict=None,
            missing=(hint,) if hint else (),
            sources={"dump": 0, "log": 0, "stack": 0},
            warnings=(WarningPart("not_analysed", None, None, message, hint),),
            tool_version=tool_version,
        )

    @property
    def found(self) -> VerdictPart:
        """Return the verdict, or one that names nothing."""
        return self.verdict or NO_VERDICT

    @property
    def title(self) -> str:
        """Return what a ticket is called: the verdict's title, else the headline."""
        return self.found.title or self.headline
