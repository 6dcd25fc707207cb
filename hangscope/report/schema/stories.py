"""What the page shows of one cause: a story for each kind of fault, the sides of a divergence, and lines of source.

Ranks are global; where they are text they are written `0-2,5`. Frames are innermost first.
"""

from __future__ import annotations

from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PageFrame:
    """A stack frame; `differs`: the other side does not have it. `code` is the line's text where something quoted it."""

    name: str
    file: str
    line: int
    user: bool
    differs: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class SidePart:
    """One side of the divergence: who, in which call or stack, innermost frame first."""

    role: str
    title: str
    call: str
    rank: int | None
    frames: tuple[PageFrame, ...]


@dataclass(frozen=True, slots=True)
class SnippetLine:
    """One line of source; `hit` is the line that the label refers to."""

    number: int
    text: str
    hit: bool = False


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines of source around one that matters, with a label under it."""

    role: str
    file: str
    label: str
    lines: tuple[SnippetLine, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class OrderedCall:
    """One call of an order story: equal `key`s are the same call on both sides."""

    key: str
    text: str
    site: str
    state: str


@dataclass(frozen=True, slots=True)
class OrderStory:
    """Calls of two groups in different orders, side by side."""

    left_title: str
    right_title: str
    left: tuple[OrderedCall, ...]
    right: tuple[OrderedCall, ...]


@dataclass(frozen=True, slots=True)
class HalfPart:
    """A send, or its matching recv."""

    rank: int
    verb: str
    present: bool
    text: str
    site: str


@dataclass(frozen=True, slots=True)
class PairStory:
    """A send and its matching recv, one of which is missing or different."""

    pair: str
    send: HalfPart
    receive: HalfPart
    instead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far ranks are on one group (seqs; None: not known)."""

    ranks: str
    role: str
    enqueued: int | None
    started: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class DeviceStory:
    """Enqueued, started and completed per rank on the group of the verdict."""

    group: str
    progress: tuple[ProgressRow, ...]


@dataclass(frozen=True, slots=True)
class EndStory:
    """How a process ended: what its log or launcher says, with the frames of its traceback innermost first."""

    who: str
    ended: str
    trace: tuple[PageFrame, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinStory:
    """Who joined a group or rendezvous and who did not."""

    joined: str
    missing: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of two calls that should be alike."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        """Return whether the two differ."""
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class MismatchStory:
    """Two calls that cannot match, argument by argument."""

    left_title: str
    right_title: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class LastLine:
    """What ranks said or did last."""

    ranks: str
    role: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class LoopStory:
    """The ends of what two sides printed."""

    endings: tuple[LastLine, ...]


@dataclass(frozen=True, slots=True)
class StackStory:
    """Where the process is that issues no collective."""

    who: str
    since: str
    stack: tuple[PageFrame, ...]


@dataclass(frozen=True, slots=True)
class KnownStory:
    """What is known where no cause is: what was waited for, the exits, and what each rank said last."""

    awaited: tuple[str, ...]
    last_lines: tuple[LastLine, ...]
    left_out: int = 0


Story = (
    OrderStory
    | PairStory
    | DeviceStory
    | EndStory
    | JoinStory
    | MismatchStory
    | LoopStory
    | StackStory
    | KnownStory
)
