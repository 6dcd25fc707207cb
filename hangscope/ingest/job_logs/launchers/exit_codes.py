"""Ends of which one line tells whose they are and a later one the exit code: mpirun's, and SGLang's of its schedulers.

    mpirun detected that one or more processes exited with non-zero status, thus causing
    the job to be terminated. The first process to do so was:

      Process name: [[12345,1],3]
      Exit code:    137

    [2026-01-14 05:02:11] Rank 3 scheduler is dead. Please check if there are relevant logs.
    [2026-01-14 05:02:12] Exit code: -9

(Open MPI 3 to 5, help-prun.txt and help-orterun.txt; sglang/srt/entrypoints/engine.py.) mpirun's last number is the rank in
MPI_COMM_WORLD. SGLang looks at its schedulers in their order and names the first that is gone, not the one that went first.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.job_logs.endings import Exit, WorkersSwept
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _end(found: Found) -> Iterator[Event]:
    """Yield whose end it is with its code; a scheduler without one is a worker that failed."""
    code, task = found.last("code"), found.last("process")
    if code is not None:
        via = "engine" if task is None else "mpirun"
        yield Exit.of(found.first, code=int(code), task=None if task is None else int(task), via=via)
    elif task is None:
        yield found.first.event(WorkersSwept, failed="a scheduler")


END = block(
    says(r"^\s*Process name: \[\[\w{1,20},\d{1,10}\],(?P<process>\d{1,7})\]\s*$"),
    says(r"\bRank \d{1,7} scheduler is dead\."),
    ends=regex(r"^\W*(?:\S{1,40} )?Exit code: {1,6}(?P<code>-?\d{1,4})\s*$"),
    lines=4,
    made=_end,
)
