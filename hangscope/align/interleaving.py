"""Where two ranks' programs part: their calls of all groups in enqueue order, compared from a call that they shared.

One group alone cannot tell a rank that skipped a call and went on in another group from one that has not come so far.
Groups are compared by what they are for (description, size), because two ranks of one role are in different groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from hangscope.align.frontier import site_keys
from hangscope.align.sequence_diff import continues, expected
from hangscope.incident import CallKind, Incident

ANCHORS = 48  # shared calls that are tried as a common start
PROVEN_ALIKE = 12  # calls before a parting that must agree
LAST_CALLS = 48  # how far back a rank's own straying is looked for
HISTORY = 768  # calls before the parting that a rank's own pattern is taken from


@dataclass(frozen=True, slots=True)
class Parting:
    """Two ranks' first different calls after a shared one; rows are positions in each rank's interleaved calls.

    `odd` is the rank that left its own pattern there (None: history does not tell). `skipped` are calls that the odd rank's
    pattern calls for before the one it made; `swapped` says that it made them later; `added` is a call
    that its pattern does not hold, where the pattern goes on behind it. `broke` and `kept`: who left and who kept its own pattern.
    """

    ranks: tuple[int, int]
    rows: tuple[int, int]
    odd: int | None
    skipped: tuple[CallKind, ...] = ()
    added: CallKind | None = None
    swapped: bool = False
    broke: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


@dataclass(slots=True)
class Program:
    """One rank's calls of all groups in enqueue order, as parallel columns."""

    gid: Any
    seq: Any
    kind: Any
    created: Any
    order: Any
    is_p2p: Any
    sites: list[int]
    tokens: list[int]
    labels: dict[int, Any]

    @property
    def whole(self) -> bool:
        """Return whether every group's calls are kept from the first one on."""
        return len(self.seq) > 0 and all(
            int(self.seq[self.gid == gid].min()) <= 1 for gid in np.unique(self.gid)
        )

    def row_of(self, gid: int, seq: int) -> int | None:
        """Return the row of a collective, or None where it was not kept."""
        found = np.flatnonzero((self.gid == gid) & (self.seq == seq) & ~self.is_p2p)
        return int(found[0]) if len(found) else None


