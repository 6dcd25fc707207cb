"""Dumps of an earlier attempt or of another job among those of the job that froze, and dumps that were changed or copied after they were written.

What a recorder cannot have written is checked where a dump is read (`recorder/plausibility.py`); here, what it can have written, but not
together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from hangscope.errors import Note
from hangscope.ingest.evidence.claim import Claim, is_default, world_of
from hangscope.model.incident import PROVING_OPS, State

CLOCK_SLACK = 2 * 10**9  # ns by which hosts' clocks may disagree
APART = 60 * 10**9  # ns: clocks that disagree by more than a minute are no clocks
MEETINGS = 16  # collectives of two ranks before the distance of their clocks can be called constant
DRIFT = 2  # times the usual change from call to call: so far apart they may be half a history later
COMPARED = 4  # dumps of either side of a gap, of which one contradiction is enough
_TIMES = 16  # of a rank's last calls; no two processes make two calls each in the same nanoseconds
_HINT = "copy the dumps again from where the job wrote them"


def stale_among(chosen: dict[int, Claim]) -> list[Claim]:
    """Return the dumps that end before their peers' begin, or whose world does not fit the others'."""
    claims = [chosen[r] for r in sorted(chosen)]
    impossible = _before_the_last_attempt(claims)
    if impossible or len(claims) < 3:
        return impossible
    worlds = {c.rank: world_of(c.recording) for c in claims}
    common = Counter(w for w in worlds.values() if w).most_common(1)
    # A dump of pending calls only begins when the job froze, which says nothing of its history.
    begins = sorted(
        c.first_created for c in claims if c.first_created and State.DONE in c.recording.columns["state"]
    )
    # A quarter of the ranks may have begun early (a rank that left at once); the rest is "its peers".
    begin = begins[len(begins) // 4] if len(begins) * 2 > len(claims) else 0
    early = [c for c in claims if 0 < c.last_created < begin - CLOCK_SLACK]
    touching = _touching(early, claims) if early else set()
    result = []
    for claim in claims:
        world = worlds[claim.rank]
        misfit = bool(common and world and world != common[0][0] and common[0][1] * 2 > len(claims))
        ends_before = 0 < claim.last_created < begin - CLOCK_SLACK
        if misfit or (ends_before and claim.rank not in touching):
            result.append(claim)
    return result if len(result) * 2 < len(claims) else []


def _before_the_last_attempt(claims: Sequence[Claim]) -> list[Claim]:
    """Return the dumps of an earlier attempt: by them calls were over long before a later dump's rank had made them.

    A collective completes on no rank before all have issued it, so that two such dumps are not of one run, however their
    sequence numbers agree. The last run is the one that is analysed, be its dumps the fewer.
    """
    timed = sorted((c for c in claims if c.last_created), key=lambda c: (c.last_created, c.rank))
    for place in range(len(timed) - 1, 0, -1):
        older, newer = timed[:place], timed[place:]
        gap = newer[0].last_created - older[-1].last_created > APART
        if gap and any(_contradict(old, new) for old in older[-COMPARED:] for new in newer[:COMPARED]):
            return sorted(older, key=lambda c: c.rank)
    return []


def _contradict(old: Claim, new: Claim) -> bool:
    """Return whether a collective was over in the older dump before the rank of the newer one issued it."""
    before, after = _issued(old), _issued(new)
    for name, over in _completed(old, new.rank):
        calls = after.get(name, {})
        late = any(created > old.last_created + APART for seq, created in calls.items() if seq in over)
        if late and not _kept_their_distance(before.get(name, {}), calls):
            return True
    return False


def _kept_their_distance(old: Mapping[int, int], new: Mapping[int, int]) -> bool:
    """Return whether two ranks made the calls of a group (seq -> ns) together, by clocks that a constant sets apart.

    Who meets in each call is no further from the other after many than after one; two runs of one program drift apart. Equal times
    to the nanosecond are no measurements.
    """
    common = sorted(old.keys() & new.keys())
    if len(common) < MEETINGS:
        return False
    apart = np.array([new[seq] - old[seq] for seq in common])
    half = len(apart) // 2
    soon, late = np.median(np.abs(np.diff(apart))), np.median(np.abs(apart[half:] - apart[:-half]))
    return bool(soon > 0 and late <= DRIFT * soon)


def _completed(claim: Claim, other: int) -> Iterator[tuple[str, set[int]]]:
    """Yield each group that another rank (global) is in too, with the sequence numbers of the collectives that were completed."""
    proving = np.array([row[0] in PROVING_OPS for row in claim.recording.kinds], bool)
    if not len(proving):
        return
    done = (claim.column("state") == State.DONE) & proving[claim.column("kind")]
    for _, name, desc, rows in claim.by_group():
        _, ranks = claim.recording.config.get(name, ("", None))
        if is_default(name, desc) or (ranks and other in ranks):
            yield name, set(claim.column("seq")[done & rows].tolist())


def _issued(claim: Claim) -> dict[str, dict[int, int]]:
    """Return when a rank issued the collectives of each group: name -> seq -> ns."""
    seq, created = claim.column("seq"), claim.column("created")
    return {
        name: dict(zip(seq[rows].tolist(), created[rows].tolist(), strict=True))
        for _, name, _, rows in claim.by_group()
    }


def _touching(early: Sequence[Claim], claims: Sequence[Claim]) -> set[int]:
    """Return the early ranks whose peers are stuck right where their dump ends: they took part, and stopped early."""
    ends: dict[str, Counter[int]] = defaultdict(Counter)
    for claim in claims:
        for name, seq in _last_seqs(claim):
            ends[name][seq] += 1
    return {
        claim.rank
        for claim in early
        if any(ends[name][last] > 1 or ends[name][last + 1] for name, last in _last_seqs(claim))
    }


def _last_seqs(claim: Claim) -> Iterator[tuple[str, int]]:
    """Yield each group's name and the largest sequence number on it."""
    for _, name, _, rows in claim.by_group():
        if rows.any():
            yield name, int(claim.column("seq")[rows].max())


