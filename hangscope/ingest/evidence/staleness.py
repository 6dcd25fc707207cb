"""Dumps that an earlier attempt or another job left beside those of the job that froze."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hangscope.ingest.evidence.claim import Claim, world_of
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.incident import PROVING_OPS, State

CLOCK_SLACK = 2 * 10**9  # ns by which hosts' clocks may disagree
APART = 60 * 10**9  # ns: clocks that disagree by more than a minute are no clocks
MEETINGS = 16  # calls that two ranks made, before the distance of their clocks can be told to be constant
DRIFT = 2  # times the usual change from call to call: so far apart they may be half a history later
COMPARED = 4  # dumps of either side of a gap, of which one contradiction is enough


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

    A collective completes on nobody before all have made it, so that two such dumps are not of one run, however their
    sequence numbers agree. The last run is the one that is analysed, be its dumps the fewer.
    """
    timed = sorted((c for c in claims if c.last_created), key=lambda c: (c.last_created, c.rank))
    gaps = [
        place
        for place in range(1, len(timed))
        if timed[place].last_created - timed[place - 1].last_created > APART
    ]
    for place in reversed(gaps):
        older, newer = timed[:place], timed[place:]
        if any(_contradict(old, new) for old in older[-COMPARED:] for new in newer[:COMPARED]):
            return sorted(older, key=lambda c: c.rank)
    return []


def _contradict(old: Claim, new: Claim) -> bool:
    """Return whether a collective was over in the older dump before the newer one's rank made it."""
    over = dict(_completed(old.recording, new.rank))
    before = _made(old.recording, over)
    for name, calls in _made(new.recording, over).items():
        if not _kept_their_distance(before.get(name, {}), calls) and any(
            over[name].get(seq, False) and created > old.last_created + APART
            for seq, created in calls.items()
        ):
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


def _completed(recording: Recording, other: int) -> Iterator[tuple[str, dict[int, bool]]]:
    """Yield each group that another rank (global) is in too, with the collectives on it that were completed, by seq."""
    proving = np.array([row[0] in PROVING_OPS for row in recording.kinds], bool)
    if not len(proving):
        return
    columns = recording.columns
    group, kind = np.frombuffer(columns["group"], np.int32), np.frombuffer(columns["kind"], np.int32)
    done = (np.frombuffer(columns["state"], np.int8) == State.DONE) & proving[kind]
    seq = np.frombuffer(columns["seq"], np.int64)
    for index, (_, name, desc) in enumerate(recording.groups):
        _, ranks = recording.config.get(name, ("", None))
        if desc == "default_pg" or name == "0" or (ranks and other in ranks):
            yield name, dict.fromkeys(seq[done & (group == index)].tolist(), True)


def _made(recording: Recording, names: Mapping[str, object]) -> dict[str, dict[int, int]]:
    """Return when a rank made the calls of these groups: name -> seq -> ns."""
    columns = recording.columns
    group, seq = np.frombuffer(columns["group"], np.int32), np.frombuffer(columns["seq"], np.int64)
    created = np.frombuffer(columns["created"], np.int64)
    return {
        name: dict(zip(seq[group == index].tolist(), created[group == index].tolist(), strict=True))
        for index, (_, name, _) in enumerate(recording.groups)
        if name in names
    }


def _touching(early: Sequence[Claim], claims: Sequence[Claim]) -> set[int]:
    """Return the early ranks whose peers are stuck right where their dump ends: they took part, and stopped early."""
    ends: dict[str, Counter[int]] = defaultdict(Counter)
    for claim in claims:
        for name, seq in _last_seqs(claim.recording).items():
            ends[name][seq] += 1
    return {
        claim.rank for claim in early
        if any(ends[name][last] > 1 or ends[name][last + 1] for name, last in _last_seqs(claim.recording).items())
    }  # fmt: skip


def _last_seqs(recording: Recording) -> dict[str, int]:
    """Return the largest sequence number on each group, by the group's name."""
    group = np.frombuffer(recording.columns["group"], np.int32)
    seq = np.frombuffer(recording.columns["seq"], np.int64)
    result: dict[str, int] = {}
    for index, (_, name, _) in enumerate(recording.groups):
        result[name] = int(seq[group == index].max(initial=result.get(name, 0)))
    return {name: last for name, last in result.items() if last}