class Interleaving:
    """The programs of an incident's ranks, built when they are asked for."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self._programs: dict[int, Program] = {}
        self._tokens: dict[Any, int] = {}
        self._site: Any = None
        self._members: dict[int, frozenset[int]] = {}
        self._keeping: dict[tuple[int, int], bool | None] = {}

    def program(self, rank: int) -> Program:
        """Return one rank's program."""
        found = self._programs.get(rank)
        if found is None:
            found = self._programs[rank] = self._build(rank)
        return found

    def _build(self, rank: int) -> Program:
        if self._site is None:
            self._site = site_keys(self.incident.kinds)
        record = self.incident.ranks[rank]
        queues = [
            (q, p2p)
            for queues, p2p in ((record.queues, False), (record.p2p, True))
            for _, q in sorted(queues.items())
            if len(q)
        ]
        if not queues:
            empty = np.empty(0, np.int64)
            return Program(empty, empty, empty, empty, empty, empty.astype(bool), [], [], {})
        order = np.concatenate([q.order for q, _ in queues])
        by_order = np.argsort(order, kind="stable")
        labels = self._labels(rank)
        gid = np.concatenate([np.full(len(q), q.gid, np.int64) for q, _ in queues])[by_order]
        kind = np.concatenate([q.kind for q, _ in queues])[by_order]
        sites = self._site[kind].tolist()
        return Program(
            gid=gid,
            seq=np.concatenate([q.seq for q, _ in queues])[by_order],
            kind=kind,
            created=np.concatenate([q.created for q, _ in queues])[by_order],
            order=order[by_order],
            is_p2p=np.concatenate([np.full(len(q), p2p, bool) for q, p2p in queues])[by_order],
            sites=sites,
            tokens=[
                self._tokens.setdefault((labels[g], site), len(self._tokens))
                for g, site in zip(gid.tolist(), sites, strict=True)
            ],
            labels=labels,
        )

    def _labels(self, rank: int) -> dict[int, Any]:
        """Return what each of a rank's groups is for: its description and size, or its place among the rank's groups."""
        record = self.incident.ranks[rank]
        labels: dict[int, Any] = {}
        counts: dict[Any, int] = {}
        for gid in sorted(set(record.queues) | set(record.p2p)):
            group = self.incident.groups[gid]
            base = (group.desc, len(group.ranks))
            counts[base] = counts.get(base, 0) + 1
            labels[gid] = (*base, counts[base])
        return labels

    def part(self, behind: int, ahead: int, gid: int, seq: int) -> Parting | None:
        """Return where `behind`, which has not made call (gid, seq), and `ahead`, which has, went different ways.

        None where `behind` simply has not come so far, or where the two share no earlier call that both kept.
        """
        mine, theirs = self.program(behind), self.program(ahead)
        groups = {g for g in {*mine.labels, *theirs.labels} if self._has(g, behind) and self._has(g, ahead)}
        start = self._common_start(mine, theirs, gid, seq, groups)
        if start is None:
            return None
        for (i, a), (j, b) in zip(
            _comparable(mine, theirs, start[0], groups),
            _comparable(theirs, mine, start[1], groups),
            strict=False,
        ):
            if a != b:
                return self._judge(behind, ahead, i, j)
        return None

    def _common_start(
        self, mine: Program, theirs: Program, gid: int, seq: int, groups: set[int]
    ) -> tuple[int, int] | None:
        """Return the rows behind the last shared call before `seq` up to which both programs agree.

        Ranks of different pipeline stages share groups and differ all the time, so they have none. A call that was
        skipped where the rest happens to fit shifts what follows: then an earlier shared call is the last one in step.
        """
        shared = np.intersect1d(
            mine.seq[(mine.gid == gid) & ~mine.is_p2p], theirs.seq[(theirs.gid == gid) & ~theirs.is_p2p]
        )
        shared = shared[shared < seq]
        for candidate in shared[::-1][:ANCHORS]:
            i, j = mine.row_of(gid, int(candidate)), theirs.row_of(gid, int(candidate))
            if i is None or j is None:
                continue
            before = zip(
                _comparable(mine, theirs, i, groups, -1),
                _comparable(theirs, mine, j, groups, -1),
                strict=False,
            )
            if all(a == b for (_, a), (_, b) in islice(before, PROVEN_ALIKE)):
                return i + 1, j + 1
        # Without a shared call both must be known from their first call on.
        return (0, 0) if not len(shared) and mine.whole and theirs.whole else None

    def _has(self, gid: int, rank: int) -> bool:
        members = self._members.get(gid)
        if members is None:
            members = self._members[gid] = frozenset(self.incident.groups[gid].ranks)
        return rank in members

    def _judge(self, behind: int, ahead: int, i: int, j: int) -> Parting:
        keeps = {rank: self._keeps_pattern(rank, row) for rank, row in ((behind, i), (ahead, j))}
        odd = None
        if keeps[behind] is not True and keeps[ahead] is True:
            odd = behind
        elif keeps[ahead] is not True and keeps[behind] is True:
            odd = ahead
        elif keeps[behind] is False and keeps[ahead] is None:
            odd = behind
        elif keeps[ahead] is False and keeps[behind] is None:
            odd = ahead
        broke = tuple(r for r, keep in keeps.items() if keep is False)
        kept = tuple(r for r, keep in keeps.items() if keep)
        parting = Parting((behind, ahead), (i, j), None, broke=broke, kept=kept)
        return parting if odd is None else self.blame(parting, odd)

    def blame(self, parting: Parting, odd: int) -> Parting:
        """Return the parting with `odd` as the rank that went astray, and what it left out or added."""
        if parting.odd == odd:
            return parting
        (behind, ahead), (i, j) = parting.ranks, parting.rows
        row = i if odd == behind else j
        other, other_row = (ahead, j) if odd == behind else (behind, i)
        return self._explain(odd, row, other, other_row, parting)

    def _keeps_pattern(self, rank: int, row: int) -> bool | None:
        key = (rank, row)
        if key not in self._keeping:
            tokens = self.program(rank).tokens
            self._keeping[key] = continues(tokens[max(0, row - HISTORY) : row], tokens[row])
        return self._keeping[key]

    def _explain(self, odd: int, row: int, other: int, other_row: int, parting: Parting) -> Parting:
        """Fill in what the odd rank left out or added at `row`."""
        tokens = self.program(odd).tokens
        history = tokens[max(0, row - HISTORY) : row]
        ahead = expected(history, 96)
        token = tokens[row]
        kinds = self.incident.kinds
        own_kind = kinds[int(self.program(odd).kind[row])]
        kind_of = {t: kinds[int(k)] for t, k in zip(tokens, self.program(odd).kind, strict=True)}
        kind_of.update(
            {
                t: kinds[int(k)]
                for t, k in zip(
                    self.program(other).tokens[: other_row + 1], self.program(other).kind, strict=False
                )
            }
        )
        if token in ahead[1:]:
            left_out = ahead[: ahead.index(token, 1)]
            later = tokens[row + 1 : row + 1 + 2 * len(left_out) + 2]
            return replace(
                parting,
                odd=odd,
                skipped=tuple(kind_of[t] for t in left_out if t in kind_of),
                swapped=_made_later(left_out, later),
            )
        goes_on = len(ahead) > 1 and tokens[row + 1 : row + 3] == ahead[:2]
        return replace(parting, odd=odd, added=own_kind if goes_on else None)

    def breaks_pattern(self, rank: int, order: int) -> bool:
        """Return whether a rank's call with this enqueue number leaves the pattern that the rank repeated before."""
        program = self.program(rank)
        rows = np.flatnonzero(program.order == order)
        return bool(len(rows)) and self._keeps_pattern(rank, int(rows[0])) is False

    def strays(self, rank: int) -> bool:
        """Return whether any of a rank's last calls leaves the pattern that the rank repeated before."""
        rows = len(self.program(rank).tokens)
        return any(self._keeps_pattern(rank, row) is False for row in range(max(0, rows - LAST_CALLS), rows))

    def before(self, rank: int, row: int) -> list[CallKind]:
        """Return what a rank called before a row, oldest first."""
        program = self.program(rank)
        return [self.incident.kinds[int(k)] for k in program.kind[max(0, row - HISTORY) : row]]

    def call(self, rank: int, row: int) -> tuple[int, int, CallKind, int]:
        """Return (gid, seq, kind, enqueue time in ns) of a rank's row."""
        program = self.program(rank)
        return (
            int(program.gid[row]),
            int(program.seq[row]),
            self.incident.kinds[int(program.kind[row])],
            int(program.created[row]),
        )


def _comparable(
    program: Program, other: Program, start: int, shared: set[int], step: int = 1
) -> Iterator[tuple[int, tuple[Any, int]]]:
    """Yield (row, token) of the calls from `start` on (or backwards) that the other rank makes as well.

    A group that both are in is itself; any other is what it is for, and counts only where the other rank has its like.
    """
    alike = {label for gid, label in other.labels.items() if gid not in shared}
    for row in range(start, len(program.sites) if step > 0 else -1, step):
        gid = int(program.gid[row])
        if gid in shared:
            yield row, (gid, program.sites[row])
        elif program.labels[gid] in alike:
            yield row, (program.labels[gid], program.sites[row])


def _made_later(left_out: Sequence[int], later: Sequence[int]) -> bool:
    """Return whether the calls that were left out were made right after, out of order."""
    return bool(left_out) and len(later) >= len(left_out) and list(later[: len(left_out)]) == list(left_out)
