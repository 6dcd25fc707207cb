"""One incident as the store keeps it: what a report says of it, and the hosts that it ran on."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from hangscope.analysis import Analysis
from hangscope.ingest.job_logs.faults import Xid
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.rankset import compress
from hangscope.report.masking.secrets import presentable
from hangscope.report.schema.document import Document, VerdictPart

#: Folders that say nothing about the job whose files are in them.
_PLAIN = frozenset({"dumps", "logs", "stacks", "log", "output", "out", "recorder", "", ".", "-"})
_MOST_VERSIONS = 8
_FAULTS = frozenset({"hardware", "network"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident. Times are s since the epoch, `happened` is 0 if the files contain no time; texts are empty where unknown.

    `recorded` is the time of its first analysis. `differs` is what the culprit called while the others called `op`.
    """

    id: str
    recorded: float
    happened: float = 0.0
    job: str = ""
    status: str = ""
    cause: str = ""
    category: str = ""
    confidence: str = ""
    title: str = ""
    fingerprint: str = ""
    culprits: str = ""
    hosts: str = ""
    world_size: int = 0
    group_name: str = ""
    role: str = ""
    op: str = ""
    differs: str = ""
    seq: int = 0
    file: str = ""
    line: int = 0
    function: str = ""
    waiting_file: str = ""
    waiting_line: int = 0
    waiting_function: str = ""
    duration_s: float = 0.0
    rank_hours: float = 0.0
    versions: str = ""
    report: str = ""
    note: str = ""
    analyses: int = 1

    @property
    def when(self) -> float:
        """Return when it happened, else when it was analyzed first."""
        return self.happened or self.recorded


@dataclass(frozen=True, slots=True)
class Use:
    """One host of an incident, the GPUs used there (`0-7`), and whether it was the culprit of a hardware or network cause."""

    host: str
    gpus: str
    fault: int
    fault_gpus: str
    nics: str


def entry_of(
    document: Document,
    paths: list[str],
    recorded: float,
    report: str = "",
    libraries: Sequence[str] = (),
    began: float = 0.0,
) -> Entry:
    """Return the entry of a report on the files at `paths`, of a run that `began` then; `libraries` are the versions that they show."""
    strip = document.page.strip if document.page is not None else None
    return Entry(
        id=_identity(document, paths, began),
        recorded=recorded,
        job=_job(paths),
        status=document.status,
        title=document.title,
        world_size=document.world_size,
        duration_s=(strip.stalled_s or 0.0) if strip is not None else 0.0,
        rank_hours=(strip.rank_hours or 0.0) if strip is not None else 0.0,
        versions=presentable(", ".join((*libraries[:_MOST_VERSIONS], f"hangscope {document.tool_version}"))),
        report=report,
        **_of_verdict(document.found),
    )


def _of_verdict(verdict: VerdictPart) -> dict[str, Any]:
    culprits, call, group, at = verdict.culprit_ranks, verdict.culprit_call, verdict.group, verdict.location
    moments = [int(time) for time in (verdict.since, verdict.until) if time]
    names = ("cause", "category", "confidence", "fingerprint")
    found: dict[str, Any] = {name: getattr(verdict, name) for name in names}
    found |= {"op": verdict.op or "", "seq": verdict.seq or 0, "differs": call.op if call is not None else ""}
    found |= {"happened": min(moments, default=0) / 1e9, "culprits": compress(culprits) if culprits else ""}
    found["hosts"] = ", ".join(sorted({c.host for c in verdict.culprits if c.host})[:64])
    if group is not None:
        found |= {"group_name": group.label, "role": group.role or group.desc}
    waiting = user_frame(verdict.waiting_call.frames) if verdict.waiting_call is not None else None
    own = Frame(at.function, at.file, at.line) if at is not None else None
    for prefix, frame in (("", own), ("waiting_", waiting)):
        if frame is not None:
            place = {"file": frame.file.rsplit("/", 1)[-1], "line": frame.line, "function": frame.name}
            found |= {f"{prefix}{name}": value for name, value in place.items()}
    return found


def uses_of(analysis: Analysis) -> list[Use]:
    """Return the hosts of an incident, with what is known of their GPUs and NICs; none where no file names a host."""
    verdict = analysis.judgement.verdict
    to_blame = verdict is not None and verdict.category in _FAULTS
    culprits = frozenset(verdict.culprit_ranks if verdict is not None else ())
    gpus: dict[str, set[int]] = {}
    faulty: dict[str, set[int]] = {}
    nics: dict[str, set[str]] = defaultdict(set)
    for rank, record in sorted(analysis.incident.ranks.items()):
        gpu = record.device if record.device is not None else record.local_rank
        for found in (gpus, faulty) if to_blame and rank in culprits else (gpus,):
            if record.host:
                found.setdefault(record.host, set()).update(() if gpu is None else (gpu,))
    for event in analysis.incident.events:
        if to_blame and not culprits and event.host and isinstance(event, Xid):
            for found in (gpus, faulty):  # the kernel's log names a host and no rank
                found.setdefault(event.host, set())
        if event.host in gpus and (nic := getattr(event, "nic", None)):
            nics[event.host].add(str(nic))
    uses = []
    for host, used in sorted(gpus.items()):
        at_fault, errors = faulty.get(host), presentable(", ".join(sorted(nics[host])[:8]))
        units, bad = (compress(some) if some else "" for some in (used, at_fault))
        uses.append(Use(presentable(host), units, int(at_fault is not None), bad, errors))
    return uses


def _identity(document: Document, paths: list[str], began: float) -> str:
    """Return what is equal for two analyses of one incident: when it stopped, where, and how large it was.

    A watched run is one incident, from its first report to the one after its end. Without a time, the same files at the same place with the same answer are one incident.
    """
    verdict = document.found
    what: list[object] = [document.world_size, verdict.since, verdict.until, document.status]
    if verdict.cause:
        what += (verdict.fingerprint, verdict.seq, compress(verdict.culprit_ranks))
    if began:
        what = [began]
    elif verdict.since or verdict.until:
        what += sorted({rank.host for rank in document.ranks if rank.host})
    else:
        files = [item.file for item in document.inputs]
        what += (*(os.path.abspath(path) for path in paths), document.headline, *files)
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]


def _job(paths: list[str]) -> str:
    for name in reversed(os.path.abspath(paths[0]).split(os.sep)) if paths else ():
        if name.lower() not in _PLAIN:
            return presentable(name)[:200]
    return ""


NAMES = tuple(field.name for field in fields(Entry))
