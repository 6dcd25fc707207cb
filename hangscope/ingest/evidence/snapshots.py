"""Which recording is used for a rank: the latest of its snapshots, of the attempt that is analysed, and not a stale one.

Files that a job writes again and again, each about all ranks: only the last one of a series shows where the ranks are now.

    stacks_20261122_084650.txt  stacks_20261122_084658.txt  pyspy_dump_20261122_084658.txt

(torch.distributed.debug.) A rank that no longer answers is in an older page as it was then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.evidence.claim import Claim, world_of
from hangscope.ingest.evidence.staleness import copies, shifted_counters, stale_among
from hangscope.ingest.files.naming import rank_of_dump, says_rank
from hangscope.ingest.recorder.flight_recorder import NAMELESS
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.workers.reading import Reading
from hangscope.model.regex import regex

_PAGE = regex(
    r"^(.*?)((?:stacks|pyspy_dump|fr_trace|torchcomms_fr_trace|c10d_health_check|torchcomms_health_check))_(\d{8}_\d{6})\.txt$"
)


def last_pages(readings: Sequence[Reading], notes: list[Note]) -> list[Reading]:
    """Return the readings, those of older pages set aside without their content.

    Of stacks the last page in which any rank answered counts: after it the job was being terminated.
    """
    series: dict[tuple[str, str], list[tuple[str, Reading]]] = defaultdict(list)
    for reading in readings:
        if match := _PAGE.match(reading.file):
            series[(match[1], match[2])].append((match[3], reading))
    older: set[str] = set()
    for (_, name), pages in sorted(series.items()):
        pages.sort(key=lambda page: page[0])
        answered = [page for page in pages if page[1].stacks] if name in ("stacks", "pyspy_dump") else []
        last = (answered or pages)[-1][1]
        older |= {page.file for _, page in pages if page is not last}
    if older:
        what = f"{len(older)} older pages of {len(series)} series were set aside; the last of each shows where the ranks are"
        notes.append(Note("older_pages", what, min(older)))
    aside: dict[str, Any] = {"status": "set aside", "reason": "an older page", "stacks": [], "events": []}
    return [
        r if r.file not in older else replace(r, **aside, log=replace(r.log, events=[])) for r in readings
    ]


_MOMENT = 1.0  # seconds after a collective in which nothing shows a stall
_OF_LOGS = (".err", ".out", ".log", ".stderr", ".stdout")


def claim_rank(file: str, recording: Recording, notes: list[Note]) -> Claim | None:
    """Return the recording with its rank: from the content where it is there, else from the file name."""
    named = rank_of_dump(file)
    world = world_of(recording)
    if named is not None and world and named not in world and not says_rank(file):
        named = None  # a date or a job's number
    inside = _rank_inside(recording)
    rank = recording.rank if recording.rank is not None else inside if inside is not None else named

    def note(code: str, text: str, hint: str = "") -> None:
        notes.append(Note(code, text, file, hint=hint))

    if rank is None:
        text = "neither its content nor its name says which rank wrote it, so it was set aside"
        note("rank_unknown", text, "name it like nccl_trace_rank_3")
        return None
    if rank >= MAX_RANKS:
        note("rank_unknown", f"claims rank {rank:,}, which no job has, so it was set aside")
        return None
    if inside is None and recording.rank is None and file.lower().endswith(_OF_LOGS):
        text = f"holds a dump and is named as a log; it is taken for rank {rank}'s by that name alone"
        note("odd_name", text, "name it like nccl_trace_rank_3, after the rank that wrote it")
    desc, places = recording.config.get("", ("", None))
    if desc == NAMELESS and places is not None and rank not in places:
        text = "its communicators have fewer ranks than the job, and do not state which, so it was set aside"
        note("members_unknown", text, "register the recorder with a communicator of all ranks")
        return None
    if named is not None and named != rank:
        text = f"the name says rank {named}, the groups inside fit only rank {rank}; taken for rank {rank}"
        note("name_contradicts", text)
    return Claim(file, recording, rank)


def _rank_inside(recording: Recording) -> int | None:
    """Return the only rank that is a member of every group in the dump, and whose group-local rank fits the sends and receives of the dump, or None.

    An NCCL dump lists only groups that its own rank belongs to; gloo's single nameless group says nothing.
    """
    members = [ranks for _, ranks in recording.config.values() if ranks]
    if len(members) < 2:
        return None
    smallest = min(members, key=len)
    common = {rank for rank in smallest if all(rank in ranks for ranks in members)}
    if len(common) > 1:
        common &= _senders(recording)
    return common.pop() if len(common) == 1 else None


def _senders(recording: Recording) -> set[int]:
    """Return whose sends and receives a dump holds: `send 1->2` is of its group's second member."""
    own = set()
    for group, kind in dict.fromkeys(zip(recording.columns["group"], recording.columns["kind"], strict=True)):
        op, *_, source, destination, _, _ = recording.kinds[kind]
        place = source if op == "send" else destination if op == "recv" else None
        _, ranks = recording.config.get(recording.groups[group][1], ("", None))
        if place is not None and ranks is not None and 0 <= place < len(ranks):
            own.add(ranks[place])
    return own


