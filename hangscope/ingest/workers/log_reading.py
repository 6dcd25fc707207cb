"""One log as a whole: what its lines say, and the calls that it recorded in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import islice, pairwise
from typing import BinaryIO

from hangscope.errors import Note
from hangscope.ingest.files.naming import attempt_of, rank_of_log
from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs import activity, endings, faults, good_ends, kernel, library_reports, messages
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.excerpt import excerpt
from hangscope.ingest.job_logs.kernel import LinkParser
from hangscope.ingest.job_logs.launchers import failure_table, kubernetes, mpi, starts
from hangscope.ingest.job_logs.printed import printed
from hangscope.ingest.job_logs.progress import progress_events
from hangscope.ingest.lines.blocks import parsers_of
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import cut
from hangscope.ingest.lines.rank_words import states_itself
from hangscope.ingest.lines.scan import scan
from hangscope.ingest.nccl import warn
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs import abort, analyzer, c10d, debug_pages, desync, store, wrapper
from hangscope.ingest.torch_logs.detail import DetailParser
from hangscope.ingest.torch_logs.store_barrier import StoreBarrierParser
from hangscope.ingest.torch_logs.traceback import RankException, TracebackParser
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_SHOWN, _WIDTH = 8, 200  # lines of a log's end, and characters of each, that a report shows
#: what only a job of this kind prints: text that holds it tells of one, if of nothing that went wrong
_OF_A_JOB = regex(
    rb"NCCL (?:INFO|WARN) |\[rank\d{1,7}\]:|ProcessGroup[A-Z]\w{2,10}|process_group_\w{2,20}\.cpp|torch[./]distributed|TCPStore"
    rb"|\b(?:(?:TORCH_)?NCCL|TORCH_(?:FR|DISTRIBUTED))_[A-Z]|\b[Hh]orovod|[a-z]: opCount \d|distributed init \(rank|shm_broadcast|\b(?:world_size|nranks)\b"
    rb"|Communicators\.\.\. \(\d|\bComms +Nodes +Ranks\b"
)
#: without which none of these is in a text
_SIGNS = (
    b"NCCL", b"[rank", b"ProcessGroup", b"process_group_", b"torch.distributed", b"torch/distributed", b"TCPStore", b"TORCH_",
    b"orovod", b"opCount", b"distributed init", b"shm_broadcast", b"world_size", b"nranks", b"Communicators...", b"Comms ",
)  # fmt: skip


@dataclass(slots=True)
class LogReading:
    """What one log says.

    `rank`, `local_rank` and `attempt` are those of the path; events have what their own line states (evidence/processes.py). `lines` counts what
    was read. `tail` are the last lines of a rank's own log, the oldest first. `of_a_job`: its end holds what only a distributed job
    prints. `excerpt`: a short text as a whole. `stated`: the rank and the world size that the process says of itself, where the path
    holds no rank.
    """

    file: str
    events: list[Event] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lines: int = 0
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    tail: tuple[str, ...] = ()
    of_a_job: bool = False
    excerpt: Event | None = None
    stated: tuple[int, int] | None = None


def read_log(stream: BinaryIO, file: str, extra: Sequence[LineParser] = ()) -> LogReading:
    """Return what a log says. Reads the stream once, in memory that does not grow with it; never raises for what it holds.

    `file` is the name that events show, from which rank and attempt are read; `extra` are further parsers, asked after those here.
    """
    detail = DetailParser(file)
    parsers: list[LineParser] = [
        *parsers_of(
            c10d, wrapper, store, endings, faults, abort, starts, analyzer, desync, debug_pages, failure_table, kubernetes, mpi,
            library_reports, good_ends, kernel, activity, warn,
        ),
        messages.MessageParser(), TracebackParser(), StoreBarrierParser(), LinkParser(), detail, *extra,
    ]  # fmt: skip
    found = scan(stream, file, parsers)
    rank, local_rank = rank_of_log(file)
    own = (rank, local_rank) != (None, None)
    kept, recordings = KeptText(found.windows, file), detail.recordings(owned=own)
    events = [*found.events, *progress_events(kept), *good_ends.good_ends(kept), *printed(kept, own)]
    signs = (data for _, data in found.windows if any(sign in data for sign in _SIGNS))
    return LogReading(
        file,
        _of_spawned(sorted(events, key=lambda event: event.line)),
        recordings,
        [*found.notes, *(note for recording in recordings for note in recording.notes)],
        found.lines,
        rank,
        local_rank,
        attempt_of(file),
        tail=tuple(cut(t, _WIDTH) for _, t in islice(kept.texts(), _SHOWN))[::-1] if own else (),
        of_a_job=any(map(_OF_A_JOB.search, signs)),
        excerpt=None if is_of_the_watcher(file) else excerpt(kept, found.size),
        stated=None if own else states_itself(text for _, text in kept.texts()),
    )


def _of_spawned(events: list[Event]) -> list[Event]:
    """Return the events with the traceback that the parent of `mp.spawn` prints of a process as that process's."""
    for place, (before, event) in enumerate(pairwise(events), 1):
        spawned = isinstance(before, Exit) and before.via == "spawn" and before.local_rank is not None
        if spawned and isinstance(event, RankException) and event.rank is None and event.local_rank is None:
            events[place] = replace(event, local_rank=before.local_rank)
    return events
