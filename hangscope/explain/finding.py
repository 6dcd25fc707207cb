"""What may be the root of a freeze, before any cause is named: one class per kind of root."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import ClassVar, TypeVar

from hangscope.align.counters import Contradiction
from hangscope.align.frontier import GroupFrontier
from hangscope.align.p2p import Pair, PairInstance
from hangscope.align.waitgraph import Instance, Root
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Event, Group


@dataclass(frozen=True, slots=True)
class Candidate:
    """Ranks that looked guilty and were set aside, with the reason."""

    ranks: tuple[int, ...]
    what: str
    why_set_aside: str


@dataclass(frozen=True, slots=True)
class StuckCall:
    """The call that the waiting ranks are stuck in.

    `view` is of its group (None: only text reports it), `pair` is set for a send or receive; `rank` is a (global) rank that waits
    in it, `kind` what that rank issued, and `before` what it issued before, oldest first.
    """

    view: GroupFrontier | None = None
    seq: int | None = None
    rank: int | None = None
    kind: CallKind | None = None
    before: tuple[CallKind, ...] = ()
    pair: Pair | None = None

    @property
    def group(self) -> Group | None:
        """Return its group, None if only text shows it."""
        return self.view.group if self.view is not None else None

    @property
    def node(self) -> Instance | PairInstance | None:
        """Return the call as the wait-for graph has it, None if only text shows it."""
        if self.pair is not None or self.group is None or self.seq is None:
            return self.pair.key if self.pair is not None else None
        return Instance(self.group.gid, self.seq)


@dataclass(frozen=True, slots=True)
class OwnCall:
    """The last or odd call of the culprits themselves, as far as it is known; `gid` where it is on another group than the stuck one."""

    kind: CallKind | None = None
    seq: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How the culprits' program parts from its own pattern and from its peers'.

    `skipped`, `added`: calls that they left out or issued in addition; `shift`: how many more calls they issued (negative: fewer),
    also where these are older than what was retained; `swapped`: they issued them in another order; `matched`: how many calls
    match again after that; `votes`: how many ranks of the same role agree against the culprits; `last_word`: nothing after their
    deviating call was recorded; `elsewhere`: it is on another group than the one the others wait in; `of_one_group`: what was skipped is.
    """

    skipped: tuple[CallKind, ...] = ()
    added: tuple[CallKind, ...] = ()
    shift: int = 0
    swapped: bool = False
    matched: int = 0
    votes: int = 0
    last_word: bool = False
    elsewhere: bool = False
    of_one_group: bool = True

    @property
    def realigned(self) -> bool:
        """Return whether the calls after those that were skipped or added match again."""
        return self.matched > 1 and self.shift != 0

    @property
    def postponed(self) -> bool:
        """Return whether a stretch of calls on another group came first: behind it they made no more of the others' next calls than in that order."""
        first = self.elsewhere and self.of_one_group and not self.added
        return first and 0 < self.matched <= len(self.skipped)

    @property
    def proven(self) -> bool:
        """Return whether everything after the change matches again."""
        return self.realigned or (self.votes > 1 and (self.matched > 1 or self.swapped))


@dataclass(frozen=True, slots=True)
class Finding:
    """One possible root.

    `culprits`: global ranks (empty: nobody can be named). `waiting`: all ranks with an open call but the culprits; `reached`:
    those of them that lead to this root. `circle`: the circular wait that it was found in. `tie`: the parts are even and
    history is silent. `assumed`: it rests on an assumption about who waits for whom. `guess`: it rests on what ranks printed
    last, or on counts of one moment. `events`: the lines that a finding from text rests on. `set_aside`: who looked guilty
    instead. `cost`: how surprising such a root is (see `price`).
    """

    name: ClassVar[str] = ""
    cost: ClassVar[float] = 0.0
    culprits: tuple[int, ...] = ()
    stuck: StuckCall = field(default_factory=StuckCall)
    own: OwnCall = field(default_factory=OwnCall)
    change: Change = field(default_factory=Change)
    waiting: tuple[int, ...] = ()
    reached: frozenset[int] = frozenset()
    circle: Root | None = None
    tie: bool = False
    assumed: bool = False
    guess: bool = False
    events: tuple[Event, ...] = ()
    set_aside: tuple[Candidate, ...] = ()

    @property
    def telling(self) -> StuckCall:
        """Return the call that shows the fault: the one that ranks are stuck in."""
        return self.stuck

    @property
    def explained(self) -> int:
        """Return how many of the waiting ranks lead to this root."""
        return len(self.reached)


