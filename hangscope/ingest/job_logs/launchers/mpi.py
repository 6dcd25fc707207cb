"""Processes that ended badly, as mpirun and mpiexec report them over several lines; SGLang reports its schedulers in the same way.

    mpirun detected that one or more processes exited with non-zero status, thus causing
    the job to be terminated. The first process to do so was:

      Process name: [[12345,1],3]
      Exit code:    137

    =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
    =   RANK 2 PID 51774 RUNNING AT cn-b14
    =   KILLED BY SIGNAL: 9 (Killed)

    [2026-01-14 05:02:11] Rank 3 scheduler is dead. Please check if there are relevant logs.
    [2026-01-14 05:02:12] Exit code: -9

(Open MPI 3 to 5, help-prun.txt and help-orterun.txt, whose last number is the rank in MPI_COMM_WORLD; MPICH and Intel MPI,
src/pm/hydra/tools, where older versions print `PID 51774 RUNNING AT cn-b14` alone and `EXIT CODE: 9`; sglang/srt/entrypoints/engine.py.)
MPICH reports processes after the first that the launcher itself ended. SGLang checks its schedulers in order and names the first one
that is gone, not the one that died first.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.job_logs.endings import Exit, WorkersSwept
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import integer, says
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _end(found: Found) -> Iterator[Event]:
    """Yield the end of the process; a scheduler without an exit code is a worker that failed."""
    code, number = integer(found.last("code")), integer(found.last("number"))
    of_mpi = "scheduler is dead" not in found.first.text
    if code is not None or number:
        yield Exit.of(
            found.first, code=-number if number else code, via="mpirun" if of_mpi else "engine",
            task=integer(found.last("task")), pid=integer(found.last("pid")), host=found.last("host"),
        )  # fmt: skip
    elif not of_mpi:
        yield found.first.event(WorkersSwept, failed="a scheduler")


END = block(
    says(r"^\s*Process name: \[\[\w{1,20},\d{1,10}\],(?P<task>\d{1,7})\]\s*$"),
    says(r"\bRank \d{1,7} scheduler is dead\."),
    says(
        r"^= {1,6}(?:RANK (?P<task>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S{1,253})",
        literal="RUNNING AT ",
    ),
    ends=regex(
        r"^\W*(?:\S{1,40} )?E(?:xit|XIT) (?:code|CODE): {1,6}(?P<code>-?\d{1,4})\s*$|^= {1,6}KILLED BY SIGNAL: (?P<number>\d{1,3})\b"
    ),
    lines=4,
    made=_end,
)
