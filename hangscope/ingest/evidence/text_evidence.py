"""Everything that text inputs and stacks show, assigned to ranks.

Local ranks become global ones, repeats of one message across files become one event, the last attempt is kept, and the
collectives that logs recorded (DETAIL's running collectives, NCCL's COLL lines) replace dumps of ranks that have none.
Two lines may say the same: torch, `what()`, Python and the launcher each repeat one failure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, fields, replace
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.evidence.attempts import attempt_to_read, without_earlier
from hangscope.ingest.evidence.claim import Claim
from hangscope.ingest.evidence.misplaced_lines import misplaced
from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.evidence.stack_owners import main_stacks, owners, unplaced
from hangscope.ingest.evidence.worlds import without_job_numbers
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.files.naming import rank_of_log
from hangscope.ingest.files.numbering import of_files
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.nccl.join import Joined, join_processes
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.stacks.threads import Thread, issuers, trains
from hangscope.ingest.torch_logs.c10d import GroupEvent
from hangscope.ingest.workers.reading import Reading
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Stack, UnplacedStack
from hangscope.model.incident import Group, RankRecord

#: Where an event was printed, when and on which host: all from one line.
_OF_THE_LINE = frozenset({"file", "line", "text", "host", "time", "stamp", "attempt"})


def identity(event: Event) -> tuple[Any, ...] | None:
    """Return a key that is equal for two events that state the same thing, or None where each counts for itself.

    Valid within a log and across logs: file, line and text have no part in it. An exit is identified by its process id;
    everything else by who says it (rank, else local rank, task, host) and by what it says.
    """
    attempt = event.attempt or 0  # a log without restarts is the first attempt
    if isinstance(event, Exit):
        return ("exit", event.pid, event.code, attempt) if event.pid is not None else None
    if event.same_by is None:
        return None
    who: Any = event.rank
    if who is None:
        who = ("local", event.local_rank, event.task, event.host, event.group_rank)
    said = (getattr(event, name) for name in event.same_by)
    return (event.kind, who, attempt, *(tuple(sorted(v.items())) if isinstance(v, dict) else v for v in said))


def merge_repeats(events: Iterable[Event]) -> list[Event]:
    """Return the events without repeats, each at its first place, with what the repeats added to its fields."""
    kept: list[Event] = []
    index: dict[tuple[Any, ...], int] = {}
    for event in events:
        key = identity(event)
        at = index.setdefault(key, len(kept)) if key is not None else len(kept)
        if at == len(kept):
            kept.append(event)
        elif len({e.group_name for e in (kept[at], event) if isinstance(e, GroupEvent)} - {None}) < 2:
            kept[at] = merge(kept[at], event)
        else:
            kept.append(event)  # of another group
    return kept


def merge(first: Event, second: Event) -> Event:
    """Return the first event with what only the second one knows; of two ends of a process the launcher's table states more."""
    source = first
    if isinstance(first, Exit) and isinstance(second, Exit) and second.via == "table":
        first, source = replace(first, via="table"), second
    known: dict[str, Any] = {}
    for one in fields(first):
        value = getattr(source if one.name in _OF_THE_LINE else first, one.name)
        known[one.name] = value if value not in (None, (), False) else getattr(second, one.name)
    return replace(first, **known)


@dataclass(slots=True)
class RankText:
    """What text and stacks show of one rank: its last stacks and their file, how many captures before showed the same, its logs and their ends."""

    threads: list[Thread] = field(default_factory=list)
    stack_file: str = ""
    unchanged: int = 0
    files: list[str] = field(default_factory=list)
    tails: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)  # attempt, file, lines
    host: str | None = None

    def capture(self, file: str, threads: list[Thread]) -> None:
        """Take the stacks of the rank's threads; of several captures the last one counts."""
        same = bool(self.stack_file) and _main(self.threads) == _main(threads)
        self.unchanged = self.unchanged + 1 if same else 0
        self.threads, self.stack_file = threads, file

    def attach(self, record: RankRecord, training: frozenset[tuple[str, str]]) -> None:
        """Add it to a rank's record: the thread that issues collectives comes first, else the main thread."""
        if self.stack_file:
            order = sorted(self.threads, key=lambda thread: (not trains(thread[1], training), not thread[2]))
            record.threads = [(name, stack) for name, stack, _ in order]
            record.stack_file, record.unchanged_stacks = self.stack_file, self.unchanged
            record.files.append(self.stack_file)
        record.files += [file for file in sorted(self.files) if file not in record.files]
        last = max((attempt for attempt, _, _ in self.tails), default=0)
        record.log_tails = sorted((file, lines) for attempt, file, lines in self.tails if attempt == last)
        record.host = record.host or self.host