AnyFinding = TypeVar("AnyFinding", bound=Finding)


class Nothing(Finding):
    """Nothing is open and nothing differs, as far as calls tell."""

    name = "none"


class Different(Finding):
    """The culprits made a call that cannot match, or went another way than their peers."""

    name, cost = "different", 0.0


class OtherRoot(Different):
    """The culprits hold the buffers that only the root of a collective has, as another member does: they passed another root."""

    name = "other root"


class OtherMembers(Different):
    """The culprits created a group with other members than the rest of its members did."""

    name = "other members"


class Extra(Finding):
    """The culprits are the few who made a call that the others do not make."""

    name, cost = "extra", 0.2


class Absent(Finding):
    """The culprits were seen, wait for nobody, and have not made the call."""

    name, cost = "absent", 0.2


class Unseen(Finding):
    """The culprits left no usable record, and the others wait for them."""

    name, cost = "unseen", 0.4


@dataclass(frozen=True, slots=True)
class Lagging(Finding):
    """The culprits' devices have not finished what their peers' completions prove to be over; `lag` is the first such collective."""

    name, cost = "half", 0.3
    lag: StuckCall = field(default_factory=StuckCall)

    @property
    def telling(self) -> StuckCall:
        """Return the collective that the devices have not finished; the other ranks may be stuck in a later one."""
        return self.lag


class Unstarted(Lagging):
    """The culprits' devices have not begun the call that all made and that their peers' devices are in."""

    name = "not begun"


class Circular(Finding):
    """Calls wait for each other in a circle (`circle` is set)."""

    name, cost = "cycle", 0.5


class Unpaired(Finding):
    """A send and a receive that do not meet, or not with equal sizes."""

    name, cost = "unpaired", 0.1


@dataclass(frozen=True, slots=True)
class Miscounted(Unpaired):
    """The culprits issued another number of operations before a collective, sends and receives that no recorder keeps: `count` instead of `usual`."""

    name = "miscounted"
    usual: int = 0
    count: int = 0


class Stalled(Finding):
    """All members joined a call that none finishes."""

    name, cost = "stalled", 0.6


class Source(Enum):
    """What a finding rests on: what it costs that no recorder shows it, and what names the ranks, in words."""

    CALLS = 0.0, "the collectives"  # of dumps, or lines of the watchdog
    OWN_WORDS = 0.05, "the errors that ranks printed"
    REPORT = 0.25, "a report on all ranks"
    HINT = 0.65, "an indirect sign"
    SILENCE = 0.75, "what stacks and logs show"  # a place elsewhere, or no output while all others failed
    OUTPUT = 0.85, "the program's output"


def price(finding: Finding, source: Source) -> float:
    """Return what a finding costs, 0 to 1, against the share of the waiting ranks that lead to its root.

    Prices are steps of one tenth: a root of a more certain kind is not given up for one that explains a tenth of the ranks
    more. They follow from what each kind of evidence leaves open, and were fitted to nothing; docs/score.md shows how they do.
    """
    unrecorded: float = source.value[0]
    proven = finding.change.votes > 1
    return unrecorded or (0.0 if proven else finding.cost)


@dataclass(frozen=True, slots=True)
class Weighed:
    """A finding, what it rests on, and its score: the share of the waiting ranks that it explains, less its price."""

    finding: Finding
    source: Source
    score: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The finding that fits best, and what was weighed against it.

    `from_text`: it rests on lines and stacks, and not on calls. `rivals`: other roots whose ranks show a fault of their own.
    `set_aside`: who looked guilty. `weighed`: all findings, the best first. `suspects`: the ranks (global) one of which must be at
    fault, as far as calls tell. `contradictions`: whose counts of calls contradict those of their peers.
    """

    best: Finding
    from_text: bool = False
    rivals: tuple[Finding, ...] = ()
    set_aside: tuple[Candidate, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    suspects: tuple[int, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
