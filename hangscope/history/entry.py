"""One incident as the store keeps it: what a report says of it, and the hosts that it ran on."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields

from hangscope.analysis import Analysis
from hangscope.ingest.job_logs.faults import Xid
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import compress
from hangscope.report.masking.secrets import presentable
from hangscope.report.schema.document import Document

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
    happened: float
    job: str
    status: str
    cause: str
    category: str
    confidence: str
    title: str
    fingerprint: str
    culprits: str
    hosts: str
    world_size: int
    group_name: str
    role: str
    op: str
    differs: str
    seq: int
    file: str
    line: int
    function: str
    waiting_file: str
    waiting_line: int
    waiting_function: str
    duration_s: float
    rank_hours: float
    versions: str
    report: str
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
    verdict, page = document.verdict, document.page
    strip = page.strip if page is not None else None
    at = verdict.location if verdict is not None else None
    waiting = (
        user_frame(verdict.waiting_call.frames) if verdict is not None and verdict.waiting_call else None
    )
    group = verdict.group if verdict is not None else None
    culprit_call = verdict.culprit_call if verdict is not None else None
    moments = [int(t) for t in ((verdict.since, verdict.until) if verdict is not None else ()) if t]
    hosts = sorted({c.host for c in verdict.culprits if c.host}) if verdict is not None else []
    return Entry(
        id=_identity(document, paths, began),
        recorded=recorded,
        happened=min(moments, default=0) / 1e9,
        job=_job(paths),
        status=document.status,
        cause=verdict.cause if verdict is not None else "",
        category=verdict.category if verdict is not None else "",
        confidence=verdict.confidence if verdict is not None else "",
        title=document.title,
        fingerprint=verdict.fingerprint if verdict is not None else "",
        culprits=compress(verdict.culprit_ranks) if verdict is not None and verdict.culprit_ranks else "",
        hosts=", ".join(hosts[:64]),
        world_size=document.world_size,
        group_name=group.label if group is not None else "",
        role=(group.role or group.desc) if group is not None else "",
        op=(verdict.op or "") if verdict is not None else "",
        differs=culprit_call.op if culprit_call is not None else "",
        seq=(verdict.seq or 0) if verdict is not None else 0,
        file=_name(at.file) if at is not None else "",
        line=at.line if at is not None else 0,
        function=at.function if at is not None else "",
        waiting_file=_name(waiting.file) if waiting is not None else "",
        waiting_line=waiting.line if waiting is not None else 0,
        waiting_function=waiting.name if waiting is not None else "",
        duration_s=(strip.stalled_s or 0.0) if strip is not None else 0.0,
        rank_hours=(strip.rank_hours or 0.0) if strip is not None else 0.0,
        versions=presentable(", ".join((*libraries[:_MOST_VERSIONS], f"hangscope {document.tool_version}"))),
        report=report,
    )  # fmt: skip


def uses_of(analysis: Analysis) -> list[Use]:
    """Return the hosts of an incident, with what is known of their GPUs and NICs; none where no file names a host."""
    verdict = analysis.judgement.verdict
    to_blame = verdict is not None and verdict.category in _FAULTS
    ranks: dict[str, set[int]] = defaultdict(set)
    faulty: dict[str, set[int]] = defaultdict(set)
    nics: dict[str, set[str]] = defaultdict(set)
    for rank, record in sorted(analysis.incident.ranks.items()):
        if not record.host:
            continue
        gpu = record.device if record.device is not None else record.local_rank
        ranks[record.host].update(() if gpu is None else (gpu,))
        if to_blame and rank in analysis.culprits:
            faulty[record.host].update(() if gpu is None else (gpu,))
    for event in analysis.incident.events:
        host, nic = event.host, getattr(event, "nic", None)
        if to_blame and not analysis.culprits and host and isinstance(event, Xid):
            ranks[host].update(())  # the kernel's log names a host and no rank
            faulty[host].update(())
        if host in ranks and nic:
            nics[host].add(str(nic))
    return [
        Use(
            presentable(host),
            compress(gpus) if gpus else "",
            int(host in faulty),
            compress(faulty[host]) if faulty.get(host) else "",
            presentable(", ".join(sorted(nics[host])[:8])) if host in nics else "",
        )
        for host, gpus in sorted(ranks.items())
    ]


def _identity(document: Document, paths: list[str], began: float) -> str:
    """Return what is equal for two analyses of one incident: when it stopped, where, and how large it was.

    A watched run is one incident, from its first report to the one after its end. Without a time, the same files at the same place with the same answer are one incident.
    """
    verdict = document.verdict
    since = (verdict.since, verdict.until) if verdict is not None else (None, None)
    what: list[object] = [document.world_size, *since, document.status]
    if verdict is not None:
        what += (verdict.fingerprint, verdict.seq, compress(verdict.culprit_ranks))
    if began:
        what = [began]
    elif any(since):
        what += sorted({rank.host for rank in document.ranks if rank.host})
    else:
        files = [item.file for item in document.inputs]
        what += (*(os.path.abspath(path) for path in paths), document.headline, *files)
    return hashlib.sha256(repr(what).encode()).hexdigest()[:12]


def _job(paths: list[str]) -> str:
    """Return the name of the folder that holds the job's files."""
    for name in reversed(os.path.abspath(paths[0]).split(os.sep)) if paths else ():
        if name.lower() not in _PLAIN:
            return presentable(name)[:200]
    return ""


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


NAMES = tuple(field.name for field in fields(Entry))