@dataclass(slots=True)
class TextEvidence:
    """The events of the whole job, what text and stacks show of each global rank, and the recordings that logs hold."""

    events: list[Event] = field(default_factory=list)
    of_rank: dict[int, RankText] = field(default_factory=lambda: defaultdict(RankText))
    recorded: list[Claim] = field(default_factory=list)
    unplaced: list[UnplacedStack] = field(default_factory=list)
    world_size: int = 0
    # rank and group of recordings whose end may be missing
    cut: set[tuple[int, str]] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)  # restart attempts that are stated, taken or not

    def ranks(self) -> set[int]:
        """Return the ranks that any text is about."""
        stated = {e.rank for e in self.events if e.rank is not None}
        return stated | self.of_rank.keys() | {claim.rank for claim in self.recorded}

    def leave_out(self, limit: int) -> None:
        """Forget of what is stated about ranks from `limit` on whose it is."""
        self.events = [_without_from(e, limit) for e in self.events]
        for rank in [rank for rank in self.of_rank if rank >= limit]:
            del self.of_rank[rank]
        self.recorded = [claim for claim in self.recorded if claim.rank < limit]

    def claims_beside(self, dumped: set[int]) -> list[Claim]:
        """Return the text recordings of ranks that left no dump, of the kind of recorder that more ranks have.

        NCCL's communicators have other names than the groups of dumps: its lines are used where there is no dump at all.
        """
        usable = [c for c in self.recorded if not dumped or c.recording.source != "nccl_log"]
        sources = Counter(claim.recording.source for claim in usable)
        chosen = max(sources, key=lambda source: (sources[source], source == "detail_log"), default="")
        return [c for c in usable if c.rank not in dumped and c.recording.source == chosen]

    def attach(self, ranks: dict[int, RankRecord], groups: Sequence[Group], calls: Iterable[Stack]) -> None:
        """Add stacks, hosts, files and events to the records of their ranks, and mark the text recordings whose end may be missing.

        `calls` are the stacks of the recorded collectives.
        """
        training = issuers(calls)
        names = {group.gid: group.name for group in groups}
        for rank, record in ranks.items():
            for gid, queue in record.queues.items():
                queue.cut = (rank, names[gid]) in self.cut
            if rank in self.of_rank:
                self.of_rank[rank].attach(record, training)
        for event in self.events:
            for host, own in event.ranks_of_hosts if isinstance(event, Excerpt) else ():
                for record in (ranks[rank] for rank in own if rank in ranks):
                    record.host = record.host or host
            if event.rank in ranks and event.rank is not None:
                record = ranks[event.rank]
                record.events.append(event)
                record.local_rank = event.local_rank if record.local_rank is None else record.local_rank
                if record.pid is None and not isinstance(event, CleanupSignal):
                    record.pid = event.pid


def _main(threads: Sequence[Thread]) -> list[Stack]:
    return [stack for _, stack, is_main in threads if is_main]


def _without_from(event: Event, limit: int) -> Event:
    """Return an event that names no rank from `limit` on, nor lets one be concluded from its number in a group."""
    if max(event.rank or 0, event.group_rank or 0) < limit:
        return event
    return replace(event, rank=event.rank if (event.rank or 0) < limit else None, group_rank=None)


