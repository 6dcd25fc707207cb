"""What the dumps show as the root of a freeze, before any cause is named."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangscope.align.divergence import GroupHistory, RankEdit
from hangscope.align.frontier import GroupFrontier
from hangscope.align.p2p import Pair
from hangscope.align.waitgraph import Root
from hangscope.incident import CallKind, Event


@dataclass(frozen=True, slots=True)
class Candidate:
    """Ranks that looked guilty and were set aside, with the reason."""

    ranks: tuple[int, ...]
    what: str
    why_set_aside: str


@dataclass(slots=True)
class Finding:
    """The root as the dumps show it, before any cause is named.

    `form`: different, absent, shifted, extra, half, unseen, cycle, unpaired, stalled or none. `culprits`: global ranks
    (empty: nobody can be named). `seq` is what the waiting ranks are stuck in; `waiting` are all ranks with an open
    call but the culprits, `reached` those of them that lead to this root and `explained` their number. `skipped`, `added`: calls that the culprit left
    out or made in addition; `swapped`: it made them, in another order; `last_word`: nothing behind its odd call is seen; `elsewhere`: its odd call is on another group than the one the others wait in; `before`: what a waiting rank called until then. `tie`: the sides are even and history is silent. `guess`: it
    rests on what ranks printed last, or on counts of one moment. `events` are the lines that a finding from text rests on. `rivals` are other roots, whose ranks show a fault of their own.
    """

    form: str
    culprits: tuple[int, ...] = ()
    view: GroupFrontier | None = None
    history: GroupHistory | None = None
    seq: int | None = None
    waiting: tuple[int, ...] = ()
    explained: int = 0
    reached: frozenset[int] = frozenset()
    waiting_rank: int | None = None
    waiting_kind: CallKind | None = None
    own_kind: CallKind | None = None
    own_seq: int | None = None
    sides: tuple[tuple[int, ...], ...] = ()
    edit: RankEdit | None = None
    skipped: tuple[CallKind, ...] = ()
    added: tuple[CallKind, ...] = ()
    swapped: bool = False
    last_word: bool = False
    elsewhere: bool = False
    before: list[CallKind] = field(default_factory=list)
    pair: Pair | None = None
    root: Root | None = None
    tie: bool = False
    assumed: bool = False
    guess: bool = False
    events: list[Event] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    rivals: list[Finding] = field(default_factory=list)
