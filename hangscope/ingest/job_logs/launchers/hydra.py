"""How MPICH's and Intel MPI's mpiexec tells of a process that ended badly.

    =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
    =   RANK 2 PID 51774 RUNNING AT cn-b14
    =   KILLED BY SIGNAL: 9 (Killed)

(MPICH, src/pm/hydra/tools; older versions name the process by `PID 51774 RUNNING AT cn-b14` alone and say `EXIT CODE: 9`.) What
follows the first report are processes that the launcher itself ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _ended(found: Found) -> Iterator[Event]:
    """Yield the end that the lines tell of."""
    number, code = found.last("number"), found.last("code")
    if number or code:
        task, pid, host = found.last("task"), found.last("pid"), found.last("host")
        yield Exit.of(
            found.first, code=-int(number) if number else int(code or 1), via="mpirun", host=host,
            task=int(task) if task else None, pid=int(pid) if pid else None,
        )  # fmt: skip


END = block(
    says(
        r"^= {1,6}(?:RANK (?P<task>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<host>\S{1,253})",
        literal="RUNNING AT ",
    ),
    ends=regex(r"^= {1,6}(?:KILLED BY SIGNAL: (?P<number>\d{1,3})|EXIT CODE: (?P<code>\d{1,3}))\b"),
    lines=3,
    made=_ended,
)
