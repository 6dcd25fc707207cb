"""From an analysis to the document that every output is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import fields, replace
from functools import cache
from typing import Any

from hangscope.align.frontier import GroupFrontier
from hangscope.analysis import Analysis
from hangscope.errors import Note
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs.endings import ExitOk
from hangscope.ingest.job_logs.progress import JobCompleted, WorkersEnded
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import CallRef, Source, Verdict
from hangscope.model.incident import Absence, Incident, RankRecord, on_group
from hangscope.model.rankset import compress, ranks_phrase
from hangscope.report.masking.redaction import CONTRACT, Redaction
from hangscope.report.masking.secrets import presentable
from hangscope.report.masking.walk import change_texts, texts_in
from hangscope.report.pictures.gather import page_data
from hangscope.report.pictures.stack_tree import merged
from hangscope.report.pictures.stacks import SourceFolder
from hangscope.report.schema import document as parts
from hangscope.report.schema.page import PageData
from hangscope.report.subject import Subject, of_stated_size, with_members
from hangscope.report.words import folded, grouped
from hangscope.verdict.claims import seen_of
from hangscope.verdict.phrasing import SUMMARY, as_sentence, clauses, fitting, sentence_case
from hangscope.verdict.status import ended_well, moved_on

_LOGS = ("log", "error_file", "ras", "inspector")
_WINDOWS = 200
_BRANCHES = 1000
_LINE = 160  # characters of a log line that sets ranks apart


def build_document(
    analysis: Analysis,
    tool_version: str,
    *,
    redacted: Collection[str] = (),
    source: SourceFolder | None = None,
) -> parts.Document:
    """Return the document of an analysis, with secrets masked, control characters out and `redacted` removed."""
    analysis = of_stated_size(analysis)
    incident, judgement = analysis.incident, analysis.judgement
    verdict, subject = judgement.verdict, Subject(analysis)
    page = _pictures(subject, source)
    branches = merged({rank: subject.stack(rank) for rank, r in incident.ranks.items() if r.threads})
    document = parts.Document(
        schema=parts.SCHEMA,
        status=judgement.status,
        headline=_headline(analysis),
        world_size=incident.world_size,
        partial=_partial(incident, analysis.case.statements),
        world_size_known=incident.size_stated and incident.world_size > 0,
        verdict=verdict_part(verdict, incident) if verdict is not None else None,
        confidence_why=tuple(judgement.reasons if verdict or judgement.status == "no_hang" else ()),
        missing=tuple(judgement.missing),
        sources=_sources(incident),
        candidates=tuple(
            parts.CandidatePart(compress(c.ranks), c.what, c.why_set_aside) for c in judgement.candidates
        ),
        hypotheses=tuple(judgement.hypotheses),
        ruled_out=tuple(judgement.ruled_out),
        groups=_groups(analysis),
        ranks=_ranks(subject),
        inputs=_inputs(incident),
        coverage=_coverage(analysis),
        warnings=tuple(parts.WarningPart(n.code, n.file, n.line, n.message, n.hint) for n in incident.notes),
        stacks=branches[:_BRANCHES],
        stacks_left_out=max(0, len(branches) - _BRANCHES) or None,
        outlier_lines=tuple(
            parts.OutlierLine(o.ranks, o.how, o.note, o.text[:_LINE], Source(o.file, o.line))
            for o in analysis.case.statements.outlier_lines
        ),
        tool_version=tool_version,
        page=page,
    )
    named_hosts = {host for e in incident.events for host in (e.host, getattr(e, "peer_host", None)) if host}
    return _fit_to_leave(document, redacted, named_hosts)


def _pictures(subject: Subject, source: SourceFolder | None) -> PageData | None:
    """Return what only the page shows, or None with a note: without its pictures the report still has its verdict."""
    try:
        return page_data(subject, source)
    except Exception as error:
        text = f"the page's pictures could not be drawn: {type(error).__name__}: {error}"
        subject.analysis.incident.notes.append(Note("pictures_failed", text, hint="please report this"))
        return None


def _fit_to_leave(
    document: parts.Document, redacted: Collection[str], hosts: Collection[str]
) -> parts.Document:
    """Return the document as every output may show it: one walk over all its fields, so that masking misses none."""
    document = change_texts(document, cache(presentable))  # most texts of a report are in it many times
    if not redacted:
        return document
    named = [*(rank.host for rank in document.ranks), *(one.host for one in document.found.culprits)]
    known = {host for host in (*named, *hosts) if host}
    redaction = Redaction(texts_in(document), redacted, known)
    return change_texts(document, redaction.text, CONTRACT)


def _headline(analysis: Analysis) -> str:
    judgement, case = analysis.judgement, analysis.case
    if judgement.verdict is not None:
        summary = sentence_case(judgement.verdict.summary)
        is_open = judgement.status == "inconclusive"
        return fitting([f"Inconclusive: {summary}"], SUMMARY) if is_open else summary
    if judgement.status != "no_hang":
        return "Inconclusive: the collected files do not show whether the job stopped, or where."
    dumped = [record.dump_file is not None for record in analysis.incident.ranks.values()]
    if any(dumped) and ended_well(case):
        return "No hang: the job ended without an error after these dumps were written."
    if (step := moved_on(case)) is not None:
        return f"No hang: the job made further steps after these dumps were written ('{clauses(step.text, 110)}')."
    if dumped and all(dumped):
        return "No hang: nothing is pending, and all ranks have completed the same collectives."
    ends = case.statements.all(JobCompleted, WorkersEnded, ExitOk)
    if not ends and judgement.reasons:
        return as_sentence(fitting([f"No hang: {judgement.reasons[0]}"], SUMMARY - 1))
    said = f" ('{clauses(ends[-1].text, 110)}')" if ends and ends[-1].text != "0" else ""
    return f"No hang: the job ended without an error{said}."


def _partial(incident: Incident, statements: Statements) -> parts.Partial:
    """Return of which ranks something was collected, and of how many, where an input states it."""
    records = sorted(incident.ranks.items())
    missing = [rank for rank, record in records if record.dump_file is None]
    dumped = tuple(rank for rank, record in records if record.dump_file is not None)
    size = incident.world_size if incident.size_stated else None
    if not records:
        return parts.Partial(True, "no line names the rank that printed it")
    if not missing:
        return parts.Partial(False, f"dumps of all {size} ranks" if size else seen_of("dumps", dumped, None))
    if not dumped:
        heard = {r for r, kinds in statements.of_rank.items() if any(not kind.by_launcher for kind in kinds)}
        seen = tuple(rank for rank, record in records if record.files or record.events or rank in heard)
        text = seen_of("text", seen, size) if seen else "no line names the rank that printed it"
        return parts.Partial(True, f"no dumps; {text}", compress(missing))
    unusable = [r for r in missing if incident.ranks[r].absence in (Absence.UNREADABLE, Absence.STALE)]
    none = [r for r in missing if r not in unusable]
    text = seen_of("dumps", dumped, size)
    text += f"; none of {ranks_phrase(none)}" if none else ""
    text += f"; unusable: {ranks_phrase(unusable)}" if unusable else ""
    return parts.Partial(True, text, compress(missing))


def _sources(incident: Incident) -> dict[str, int]:
    # A paste of stacks has lines, too.
    spoken = {event.file for event in incident.events if not event.by_launcher}
    used = (i for i in incident.inputs if i.status == "used")
    logs = [i for i in used if i.kind in _LOGS or (i.kind == "stacks" and i.file in spoken)]
    return {
        "dump": sum(1 for r in incident.ranks.values() if r.dump_file),
        "log": sum(1 for i in logs if not is_of_the_watcher(i.file)),
        "stack": sum(1 for r in incident.ranks.values() if r.threads) + len(incident.unplaced),
    }


def _counts(incident: Incident, view: GroupFrontier, rank: int) -> tuple[int | None, int | None, bool]:
    """Return what a rank enqueued and completed on a group, and whether it completed that at least; None where it is not known.

    A group without collectives counts its sends and receives.
    """
    record, member, completed = incident.ranks.get(rank), view.members[rank], view.completed(rank)
    sends = record.p2p.get(view.group.gid) if record is not None else None
    if sends is not None and member.enqueued is None:
        return sends.frontier.enqueued, sends.frontier.completed, False
    by_lines = member.queue.told and member.queue.frontier.completed is None and not completed
    at_least = any(seq > (completed or 0) for seq in member.unknown)
    return member.enqueued, None if by_lines else completed, at_least


def _groups(analysis: Analysis) -> tuple[parts.GroupPart, ...]:
    rows, is_large = [], analysis.incident.world_size > parts.FOLD_ABOVE
    for view in analysis.views:
        group = with_members(view.group, analysis.incident)
        classes = folded((_counts(analysis.incident, view, rank), rank) for rank in view.members)
        frontier = tuple(parts.FrontierRow(compress(ranks), *counts) for counts, ranks in classes)
        ranks = compress(group.ranks) if is_large else tuple(group.ranks)
        rows.append(parts.GroupPart(group.name, group.desc, group.role, ranks, group.members_known, frontier))
    return tuple(rows)


def _ranks(subject: Subject) -> tuple[parts.RankPart, ...]:
    rows, records = [], subject.incident.ranks
    for rank, record in sorted(records.items()):
        absence, last = record.absence and record.absence.value, _last_call(subject.incident, record)
        rows.append(((subject.role(rank), subject.standing(rank), absence, last), rank))
    if len(rows) > parts.FOLD_ABOVE:
        return tuple(parts.RankPart(None, compress(r), len(r), None, *alike) for alike, r in folded(rows))
    named = ((rank, None, None, records[rank].host, *alike, subject.files_of(rank)) for alike, rank in rows)
    return tuple(parts.RankPart(*row) for row in named)


def _last_call(incident: Incident, record: RankRecord) -> str | None:
    queue = max(filter(len, record.all_queues), key=lambda queue: int(queue.order[-1]), default=None)
    if queue is None:
        return None
    kind = incident.kinds.without_sizes(int(queue.kind[-1]))
    frame = user_frame(kind.stack)
    where = f"{on_group(incident.groups[queue.gid].label)}" + (f" at {frame}" if frame else "")
    return f"{kind.op or 'a call,'} seq {int(queue.seq[-1])} {where}"


def _inputs(incident: Incident) -> tuple[parts.InputPart, ...]:
    owners = grouped((file, rank) for rank, record in incident.ranks.items() for file in record.files)
    alone = {file: ranks[0] if len(ranks) == 1 else None for file, ranks in owners.items()}
    inputs = [(i, alone.get(i.file, i.rank)) for i in incident.inputs]
    if len(inputs) <= parts.FOLD_ABOVE:
        return tuple(parts.InputPart(i.file, None, i.kind, r, None, i.status, i.reason) for i, r in inputs)
    rows = []
    classes = grouped(((i.kind, i.status, i.reason), (i.file, rank)) for i, rank in inputs)
    for (kind, status, reason), items in sorted(classes.items()):
        file = f"{len(items)} files, {items[0][0]} and others" if len(items) > 1 else items[0][0]
        ranks = compress(rank for _, rank in items if rank is not None)
        rows.append(parts.InputPart(file, len(items), kind, None, ranks, status, reason))
    return tuple(rows)


def _coverage(analysis: Analysis) -> parts.CoveragePart:
    statuses = Counter(i.status for i in analysis.incident.inputs)
    windows = []
    for view in analysis.views:
        kept = (((m.first_row, m.last_row), rank) for rank, m in view.members.items() if m.first_row)
        for window, ranks in folded(kept):
            windows.append(parts.WindowPart(compress(ranks), view.group.label, *window))
    return parts.CoveragePart(
        files=len(analysis.incident.inputs),
        used=statuses["used"],
        set_aside=statuses["set aside"] + statuses["failed"],
        ignored=statuses["ignored"],
        windows=tuple(windows[:_WINDOWS]),
        windows_left_out=max(0, len(windows) - _WINDOWS) or None,
    )


_CULPRITS = 64  # named with host and device
_TENSORS = 8


def verdict_part(verdict: Verdict, incident: Incident) -> parts.VerdictPart:
    """Return the `verdict` of a document."""
    records, group = incident.ranks, verdict.group and with_members(verdict.group, incident)
    named = [records[rank] for rank in verdict.culprit_ranks[:_CULPRITS] if rank in records]
    found: dict[str, Any] = {f.name: getattr(verdict, f.name, None) for f in fields(parts.VerdictPart)}
    found |= {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
    found |= {
        "culprits": tuple(parts.CulpritPart(r.rank, r.host, r.local_rank, r.device, r.pid) for r in named),
        "group": group and parts.GroupRef(group.name, group.desc, group.role, tuple(group.ranks), group.members_known),
        "explains": parts.Explains(verdict.explained, len(verdict.waiting_ranks)),
        "culprit_call": _call(verdict.culprit_call),
        "waiting_call": _call(verdict.waiting_call),
        "since": None if verdict.since is None else str(verdict.since),
        "until": None if verdict.until is None else str(verdict.until),
    }  # fmt: skip
    return parts.VerdictPart(**found)


def _call(call: CallRef | None) -> CallRef | None:
    return call and replace(call, sizes=call.sizes[:_TENSORS], dtypes=call.dtypes[:_TENSORS])
