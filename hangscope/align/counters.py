"""Ranks whose counts of calls contradict those of the ranks of their role.

Ranks of one role run one program, so one of two ranks is ahead of the other in every dimension, or equal. A rank that is ahead
in one dimension and behind in another issued its calls in another order, or skipped some. The recorder keeps these counts even where
it has overwritten the calls, and a dump that is older than its peers' is only behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hangscope.align.roles import GroupKind, group_kinds, roles
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence, Incident, RankRecord

MOST_CLASSES = 512  # of ranks with equal counts in one role
LEAST = 3  # ranks that contradict one: two of another group may have had less to do
MOST_PART = 3  # at most this part of a role's ranks contradicts the others
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Ranks (global) that are `ahead` of their `peers` in one dimension and `behind` them in another."""

    ranks: tuple[int, ...]
    peers: tuple[int, ...]
    ahead: GroupKind
    behind: GroupKind


def contradictions(incident: Incident) -> list[Contradiction]:
    """Return the few ranks of each role whose counts contradict those of others, where without them no two contradict each other."""
    kinds, found = group_kinds(incident.groups), list[Contradiction]()
    ranks = [r for r, own in sorted(incident.ranks.items()) if own.seen and own.absence is not Absence.TOLD]
    for own in roles(incident, ranks, kinds).values():
        counts = [_counts(incident.ranks[rank], kinds) for rank in own]
        columns = sorted({column for row in counts for column in row})
        table = np.array([[row.get(column, UNKNOWN) for column in columns] for row in counts])
        if len(own) > LEAST and len(columns) > 1:
            found += _of_role(np.array(own), table, columns)
    return found


def _counts(record: RankRecord, kinds: Sequence[GroupKind]) -> dict[tuple[GroupKind, bool], int]:
    """Return how many collectives, and how many sends and receives, a rank issued in each dimension, as its recorder counted them."""
    counts = {}
    for is_p2p, queues in ((False, record.queues), (True, record.p2p)):
        for gid, queue in queues.items():
            last = int(queue.seq[-1]) if len(queue) else 0
            counts[kinds[gid], is_p2p] = last if is_p2p else max(queue.frontier.enqueued or 0, last)
    return counts


def _of_role(
    ranks: np.ndarray, table: np.ndarray, columns: list[tuple[GroupKind, bool]]
) -> Iterator[Contradiction]:
    distinct, number, size = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    if not 1 < len(distinct) <= MOST_CLASSES:
        return
    known = distinct != UNKNOWN
    over = ((distinct[:, None] > distinct[None]) & known[:, None] & known[None]).any(axis=2)
    apart = over & over.T
    against = apart @ size  # how many ranks contradict each row
    worse = (against[:, None] > against[None]) | ~apart
    outliers = np.flatnonzero((against >= LEAST) & worse.all(axis=1))
    rest = np.setdiff1d(np.arange(len(distinct)), outliers)
    if apart[np.ix_(rest, rest)].any() or size[outliers].sum() * MOST_PART > len(ranks):
        return
    number = number.reshape(-1)
    for outlier in outliers.tolist():
        peers = np.flatnonzero(apart[outlier])
        peer = peers[np.argmax(size[peers])]
        difference = np.where(known[peer] & known[outlier], distinct[outlier] - distinct[peer], 0)
        yield Contradiction(
            tuple(ranks[number == outlier].tolist()),
            tuple(ranks[np.isin(number, peers)].tolist()),
            columns[int(difference.argmax())][0],
            columns[int(difference.argmin())][0],
        )
