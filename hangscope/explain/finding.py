"""What may be the root of a freeze, before any cause is named: one class per kind of root."""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from typing import ClassVar, TypeVar

from hangscope.align.divergence import GroupHistory, RankEdit
from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Instance, PairInstance
from hangscope.align.p2p import Pair
from hangscope.align.waitgraph import Root
from hangscope.dataclass import dataclass
from hangscope.incident import CallKind, Event, Group


@dataclass(frozen=True, slots=True)
class Candidate:
    """Ranks that looked guilty and were set aside, with the reason."""

    ranks: tuple[int, ...]
    what: str
    why_set_aside: str


@dataclass(frozen=True, slots=True)
class StuckCall:
    """The call that the waiting ranks are stuck in.

    `view` and `history` are of its group (None: only text tells of it), `pair` is set for a send or receive; `rank` is one
    (global) that waits in it, `kind` what that rank called.
    """

    view: GroupFrontier | None = None
    seq: int | None = None
    rank: int | None = None
    kind: CallKind | None = None
    history: GroupHistory | None = None
    pair: Pair | None = None

    @property
    def group(self) -> Group | None:
        """Return its group, None where only text tells of it."""
        return self.view.group if self.view is not None else None

    @property
    def node(self) -> Instance | PairInstance | None:
        """Return the call as the wait-for graph has it, None where only text tells of it."""
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

    `skipped`, `added`: calls that they left out or made in addition; `swapped`: they made them, in another order; `edit`: the
    same, proved by what matches again behind it; `last_word`: nothing behind their odd call is seen; `elsewhere`: their odd
    call is on another group than the one the others wait in; `before`: what a waiting rank called until then, oldest first.
    """

    skipped: tuple[CallKind, ...] = ()
    added: tuple[CallKind, ...] = ()
    swapped: bool = False
    edit: RankEdit | None = None
    last_word: bool = False
    elsewhere: bool = False
    before: tuple[CallKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One possible root.

    `culprits`: global ranks (empty: nobody can be named). `waiting`: all ranks with an open call but the culprits; `reached`:
    those of them that lead to this root. `circle`: the circular wait that it was found in. `tie`: the parts are even and
    history is silent. `assumed`: it rests on an assumption about who waits for whom. `guess`: it rests on what ranks printed
    last, or on counts of one moment. `events`: the lines that a finding from text rests on. `set_aside`: who looked guilty
    instead.
    """

    name: ClassVar[str] = ""
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
    def explained(self) -> int:
        """Return how many of the waiting ranks lead to this root."""
        return len(self.reached)


@dataclass(frozen=True, slots=True)
class Nothing(Finding):
    """Nothing is open and nothing differs, as far as calls tell."""

    name: ClassVar[str] = "none"


@dataclass(frozen=True, slots=True)
class Different(Finding):
    """The culprits made a call that cannot match, or went another way than their peers."""

    name: ClassVar[str] = "different"


@dataclass(frozen=True, slots=True)
class Extra(Finding):
    """The culprits are the few who made a call that the others do not make."""

    name: ClassVar[str] = "extra"


@dataclass(frozen=True, slots=True)
class Absent(Finding):
    """The culprits were seen, wait for nobody, and have not made the call."""

    name: ClassVar[str] = "absent"


@dataclass(frozen=True, slots=True)
class Late(Finding):
    """The culprits made the very call after the others had given up waiting."""

    name: ClassVar[str] = "late"


@dataclass(frozen=True, slots=True)
class Unseen(Finding):
    """The culprits left no usable record, and the others wait for them."""

    name: ClassVar[str] = "unseen"


@dataclass(frozen=True, slots=True)
class Lagging(Finding):
    """The culprits' devices have not finished what their peers' completions prove to be over."""

    name: ClassVar[str] = "half"


@dataclass(frozen=True, slots=True)
class Unstarted(Lagging):
    """The culprits' devices have not begun the call that all made and that their peers' devices are in."""

    name: ClassVar[str] = "not begun"


@dataclass(frozen=True, slots=True)
class Circular(Finding):
    """Calls wait for each other in a circle (`circle` is set)."""

    name: ClassVar[str] = "cycle"


@dataclass(frozen=True, slots=True)
class Unpaired(Finding):
    """A send and a receive that do not meet, or not with equal sizes.

    `more`: how many more of them the culprits made than the ranks at their places in the peer groups (0: that tells nothing).
    """

    name: ClassVar[str] = "unpaired"
    more: int = 0


@dataclass(frozen=True, slots=True)
class Stalled(Finding):
    """All members joined a call that none finishes."""

    name: ClassVar[str] = "stalled"


AnyFinding = TypeVar("AnyFinding", bound=Finding)


def reaching(finding: AnyFinding, waiting: tuple[int, ...], explains: frozenset[int]) -> AnyFinding:
    """Return a finding with who waits, and which of them lead to its root."""
    return replace(finding, waiting=waiting, reached=explains.intersection(waiting))


class Source(Enum):
    """What a finding rests on."""

    CALLS = "calls"  # that dumps recorded, or lines of the watchdog state
    OWN_WORDS = "own words"  # ranks say which call they were in
    REPORT = "report"  # somebody counted all ranks
    HINT = "hint"
    SILENCE = "silence"  # who printed no error, or stood elsewhere, while all others failed
    OUTPUT = "output"  # what the program itself printed last


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
    `set_aside`: who looked guilty. `weighed`: all findings, the best first.
    """

    best: Finding
    from_text: bool = False
    rivals: tuple[Finding, ...] = ()
    set_aside: tuple[Candidate, ...] = ()
    weighed: tuple[Weighed, ...] = ()
