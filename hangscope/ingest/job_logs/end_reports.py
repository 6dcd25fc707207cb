"""Reports of several lines on how processes ended: by torchrun, mpirun and mpiexec, SGLang and Kubernetes.

    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-20_15:31:49
      host      : gpu07
      rank      : 1 (local_rank: 1)
      exitcode  : -9 (pid: 29461)  (SIGKILL)
      error_file: <N/A>
      traceback : Signal 9 (SIGKILL) received by PID 29461

(torch/distributed/elastic/multiprocessing/errors/__init__.py; 1.9 wrote `msg` for `traceback`, and the other failures in a second
table after the root cause.) Ranks here are global. The failures count from 1, and the root cause is number 0.

mpirun and mpiexec report a process that ended badly over several lines; SGLang reports its schedulers in the same way.

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

How a pod's container ended, as `kubectl describe pod` prints it, with the rank that its environment states.

    Name:             run-7c9-worker-2
    Containers:
      pytorch:
        State:          Terminated
          Reason:       OOMKilled
          Exit Code:    137
        Limits:
          nvidia.com/gpu:  1
        Environment:
          WORLD_SIZE:   4
          RANK:         3

(kubernetes/kubectl, pkg/describe/describe.go.) RANK is the process's own where the container has at most one device; with more it is
usually the node's number. `Last State` is how the container ended before a restart, which counts where it runs again. People often quote only the part about the end:
then the command above it names the pod, or nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime, timezone
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.job_logs.endings import Exit, WorkersSwept
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import any_of, integer, says
from hangscope.ingest.lines.prefixes import Line, quote
from hangscope.ingest.recorder.values import short_number
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_ALWAYS = {"time", "rank", "exitcode"}
_FIELD = r"^\s{0,6}(?P<name>time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(?P<value>.*)$"
_AS_PRINTED = (  # what a field looks like where no table was announced
    r"(?=^\s{0,6}(?:time      : \d{4}-\d\d-\d\d_|host      : \S|rank      : \d{1,7} \(local_rank: \d"
    r"|exitcode  : -?\d{1,4} {1,6}\(pid: ))"
)
_ROOT, _OTHERS = r"^\s*(?P<root>Root Cause)\b", r"^\s*(?P<others>Failures|Other Failures):\s*$"


@dataclass(slots=True)
class _Entry:
    """One entry as far as it was read; `number` is None where the text begins within it."""

    where: Line
    root: bool
    number: int | None = None
    stated: dict[str, str] = field(default_factory=dict)
    doubled: bool = False

    def add(self, line: Line, name: str, value: str) -> None:
        """Add a field."""
        self.doubled |= name in self.stated
        self.stated.setdefault(name, value.strip())
        if name == "exitcode":
            self.where = line

    def exit(self) -> Exit | None:
        """Return the end that the entry states."""
        rank = re.match(r"(\d{1,7}) \(local_rank: (\d{1,6})\)", self.stated.get("rank", ""))
        code = re.match(r"(-?\d{1,4}) {1,6}\(pid: (\d{1,9})\)", self.stated.get("exitcode", ""))
        if not code:
            return None
        who: dict[str, Any] = {"rank": int(rank[1]), "local_rank": int(rank[2])} if rank else {}
        with suppress(ValueError):
            time = datetime.strptime(self.stated.get("time", "")[:19], "%Y-%m-%d_%H:%M:%S")
            who["time"] = time.replace(tzinfo=timezone.utc).timestamp()
        host = self.stated.get("host") or None
        message = self.stated.get("message") or self.stated.get("msg")
        return Exit.of(
            replace(self.where, host=host), code=int(code[1]), pid=int(code[2]), via="table", first=self.root,
            message=quote(message) if message else None, **who,
        )  # fmt: skip


def _table(found: Found) -> Iterator[Event | Note]:
    """Yield the end of each worker in the table, or that a worker failed where it has no entry, and a note where it is damaged."""
    entries = _entries(found)
    ends = [end for entry in entries if (end := entry.exit()) is not None]
    yield from ends
    if not ends and "ChildFailedError" in found.first.text:
        yield found.first.event(WorkersSwept, failed="a worker")
    yield from _damage(found, entries)


def _entries(found: Found) -> list[_Entry]:
    """Return the entries of a table in their order."""
    root, entries, entry = False, list[_Entry](), None
    for line, match in found.parts:
        caught = match.groupdict()
        if "root" in caught or "others" in caught:
            root, entry = "root" in caught, None
        elif "number" in caught:
            entries.append(entry := _Entry(line, root, int(caught["number"])))
        elif "name" in caught and (entry is not None or line is found.first or caught["name"] == "time"):
            if entry is None:
                entries.append(entry := _Entry(line, root))
            entry.add(line, caught["name"], caught["value"])
        elif "more" in caught and entry is not None and "traceback" in entry.stated:
            entry.stated["message"] = caught["more"]
    return entries


def _damage(found: Found, entries: Sequence[_Entry]) -> Iterator[Note]:
    """Yield a note where an entry has a field twice or is missing one, and where an entry or the root cause is missing."""
    complete = "ruler" in found.parts[-1][1].groupdict()
    headed = [e for e in entries if e.number is not None and (complete or e is not entries[-1])]
    torn = [e for e in entries if e.doubled] + [e for e in headed if not e.stated.keys() >= _ALWAYS]
    numbers = {entry.number for entry in entries if entry.number}
    beheaded = any(entry.number is None for entry in entries)
    rooted = "Other Failures" in found.first.text or any("root" in m.groupdict() for _, m in found.parts)
    lost = max(numbers, default=0) - len(numbers) > beheaded
    if torn or lost or ((numbers or beheaded) and not rooted):
        where = [*torn, *entries][0].where
        text = "the launcher's table of failures is incomplete: it breaks off, or an entry has fields twice or is missing some"
        yield Note("torn_table", text, where.file, where.number, "look at the launcher's own output")


TABLE = block(
    says("errors.ChildFailedError"),
    says(_ROOT, literal="Root Cause"),
    says(_OTHERS, literal="Failures:"),
    *any_of(("  time      : 2", "  host      : ", " (local_rank: ", "  exitcode  : "), _AS_PRINTED + _FIELD),
    *map(regex, (_ROOT, _OTHERS, r"^\s*\[(?P<number>\d{1,7})\]:\s*$", _FIELD)),
    regex(r"^\s+(?!File \")(?P<more>\S.*)"),
    ends=regex(r"^\s*(?P<ruler>={20,})\s*$"),
    lines=10_000,
    gap=60,
    made=_table,
)


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


_ENDED = ("Reason", "Exit Code")  # the fields that state how


def _pod(found: Found) -> Iterator[Event]:
    """Yield the ends of the containers that failed."""
    pod, state = found.last("pod"), ""
    containers: list[dict[str, tuple[Line, str]]] = [{}]
    for line, match in found.parts:
        caught = match.groupdict()
        if "container" in caught:
            containers.append({})
        elif "name" in caught:
            state = caught["name"] if caught["name"].endswith("State") else state
            before = "Last " if state == "Last State" and caught["name"] in _ENDED else ""
            containers[-1].setdefault(before + caught["name"], (line, caught["value"] or ""))
    for fields in containers:
        if "Last State" in fields and not fields.get("State", (None, ""))[1].startswith("Terminated"):
            # It was started again: what its job met is how it ended before.
            fields |= {
                name: fields[last] for name in ("State", *_ENDED) if (last := f"Last {name}") in fields
            }
        number = {name: short_number(fields[name][1]) for name in fields}
        if number.get("Exit Code") and fields.get("State", (None, ""))[1].startswith("Terminated"):
            where = min((fields[name][0] for name in _ENDED if name in fields), key=lambda line: line.number)
            alone = (number.get("nvidia.com/gpu", 1) or 1) == 1
            where = replace(where, rank=number.get("RANK") if alone else None, host=pod)
            if fields.get("Reason", (None, ""))[1] == "OOMKilled":
                yield where.event(OomHost)
            else:
                yield Exit.of(where, code=number["Exit Code"], via="kubernetes", host=pod)


POD = block(
    says(r"^Name: {2,}(?P<pod>[\w.-]{1,253})$", literal="Name:  "),
    says(
        r"\bkubectl (?:\S{1,60} ){0,6}?describe (?:\S{1,60} ){0,6}?(?:pods?[ /])(?P<pod>[\w.-]{1,253})",
        literal=" describe ",
    ),
    says(r"^ {0,8}(?P<name>(?:Last )?State): {2,}(?P<value>Terminated)$", literal="State:  "),
    regex(r"^  (?P<container>[\w.-]{1,253}):$"),
    regex(r"^ {0,8}(?!Name:)(?P<name>\w[\w./ -]{0,60}?) *:(?: {1,40}(?P<value>\S.{0,200}))?$"),
    ends=regex(r"^(?:Events|Conditions|Volumes):"),
    lines=400,
    made=_pod,
)
