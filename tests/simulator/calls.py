"""What a rank's program consists of: groups, calls and the host's other doings.

Ranks are global, except `src`, `dst` and `root`, which are group-local like the recorder's own names.
Programs are plain lists of these objects; healthy ones share them between ranks, so nothing here is changed
after it was built.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: ((function, file, line), ...), innermost first; () for a call that the recorder saw without Python frames
Stack = tuple[tuple[str, str, int], ...]
Sizes = tuple[tuple[int, ...], ...]

BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Int": 4, "Byte": 1, "Double": 8}


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: `gid` is unique in the job, `name` need not be (sub-groups made by one split share
    theirs).
    """

    gid: int
    name: str
    desc: str
    ranks: tuple[int, ...]

    def local(self, rank: int) -> int:
        """Return the group-local number of a global rank."""
        return self.ranks.index(rank)


@dataclass(frozen=True, slots=True)
class Where:
    """The part of the training script that an operation belongs to.

    `phase` is init, data, forward, backward, optimizer, metrics, log (all inside the loop over batches), or
    epoch_end, validation, checkpoint, final; `epoch` and `step` are -1 outside of them.
    """

    epoch: int
    step: int
    phase: str

    @property
    def in_loop(self) -> bool:
        """Whether it is inside the loop over batches."""
        return self.step >= 0


@dataclass(slots=True)
class Call:
    """One operation that the recorder writes an entry for. `asynchronous`: the compute stream does not wait
    for it; `detached`: another thread makes it, and only a `Join` waits for it; `peers`: the global ranks with
    which an all_to_all exchanges data, where that is not all of the group.
    """

    op: str
    group: Group
    inputs: Sizes
    outputs: Sizes
    dtype: str
    where: Where
    stack: Stack = ()
    asynchronous: bool = False
    src: int | None = None
    dst: int | None = None
    root: int = 0
    detached: bool = False
    peers: tuple[int, ...] | None = None

    @property
    def is_p2p(self) -> bool:
        """Whether this is a send or a receive."""
        return self.src is not None

    @property
    def numel(self) -> tuple[int, int]:
        """Return how many elements go in and come out."""
        return _numel(self.inputs), _numel(self.outputs)


@dataclass(slots=True)
class Batch:
    """Point-to-point calls on one group that are launched as one (batch_isend_irecv)."""

    calls: list[Call]
    where: Where
    stack: Stack = ()

    @property
    def group(self) -> Group:
        """Return the group of all its calls."""
        return self.calls[0].group


@dataclass(slots=True)
class Wait:
    """The compute stream waits for the asynchronous calls made so far; the host goes on."""

    where: Where


@dataclass(slots=True)
class Sync:
    """The host waits for everything that the compute stream waits for: `.item()`, a barrier's own wait."""

    where: Where
    stack: Stack = ()


@dataclass(slots=True)
class Join:
    """The host waits for the calls that its other thread has made so far."""

    where: Where
    stack: Stack = ()


@dataclass(slots=True)
class Compute:
    """The host is busy for some seconds outside of any collective."""

    seconds: float
    where: Where


@dataclass(slots=True)
class Print:
    """A line on the rank's own output."""

    text: str
    where: Where


@dataclass(slots=True)
class Stall:
    """The host never comes back from here; `stack` says what it is doing."""

    where: Where
    stack: Stack


@dataclass(slots=True)
class End:
    """The process ends: by an exception (`lines`: its traceback), a signal (`code` < 0) or itself (0)."""

    where: Where
    code: int
    lines: list[str] = field(default_factory=list)


Step = Call | Batch | Wait | Sync | Join | Compute | Print | Stall | End
Program = list[Step]


def _numel(sizes: Sizes) -> int:
    total = 0
    for shape in sizes:
        product = 1
        for extent in shape:
            product *= extent
        total += product
    return total