def collect(readings: Sequence[Reading], notes: list[Note], attempt: int | str | None = None) -> TextEvidence:
    """Return what all text inputs say together, of one restart attempt (default: the last; "all": of all of them)."""
    text = TextEvidence()
    readings, job_numbers = without_job_numbers(readings)
    joined = _joined(readings)
    processes = Processes(readings, joined)
    notes += misplaced(readings, processes.of_file)
    pids = {r.file: r.stacks[0].pid for r in readings if r.stacks and rank_of_log(r.file) == (None, None)}
    single = {r.file for r in readings if len(r.stacks) == 1}
    by_number = of_files({file: processes.of_pid(pid) for file, pid in pids.items()}, pids, single)
    for reading in readings:
        rank = processes.of_file(reading)
        if reading.stacks:
            if rank is None and reading.file not in job_numbers:
                rank = rank_of_log(reading.file)[0]
                rank = by_number.get(reading.file) if rank is None else rank
            placed, missed = owners(processes, reading, rank)
            rank = next(iter(placed)) if rank is None and len(placed) == 1 and not missed else rank
            for member, threads in sorted(placed.items()):
                text.of_rank[member].capture(reading.file, threads)
            notes += unplaced(reading.file, len(placed), missed)
            text.unplaced += main_stacks(missed)
        if rank is not None and reading.log.lines:
            text.of_rank[rank].files.append(reading.file)
            if reading.log.tail:
                text.of_rank[rank].tails.append((reading.log.attempt or 0, reading.file, reading.log.tail))
        for recording in reading.log.recordings:
            if recording.rank is not None:
                text.recorded.append(Claim(reading.file, recording, recording.rank))
    events = merge_repeats(event for reading in readings for event in reading.all_events)
    text.events = _of_attempt(events, attempt, text, notes)
    text.leave_out(MAX_RANKS)
    if joined is not None:
        _take_nccl(readings, joined, text, notes)
    text.events += [r.log.excerpt for r in readings if r.log.excerpt is not None]
    for event in text.events:
        if event.rank is not None and event.host and text.of_rank[event.rank].host is None:
            text.of_rank[event.rank].host = event.host
    text.leave_out(MAX_RANKS)
    sizes = [n for e in text.events for n in e.least_sizes() if n <= MAX_RANKS]
    text.world_size = max(max(text.ranks(), default=-1) + 1, *sizes, 0)
    return text


def _joined(readings: Sequence[Reading]) -> Joined | None:
    communicators = [c for r in readings for c in r.log.communicators]
    recordings = [rec for r in readings for rec in r.log.nccl]
    hints = {r.file: r.log.rank for r in readings if r.log.rank is not None}
    return join_processes(recordings, communicators, hints) if communicators else None


def _take_nccl(readings: Sequence[Reading], joined: Joined, text: TextEvidence, notes: list[Note]) -> None:
    communicators = [c for r in readings for c in r.log.communicators]
    notes.extend(joined.notes)
    for recording in joined.recordings:
        if recording.rank is not None:
            own = {group[0] for group in recording.groups}
            file = next((c.file for c in communicators if c.local_id in own), "nccl log")
            text.recorded.append(Claim(file, recording, recording.rank))
            of_rank = text.of_rank[recording.rank]
            of_rank.host = of_rank.host or recording.host
    text.cut = {
        (rank, joined.name_of.get(c.local_id, c.name))
        for c in communicators
        if not c.intact and (rank := joined.rank_of_process.get((c.file, c.host, c.pid))) is not None
    }
    for place, event in enumerate(text.events):
        if isinstance(event, NcclWarn) and (host := joined.host_of_ip.get(event.peer_host or "")):
            text.events[place] = replace(event, peer_node=host)
    text.events += joined.unmade


def _of_attempt(
    events: list[Event], wanted: int | str | None, text: TextEvidence, notes: list[Note]
) -> list[Event]:
    """Return the events of one attempt, and keep of the text recordings those of the same one."""
    stated = [*(e.attempt for e in events), *(c.recording.attempt for c in text.recorded)]
    text.attempts = attempts = {attempt for attempt in stated if attempt is not None}
    if not attempts or wanted == "all":
        return events
    of: dict[int, list[Event]] = {attempt: [] for attempt in attempts}
    for event in events:
        if event.attempt is not None:
            of[event.attempt].append(event)
    recorded = {c.recording.attempt for c in text.recorded if c.recording.attempt is not None}
    chosen = int(wanted) if wanted is not None else attempt_to_read(of, recorded)
    if len(attempts) > 1:
        failed = ": a later one never came to a step" if wanted is None and chosen < max(attempts) else ""
        what = f"the logs hold {len(attempts)} restart attempts; attempt {chosen} is analysed{failed}"
        notes.append(Note("several_attempts", what, hint="--attempt N picks another"))
    text.recorded = [c for c in text.recorded if c.recording.attempt in (None, chosen)]
    ended = [e.in_the_year for e in events if e.attempt is not None and e.attempt < chosen]
    over = max((moment for moment in ended if moment is not None), default=0.0)
    later = [e for e in events if e.attempt in (None, chosen)]
    return without_earlier(later, over) if over and wanted is None else later
