"""What the wait-for graph is made of: hosts, and the calls that they wait in.

Ranks are global. Nodes are values: two that say the same are one.
"""

from __future__ import annotations

from hangscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """The host of one rank."""

    rank: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective: the call at a seq of a group."""

    gid: int
    seq: int


@dataclass(frozen=True, slots=True)
class PairInstance:
    """One send with its receive: the `index`-th of a pair of ranks on a group, counted from 0."""

    gid: int
    source: int
    destination: int
    index: int


@dataclass(frozen=True, slots=True)
class Untold:
    """The call that a rank waits in and that no line names."""

    rank: int


@dataclass(frozen=True, slots=True)
class Unnamed:
    """The members of a group that no line names."""

    gid: int


Called = Instance | PairInstance
Node = Host | Called | Untold | Unnamed
