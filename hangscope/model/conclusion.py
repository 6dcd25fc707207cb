"""The data of a conclusion: a fact and its source, a collective as it is quoted, the verdict. Ranks are global.

Reports show these objects as they are: the order of the fields is that of the JSON report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field

from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Stack
from hangscope.model.incident import Group, Sizes
from hangscope.model.rankset import agree, ranks_phrase

#: Metadata of a field that a report leaves out where it is None.
OMITTED = {"omit_none": True}


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a fact: a file relative to the analyzed path, and a line if there is one."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact behind a verdict. `stance` is for, against or missing; `kind` is dump, log, stack, exit or method.

    `quoted`: the text is a line of the source, as it was printed.
    """

    kind: str
    text: str
    rank: int | None = None
    stance: str = field(default="for", kw_only=True)
    source: Source | None = None
    quoted: bool | None = field(default=None, metadata=OMITTED, kw_only=True)

    @property
    def at(self) -> str:
        """Return the source as text; empty if it is not known."""
        return str(self.source) if self.source is not None and self.source.file else ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another cause that the evidence allows, and why it was not chosen."""

    cause: str
    why: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation that was weighed: what fits it, what contradicts it, and the one observation that would decide.

    `ranks` are global. `would_decide` distinguishes it from the best explanation and is empty for the best one itself.
    """

    cause: str
    ranks: tuple[int, ...]
    fits: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    would_decide: str = ""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """An explanation that was considered and excluded, and the fact that excludes it. `ranks` are global."""

    cause: str
    ranks: tuple[int, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Collect:
    """One thing to fetch next. `what` is dump, log, stack or other; `ranks` (global) are empty where it is of no rank."""

    ranks: tuple[int, ...]
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class CallRef:
    """One call as a verdict quotes it. Frames are innermost first; `group` is set where it is another than the verdict's, `completed` where it is not pending.

    `ranks` (global) are those whose frames these are, where the others in the collective are elsewhere or not shown.
    """

    op: str
    seq: int | None
    sizes: Sizes = ()
    dtypes: tuple[str, ...] = ()
    frames: Stack = ()
    group: str | None = field(default=None, metadata=OMITTED)
    completed: bool | None = field(default=None, metadata=OMITTED)
    ranks: tuple[int, ...] | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, slots=True)
class Location:
    """The deepest user frame on the culprit's side, and whose it is (global rank)."""

    file: str
    line: int
    function: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class WaitEnds:
    """The ranks (global) that reported a timeout, and those that raised another error, such as a lost connection. The others are blocked."""

    timed_out: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    def among(self, ranks: Iterable[int]) -> WaitEnds:
        """Return the same of some ranks only."""
        some = set(ranks)
        return WaitEnds(
            tuple(r for r in self.timed_out if r in some), tuple(r for r in self.failed if r in some)
        )

    def clause(self, ranks: Collection[int]) -> str:
        """Return what became of ranks in a collective, its verb last: `ranks 0-1 timed out and rank 2 is blocked`."""
        parts = []
        for state, some in self.parts(ranks):
            verb = f"{agree(some, 'is', 'are')} {state}" if state == "blocked" else state
            parts.append(f"{ranks_phrase(some)} {verb}")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    def state(self, ranks: Collection[int]) -> str:
        """Return the state of ranks: `blocked`, `timed out`, `failed`, or several as in `timed out or blocked`."""
        states = [state for state, _ in self.parts(ranks)]
        return " or ".join(filter(None, (", ".join(states[:-1]), *states[-1:])))

    def parts(self, ranks: Collection[int]) -> Iterator[tuple[str, list[int]]]:
        """Yield each state that occurs, with the ranks in it."""
        timed_out, failed = set(self.timed_out).intersection(ranks), set(self.failed).intersection(ranks)
        blocked = set(ranks) - timed_out - failed
        found = {"timed out": timed_out, "failed": failed, "blocked": blocked}
        yield from ((state, sorted(some)) for state, some in found.items() if some)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one root, what it is called, and how sure that is. See the README for the JSON form.

    `waiting_ranks` are all that wait, each in a call of its own group; `in_call` are those of them that are in the call
    which `group`, `op` and `seq` name. `wait_ends`: how the waits of some of them ended. All are global. `deciding` are indexes into `evidence`: what tells this cause from
    its rivals. `api` is the library call of the user's that contains the culprit's collective. `since` and `until` are ns
    since the epoch: the last progress and the end of the job, None where unknown. `title` has at most 80 characters, `summary`
    240, `explanation` 900. `confidence` is the lower of `rank_confidence` and `cause_confidence`. `suspect_ranks` is the smallest set
    that must contain the root cause; it includes `culprit_ranks`. `collect` says what to fetch next, the most useful first.
    """

    cause: str
    confidence: str
    culprit_ranks: tuple[int, ...]
    category: str
    summary: str
    group: Group | None = None
    op: str | None = None
    seq: int | None = None
    is_p2p: bool = False
    waiting_ranks: tuple[int, ...] = ()
    in_call: tuple[int, ...] = ()
    explained: int = 0
    culprit_call: CallRef | None = None
    waiting_call: CallRef | None = None
    location: Location | None = None
    evidence: Sequence[Evidence] = ()
    advice: Sequence[str] = ()
    alternatives: Sequence[Alternative] = ()
    fingerprint: str = ""
    deciding: tuple[int, ...] = ()
    api: str | None = None
    since: int | None = None
    until: int | None = None
    title: str = ""
    explanation: str = ""
    rank_confidence: str = "low"
    cause_confidence: str = "low"
    suspect_ranks: tuple[int, ...] = ()
    collect: Sequence[Collect] = ()
    wait_ends: WaitEnds = WaitEnds()
