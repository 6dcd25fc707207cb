"""How a text calls the process of an event whose rank no parser knows: by its ids, by a line beside it, by its own message."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.lines.rank_words import ranks_in
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase

_BESIDE = 4  # lines


def whose(case: Case, events: Sequence[Event]) -> str:
    """Return the processes of events as a subject, `a process` where the text calls them nothing."""
    first = events[0]
    ranks = {e.rank for e in events if e.rank is not None} or {r for e in events for r in _beside(case, e)}
    names = [ranks_phrase(sorted(ranks))] if ranks else []
    names += [f"local rank {first.local_rank}"] if first.local_rank is not None and len(events) == 1 else []
    if not ranks:
        names += [f"task {first.task} of srun or mpirun"] if first.task is not None else []
        names = names or ["a process"]
    pid = getattr(first, "victim_pid", None) or first.pid
    names += [f"pid {pid}"] if pid is not None and len(events) == 1 else []
    names += [f"host {first.host}"] if first.host and len({e.host for e in events}) == 1 else []
    if not ranks and (told := ranks_in(first.message if isinstance(first, RankException) else first.text)):
        names.append(f"its message names {ranks_phrase(told)}")
    subject, *ids = names
    return f"{subject} ({', '.join(ids)})" if ids else subject


def _beside(case: Case, event: Event) -> Sequence[int]:
    """Return the ranks of the title above an event, or of the line right beside it that names a rank and its process."""
    named = [n for e in case.statements.all(Excerpt) if e.file == event.file for n in e.named]
    title = max((n for n in named if n.titled and n.line < event.line), key=lambda n: n.line, default=None)
    if title is not None:
        return title.ranks
    frames = len(event.frames) if isinstance(event, RankException) else 0
    near = range(event.line - _BESIDE, event.line + 2 * frames + _BESIDE)
    told = {n.ranks for n in named if n.line in near and len(n.ranks) == 1 and n.pids}
    return told.pop() if len(told) == 1 else ()