def copies(claims: Collection[Claim]) -> tuple[list[Claim], list[Note]]:
    """Return the dumps whose calls were made in the same nanoseconds as another rank's, and a note for each.

    One of them is the original, and nothing shows which: they are evidence of neither rank. Where most dumps are alike, or
    others share the time of their first call as well, the times are no measurements, and nothing is returned.
    """
    alike: dict[bytes, list[Claim]] = defaultdict(list)
    for claim in claims:
        created = claim.column("created")[-_TIMES:]
        if np.count_nonzero(created) > 1:
            alike[created.tobytes()].append(claim)
    same = [group for group in alike.values() if len(group) > 1]
    found = [claim for group in same for claim in group]
    ranks = {claim.rank for claim in found}
    others = [claim.first_created for claim in claims if claim.rank not in ranks]
    if len(others) < max(2, len(found)) or len(set(others)) < len(others):
        return [], []
    pairs = [pair for group in same for pair in zip(group, [*group[1:], group[0]], strict=True)]
    text = "has the calls of {}, made in the same nanoseconds: one of them is a copy, and neither is used"
    return found, [Note("contradiction", text.format(b.file), a.file, hint=_HINT) for a, b in pairs]


def shifted_counters(claims: Collection[Claim]) -> Iterator[Note]:
    """Yield a note for each dump whose `pg_status` does not fit its entries.

    The entries of a group hold its last call, so that `last_enqueued_collective` cannot be ahead of them. It may lag by
    the call that is being launched, and `last_completed_collective` by what the watchdog has not seen yet, but both by the
    same number means that the entries were renumbered.
    """
    for claim in claims:
        status, kinds = claim.recording.status, claim.recording.kinds
        if not status or not len(claim.recording):
            continue
        seq, done = claim.column("seq"), claim.column("state") == State.DONE
        counted = np.array([row[6] is None and row[1] != "gloo" for row in kinds], bool)[claim.column("kind")]
        for local_id, name, desc, rows in claim.by_group():
            enqueued, _, completed = status.get(local_id, (-1, -1, -1))
            if enqueued < 1 or not rows.any() or not counted[rows].all():
                continue
            last, last_done = int(seq[rows].max()), int(seq[rows & done].max(initial=0))
            ahead = last - enqueued
            if ahead < 0 or (ahead and last_done - completed == ahead and completed > 0):
                text = f"`pg_status` says that call {enqueued} on {desc or name or 'a group'} was the last one enqueued, and its entries end with {last}"
                yield Note("contradiction", text, claim.file, hint=_HINT)
                break
