"""Which global rank each NCCL process is.

Its rank in the communicator that holds all processes; where there is none, what a prefix, a file name, a launcher's number or
a device indicates; else nothing, and a note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from hangscope.errors import Note
from hangscope.ingest.nccl.comm import Communicator, Member


def rank_members(members: list[Member], hints: Mapping[str, int], notes: list[Note]) -> int | None:
    """Set the members' ranks; return the number of ranks in the job, None where nothing indicates it.

    `hints` are ranks by file. Members of an earlier attempt are taken out of the list.
    """
    hinted = _hints(members, hints, notes)
    least = max((rank + 1 for rank in hinted.values()), default=0)
    numbered = [(m, c) for m in members for c in m.comms if c.nranks and c.comm_rank is not None]
    size = max((c.nranks or 0 for _, c in numbered), default=0)
    claims = {m: c for m, c in reversed(numbered) if c.nranks == size >= least}
    if claims:
        current = _last_attempt([m for m in members if m in claims], claims, notes)
        earlier = claims.keys() - set(current)
        members[:] = [m for m in members if m not in earlier]
        for member in current:
            member.rank = claims[member].comm_rank
        if len({m.rank for m in current}) == len(current):
            _fill_from_hints(members, hinted, notes)
            return size
    for member in members:
        member.rank = hinted.get(member)
    unknown = sum(m.rank is None for m in members)
    if unknown:
        text = f"no communicator holds all processes, and nothing indicates the global rank of {unknown} of {len(members)} processes"
        hint = "name the files by rank, or log from the start of the job"
        notes.append(Note("rank_unknown", text, members[0].key[0], hint=hint))
    return least or None


def _hints(members: list[Member], hints: Mapping[str, int], notes: list[Note]) -> dict[Member, int]:
    """Return ranks by what prefixes and files say, else launchers' numbers, else devices. A file's hint needs a single writer."""
    per_file = Counter(member.key[0] for member in members)
    by_file = {m: hints[m.key[0]] for m in members if m.key[0] in hints and per_file[m.key[0]] == 1}
    by_prefix = {m: m.recording.rank for m in members if m.recording.rank is not None}
    if by_prefix or by_file:
        return {**by_file, **by_prefix}
    tasks = {m: m.recording.task for m in members if m.recording.task is not None}
    if len(set(tasks.values())) == len(members):  # the rank only where every process has its own
        return tasks
    return _devices(members, notes)


def _devices(members: list[Member], notes: list[Note]) -> dict[Member, int]:
    """Return devices as ranks, where one communicator holds as many processes of one host and nothing states its ranks."""
    firsts = [member.comms[0] for member in members]
    devices = {m: c.cuda_dev for m, c in zip(members, firsts, strict=True) if c.cuda_dev is not None}
    size = len(members)
    numbered = any(c.comm_rank is not None for m in members for c in m.comms)
    one_group = {(c.host, c.nranks) for c in firsts} == {(firsts[0].host, size)}
    if size < 2 or numbered or not one_group or set(devices.values()) != set(range(size)):
        return {}
    text = f"the {size} processes of the only host are numbered by their devices: nothing states their ranks"
    notes.append(Note("assumed_rank", text, firsts[0].file, firsts[0].first_line or None))
    return devices


def _fill_from_hints(members: list[Member], hinted: Mapping[Member, int], notes: list[Note]) -> None:
    """Give processes outside the largest communicator their hint, and note hints that contradict it."""
    conflicts = sum(m.rank is not None and hinted.get(m, m.rank) != m.rank for m in members)
    taken = {m.rank for m in members}
    for member in members:
        if member.rank is None and hinted.get(member) not in taken:
            member.rank = hinted.get(member)
            taken.add(member.rank)
    if conflicts:
        text = f"the largest communicator gives {conflicts} processes another rank than prefix or name; the communicator is believed"
        notes.append(Note("rank_conflict", text, members[0].key[0]))


def _last_attempt(
    members: list[Member], claims: Mapping[Member, Communicator], notes: list[Note]
) -> list[Member]:
    """Return the members of the last attempt where one file holds several one after the other, else all.

    Attempts show as communicators of all ranks on the same hosts, each wholly before the next. Groups of one job that lie
    side by side overlap in their lines or differ in their hosts.
    """
    attempts: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        attempts[claims[member].name].append(member)
    spans = []
    for part in attempts.values():
        comms = [comm for member in part for comm in member.comms]
        spans.append((min(c.first_line for c in comms), max(c.last_line for c in comms), part))
    spans.sort(key=lambda span: span[:2])
    apart = all(before[1] < after[0] for before, after in pairwise(spans))
    hosts = {frozenset(m.key[1] for m in part) for part in attempts.values()}
    if len(spans) < 2 or not apart or len(hosts) > 1 or len({m.key[0] for m in members}) > 1:
        return members
    text = f"{len(spans)} attempts follow each other here; the last is analysed"
    notes.append(Note("earlier_attempt", text, members[0].key[0]))
    return spans[-1][2]
