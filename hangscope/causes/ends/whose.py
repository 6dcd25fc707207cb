"""How a text refers to the process of an event whose rank no parser knows: by its ids, by a line next to it, by its own message."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.text.named_processes import ranks_in
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase

_NEAR = 4  # lines


def whose(case: Case, events: Sequence[Event]) -> str:
    """Return the processes of events as a subject, `a process` where the text does not say which."""
    first, alone = events[0], len(events) == 1
    ranks = {e.rank for e in events if e.rank is not None} or {r for e in events for r in _near(case, e)}
    names = [ranks_phrase(ranks)] if ranks else []
    names += [f"local rank {first.local_rank}"] if first.local_rank is not None and alone else []
    names += [f"task {first.task} of srun or mpirun"] if first.task is not None and not ranks else []
    names = names or ["a process"]
    pid = getattr(first, "victim_pid", None) or first.pid
    names += [f"pid {pid}"] if pid is not None and alone else []
    names += [f"host {first.host}"] if first.host and len({e.host for e in events}) == 1 else []
    if not ranks and (named := ranks_in(first.message if isinstance(first, RankException) else first.text)):
        names.append(f"its message names {ranks_phrase(named)}")
    subject, *ids = names
    return f"{subject} ({', '.join(ids)})" if ids else subject


def _near(case: Case, event: Event) -> Sequence[int]:
    """Return the ranks of the title above an event, or of the line next to it that names a rank and its process."""
    named = [n for e in case.statements.all(Excerpt) if e.file == event.file for n in e.named]
    title = max((n for n in named if n.titled and n.line < event.line), key=lambda n: n.line, default=None)
    if title is not None:
        return title.ranks
    frames = len(event.frames) if isinstance(event, RankException) else 0
    near = range(event.line - _NEAR, event.line + 2 * frames + _NEAR)
    found = {n.ranks for n in named if n.line in near and len(n.ranks) == 1 and n.pids}
    return found.pop() if len(found) == 1 else ()
