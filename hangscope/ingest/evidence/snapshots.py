"""Which recording speaks for a rank: the latest of its snapshots, of the attempt that is analysed, and not a stale one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hangscope.errors import Note
from hangscope.incident import State
from hangscope.ingest.files.naming import rank_of_dump, says_rank
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import Recording

_OF_LOGS = (".err", ".out", ".log", ".stderr", ".stdout")
CLOCK_SLACK = 2 * 10**9  # ns by which hosts' clocks may disagree


@dataclass
class Claim:
    """A recording, the file it stands in, and the rank that it is taken for."""

    file: str
    recording: Recording
    rank: int

    @cached_property
    def last_created(self) -> int:
        """Return the newest enqueue time in ns, 0 where there is none."""
        return int(self._created.max(initial=0))

    @cached_property
    def first_created(self) -> int:
        """Return the oldest enqueue time in ns, 0 where there is none."""
        known = self._created[self._created != 0]
        return int(known.min()) if len(known) else 0

    @cached_property
    def progress(self) -> tuple[int, int, int]:
        """Return a measure by which a later snapshot of the same attempt is never smaller."""
        done = sum(max(0, completed) for _, _, completed in self.recording.status.values())
        issued = sum(max(0, enqueued) for enqueued, _, _ in self.recording.status.values())
        return (self.last_created, issued + max(self.recording.columns["order"], default=-1), done)

    @property
    def _created(self) -> Any:
        return np.frombuffer(self.recording.columns["created"], np.int64)


def claim_rank(file: str, recording: Recording, notes: list[Note]) -> Claim | None:
    """Return the recording with its rank: from the content where it is there, else from the file name."""
    named = rank_of_dump(file)
    world = _world(recording)
    if named is not None and world and named not in world and not says_rank(file):
        named = None  # a date or a job's number
    inside = _rank_inside(recording)
    rank = recording.rank if recording.rank is not None else inside if inside is not None else named
    if rank is None:
        notes.append(
            Note(
                "rank_unknown",
                "neither its content nor its name says which rank wrote it, so it was set aside",
                file,
                hint="name it like nccl_trace_rank_3",
            )
        )
        return None
    if rank >= MAX_RANKS:
        notes.append(
            Note("rank_unknown", f"claims rank {rank:,}, which no job has, so it was set aside", file)
        )
        return None
    if inside is None and recording.rank is None and file.lower().endswith(_OF_LOGS):
        notes.append(
            Note(
                "odd_name",
                f"holds a dump and is named as a log; it is taken for rank {rank}'s by that name alone",
                file,
                hint="name it like nccl_trace_rank_3, after the rank that wrote it",
            )
        )
    if named is not None and named != rank:
        notes.append(
            Note(
                "name_contradicts",
                f"the name says rank {named}, the groups inside fit only rank {rank}; taken for rank {rank}",
                file,
            )
        )
    return Claim(file, recording, rank)


def _rank_inside(recording: Recording) -> int | None:
    """Return the only rank that is a member of every group the dump lists, or None.

    An NCCL dump lists only groups that its own rank belongs to; gloo's single nameless group says nothing.
    """
    members = [ranks for _, ranks in recording.config.values() if ranks]
    if len(members) < 2:
        return None
    smallest = min(members, key=len)
    common = [rank for rank in smallest if all(rank in ranks for ranks in members)]
    return common[0] if len(common) == 1 else None


def choose(
    claims: Sequence[Claim], notes: list[Note]
) -> tuple[dict[int, Claim], dict[int, int], list[Claim]]:
    """Return (the recording of each rank, how many earlier snapshots show the same frontier, the stale ones)."""
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_rank[claim.rank].append(claim)
    chosen: dict[int, Claim] = {}
    unchanged: dict[int, int] = {}
    stale: list[Claim] = []
    for rank, rivals in sorted(by_rank.items()):
        if len(rivals) > 1:
            rivals.sort(key=lambda c: (c.progress, c.file))
        best = chosen[rank] = rivals[-1]
        others = rivals[:-1]
        same = [c for c in others if c.progress == rivals[-1].progress]
        unchanged[rank] = len(same)
        if others:
            files = ", ".join(c.file for c in others)
            if len(same) == len(others):
                notes.append(
                    Note(
                        "same_rank_twice",
                        f"also speaks for rank {rank}, with the same frontier as {files}",
                        best.file,
                    )
                )
            else:
                notes.append(
                    Note(
                        "two_files_one_rank",
                        f"and {files} all claim rank {rank}; the latest of them is analysed",
                        best.file,
                    )
                )
    for claim in _stale(chosen):
        stale.append(claim)
        del chosen[claim.rank]
        notes.append(
            Note(
                "stale",
                f"rank {claim.rank}'s dump is from an earlier attempt or another job and was set aside",
                claim.file,
                hint="remove old dumps before a run, or give each attempt its own folder",
            )
        )
    return chosen, unchanged, stale


def _stale(chosen: dict[int, Claim]) -> list[Claim]:
    """Return the dumps that end before their peers' begin, or whose world does not fit the others'."""
    if len(chosen) < 3:
        return []
    claims = [chosen[r] for r in sorted(chosen)]
    worlds = {c.rank: _world(c.recording) for c in claims}
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


def _world(recording: Recording) -> tuple[int, ...] | None:
    """Return the members of the default group, or None where the dump does not list it (NCCL fills groups in lazily)."""
    for name, (desc, ranks) in recording.config.items():
        if ranks and (desc == "default_pg" or name == "0"):
            return ranks
    return None


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
