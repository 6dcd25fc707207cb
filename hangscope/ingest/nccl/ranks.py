"""Which global rank each NCCL process is.

Its rank in the communicator that holds all processes; where there is none, what a prefix, a file name or a
launcher's number says; else nothing, and a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from hangscope.errors import Note
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass


@dataclass(slots=True)
class Member:
    """One process (or one device of it), its communicators, and the global rank found for it."""

    recording: Recording
    comms: list[Communicator]
    rank: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Return where it was: file, host, pid (0: not known)."""
        first = self.comms[0]
        return (first.file, first.host, first.pid or 0)


def rank_members(
    members: list[Member], hints: Mapping[str, int], world_size: int | None, notes: list[Note]
) -> int | None:
    """Set the members' ranks; return the number of ranks in the job, None where nothing tells it.

    Members of an earlier attempt are taken out of the list.
    """
    hinted = _hints(members, hints)
    if not hinted:
        _take_devices_for_ranks(members, notes)
    sizes = [c.nranks for m in members for c in m.comms if c.nranks is not None and c.comm_rank is not None]
    size = max(sizes, default=0)
    least = max([world_size or 0, *(rank + 1 for rank in hinted.values())])
    if size and size >= least:
        claims = {id(m): comm for m in members if (comm := _of_size(m, size)) is not None}
        inside = [m for m in members if id(m) in claims]
        current = _last_attempt(inside, claims, notes)
        earlier = {id(m) for m in inside} - {id(m) for m in current}
        members[:] = [m for m in members if id(m) not in earlier]
        ranks = [claims[id(m)].comm_rank for m in current]
        if len(set(ranks)) == len(ranks):
            for member in current:
                member.rank = claims[id(member)].comm_rank
            _fill_from_hints(members, hinted, notes)
            return size
    for member in members:
        member.rank = hinted.get(id(member))
    unknown = sum(1 for m in members if m.rank is None)
    if unknown:
        notes.append(
            Note(
                "rank_unknown",
                f"no communicator holds all processes, and nothing tells the global rank of {unknown} of "
                f"{len(members)} processes",
                members[0].comms[0].file if members else None,
                hint="name the files by rank, or log from the start of the job",
            )
        )
    return least or None


def _take_devices_for_ranks(members: list[Member], notes: list[Note]) -> None:
    """Take devices for ranks, where a communicator of as many ranks holds the processes of one host and nothing tells its ranks.

    So launchers start them; the note says that it is assumed. Who calls on a communicator has made it.
    """
    size = len(members)
    firsts = [member.comms[0] for member in members]
    numbered = any(c.comm_rank is not None for m in members for c in m.comms)
    devices = {c.cuda_dev for c in firsts}
    if size < 2 or numbered or len({c.host for c in firsts}) > 1 or devices != set(range(size)):
        return
    if any(c.nranks != size for c in firsts):
        return
    for member, first in zip(members, firsts, strict=True):
        member.comms = [
            replace(c, comm_rank=first.cuda_dev, completed=True) if c.nranks == size else c
            for c in member.comms
        ]
    text = f"the {size} processes of the only host are numbered by their devices: nothing tells their ranks"
    notes.append(Note("assumed_rank", text, firsts[0].file, firsts[0].first_line or None))


def _of_size(member: Member, size: int) -> Communicator | None:
    """Return the member's first communicator of a size, of which it knows its rank."""
    return next((c for c in member.comms if c.nranks == size and c.comm_rank is not None), None)


def _hints(members: list[Member], hints: Mapping[str, int]) -> dict[int, int]:
    """Return what prefixes and files say: rank by `id(member)`. A file's hint needs a single writer."""
    per_file: dict[str, int] = defaultdict(int)
    for member in members:
        per_file[member.comms[0].file] += 1
    found: dict[int, int] = {}
    for member in members:
        file = member.comms[0].file
        if member.recording.rank is not None:
            found[id(member)] = member.recording.rank
        elif file in hints and per_file[file] == 1:
            found[id(member)] = hints[file]
    if not found:
        # A launcher's task number is the rank only where every process has its own.
        tasks = {id(m): m.comms[0].task for m in members}
        numbers = [task for task in tasks.values() if task is not None]
        if len(set(numbers)) == len(members):
            found = {key: task for key, task in tasks.items() if task is not None}
    return found


def _fill_from_hints(members: list[Member], hinted: dict[int, int], notes: list[Note]) -> None:
    """Give processes outside the largest communicator their hint, and note hints that contradict it."""
    taken = {m.rank for m in members if m.rank is not None}
    conflicts = 0
    for member in members:
        hint = hinted.get(id(member))
        if member.rank is None and hint is not None and hint not in taken:
            member.rank = hint
            taken.add(hint)
        elif hint is not None and member.rank is not None and hint != member.rank:
            conflicts += 1
    if conflicts:
        notes.append(
            Note(
                "rank_conflict",
                f"the largest communicator gives {conflicts} processes another rank than prefix or name; "
                "the communicator is believed",
                members[0].comms[0].file,
            )
        )


def _last_attempt(members: list[Member], claims: dict[int, Communicator], notes: list[Note]) -> list[Member]:
    """Return the members of the last attempt where one file holds several one after the other, else all.

    Attempts are told by communicators of all ranks that claim the same ranks on the same hosts, one wholly
    before the next. (Groups of one job that lie side by side overlap in their lines or differ in their
    hosts.)
    """
    by_name: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[claims[id(member)].name].append(member)
    if len(by_name) < 2 or len({m.comms[0].file for m in members}) > 1:
        return members
    spans = []
    for name, group in by_name.items():
        first = min(c.first_line for m in group for c in m.comms)
        last = max(c.last_line for m in group for c in m.comms)
        spans.append((first, last, name))
    spans.sort()
    apart = all(before[1] < after[0] for before, after in pairwise(spans))
    hosts = {frozenset(m.comms[0].host for m in group) for group in by_name.values()}
    if not apart or len(hosts) > 1:
        return members
    last_name = spans[-1][2]
    notes.append(
        Note(
            "earlier_attempt",
            f"{len(spans)} attempts follow each other here; the last is analysed",
            members[0].comms[0].file,
        )
    )
    return by_name[last_name]