def choose(
    claims: Sequence[Claim], notes: list[Note]
) -> tuple[dict[int, Claim], dict[int, int], list[Claim]]:
    """Return (the recording of each rank, how many earlier snapshots show the same frontier, the stale ones)."""
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_rank[claim.rank].append(claim)
    chosen: dict[int, Claim] = {}
    unchanged: dict[int, int] = {}
    for rank, rivals in sorted(by_rank.items()):
        *others, best = sorted(rivals, key=lambda c: (c.progress, c.file)) if len(rivals) > 1 else rivals
        chosen[rank] = best
        unchanged[rank] = same = sum(c.progress == best.progress for c in others)
        # Snapshots of one stalled process show a last call issued in the same nanosecond, and are no news.
        if others and (same < len(others) or not best.last_created):
            files, code = ", ".join(c.file for c in others), "two_files_one_rank"
            text = f"and {files} all claim rank {rank}; the latest of them is analysed"
            if same == len(others):
                code, text = "same_rank_twice", f"is also of rank {rank}, with the same frontier as {files}"
            notes.append(Note(code, text, best.file))
    stale = stale_among(chosen)
    for claim in stale:
        del chosen[claim.rank]
        text = f"rank {claim.rank}'s dump is from an earlier attempt or another job and was set aside"
        hint = "remove old dumps before a run, or give each attempt its own folder"
        notes.append(Note("stale", text, claim.file, hint=hint))
    copied, why = copies(chosen.values())
    for claim in copied:
        del chosen[claim.rank]
    notes += [*why, *shifted_counters(chosen.values())]
    return chosen, unchanged, [*stale, *copied]


def of_a_moving_job(chosen: Mapping[int, Claim], claims: Sequence[Claim]) -> bool:
    """Return whether every rank has made calls since each earlier dump of the same run: none shows a stall."""
    earlier = [c for c in claims if c.rank in chosen and c is not chosen[c.rank]]
    return (
        bool(earlier)
        and {c.rank for c in earlier} == set(chosen)
        and all(chosen[c.rank].first_created <= c.last_created < chosen[c.rank].last_created for c in earlier)
    )


def of_one_moment(claims: Collection[Claim], readings: Sequence[Reading]) -> bool:
    """Return whether each of these dumps was written within a moment of the last call that any of them shows.

    Then a pending collective is no older than that: nothing shows a stall. Copied files are younger, which shows nothing; a file
    that is older than its own last collective has no time that can be believed.
    """
    written = {reading.file: reading.written for reading in readings}
    times = [(written.get(claim.file), claim.last_created / 1e9) for claim in claims]
    last = max((made for _, made in times), default=0.0)
    return last > 0 and all(at is not None and made - _MOMENT <= at <= last + _MOMENT for at, made in times)
