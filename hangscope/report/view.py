"""From an analysis to the document that every output is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from hangscope.analysis import Analysis
from hangscope.errors import Note
from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Source
from hangscope.model.incident import Absence, Incident, Input, RankRecord
from hangscope.model.rankset import compress, ranks_phrase
from hangscope.report.masking.redaction import CONTRACT, Redaction
from hangscope.report.masking.secrets import mask_text
from hangscope.report.masking.walk import change_texts, texts_in
from hangscope.report.pictures.gather import page_data
from hangscope.report.pictures.stack_tree import merged
from hangscope.report.schema.document import (
    FOLD_ABOVE,
    SCHEMA,
    BranchPart,
    CandidatePart,
    CoveragePart,
    Document,
    FrontierRow,
    GroupPart,
    InputPart,
    OutlierLine,
    Partial,
    RankPart,
    WarningPart,
    WindowPart,
)
from hangscope.report.schema.page import PageData
from hangscope.report.sources import SourceFolder
from hangscope.report.subject import Subject
from hangscope.report.verdict_view import verdict_part
from hangscope.report.words import clean
from hangscope.verdict.claims import Scope
from hangscope.verdict.phrasing import SUMMARY, clauses, fitting, sentence_case
from hangscope.verdict.status import ended_well, last_answer, moved_on, serves

_WINDOWS = 200
_BRANCHES = 1000
_LINE = 160  # characters of a log line that sets ranks apart


def build_document(
    analysis: Analysis,
    tool_version: str,
    *,
    redacted: Collection[str] = (),
    source: SourceFolder | None = None,
) -> Document:
    """Return the document of an analysis, with secrets masked, control characters out and `redacted` removed."""
    incident, judgement = analysis.incident, analysis.judgement
    verdict, subject = judgement.verdict, Subject(analysis)
    page = _pictures(subject, source)
    branches = merged({rank: r.threads[0][1] for rank, r in incident.ranks.items() if r.threads})
    document = Document(
        schema=SCHEMA,
        status=judgement.status,
        headline=_headline(analysis),
        world_size=incident.world_size,
        partial=_partial(incident),
        verdict=verdict_part(verdict, incident) if verdict is not None else None,
        confidence_why=tuple(judgement.reasons) if verdict is not None else (),
        missing=tuple(judgement.missing),
        sources=_sources(incident),
        candidates=tuple(
            CandidatePart(compress(c.ranks), c.what, c.why_set_aside) for c in judgement.candidates
        ),
        hypotheses=tuple(judgement.hypotheses),
        ruled_out=tuple(judgement.ruled_out),
        groups=_groups(analysis),
        ranks=_ranks(subject),
        inputs=_inputs(incident.inputs),
        coverage=_coverage(analysis),
        warnings=tuple(WarningPart(n.code, n.file, n.line, n.message, n.hint) for n in incident.notes),
        stacks=tuple(BranchPart(b.depth, b.who, len(b.ranks), tuple(b.frames)) for b in branches[:_BRANCHES]),
        stacks_left_out=len(branches) - _BRANCHES if len(branches) > _BRANCHES else None,
        outlier_lines=tuple(
            OutlierLine(o.ranks, o.how, o.note, o.text[:_LINE], Source(o.file, o.line))
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


def _fit_to_leave(document: Document, redacted: Collection[str], hosts: Collection[str]) -> Document:
    """Return the document as every output may show it: one walk over all its fields, so that masking misses none."""
    shown = cache(lambda text: mask_text(clean(text)))  # most texts of a report stand in it many times
    document = change_texts(document, shown)
    if not redacted:
        return document
    culprits = document.verdict.culprits if document.verdict is not None else ()
    rows = (*(rank.host for rank in document.ranks), *(culprit.host for culprit in culprits))
    known = {host for host in (*rows, *hosts) if host}
    redaction = Redaction(texts_in(document), redacted, known)
    return change_texts(document, redaction.text, CONTRACT)


def _headline(analysis: Analysis) -> str:
    judgement = analysis.judgement
    if judgement.verdict is not None:
        summary = sentence_case(judgement.verdict.summary)
        if judgement.status == "inconclusive":
            return fitting([f"Inconclusive: {summary}"], SUMMARY)
        return summary
    if judgement.status == "no_hang":
        dumped = [record.dump_file is not None for record in analysis.incident.ranks.values()]
        if any(dumped) and ended_well(analysis.case):
            return "No hang: the job ended without an error after these dumps were written."
        if (step := moved_on(analysis.case)) is not None:
            return f"No hang: the job made further steps after these dumps were written ('{clauses(step.text, 110)}')."
        if serves(analysis.case):
            answer = clauses(last_answer(analysis.case), 110)
            return f"No hang: the last lines show the server answering requests ('{answer}'), so its earlier waits have ended."
        if not dumped or not all(dumped):
            return "No hang: the job ended without an error."
        return "No hang: nothing is pending, and all ranks have completed the same collectives."
    return "Inconclusive: the collected files do not show whether the job stopped, or where."


def _partial(incident: Incident) -> Partial:
    missing = [r for r, record in sorted(incident.ranks.items()) if record.dump_file is None]
    dumped = tuple(r for r, record in sorted(incident.ranks.items()) if record.dump_file is not None)
    size = incident.world_size if incident.size_stated else None
    if not missing:
        text = f"dumps of all {size} ranks" if size else Scope(dumped, None).phrase("dumps")
        return Partial(False, text)
    if dumped:
        aside = [r for r in missing if incident.ranks[r].absence in (Absence.UNREADABLE, Absence.STALE)]
        none = [r for r in missing if r not in aside]
        text = Scope(dumped, size).phrase("dumps")
        text += f"; none of {ranks_phrase(none)}" if none else ""
        text += f"; unusable: {ranks_phrase(aside)}" if aside else ""
    else:
        seen = tuple(r for r, record in sorted(incident.ranks.items()) if record.files or record.events)
        text = f"no dumps; {Scope(seen, size).phrase('text')}"
    return Partial(True, text, compress(missing))


def _sources(incident: Incident) -> dict[str, int]:
    return {
        "dump": sum(1 for r in incident.ranks.values() if r.dump_file),
        "log": sum(
            1
            for i in incident.inputs
            if i.kind in ("log", "ras", "inspector") and i.status == "used" and not is_of_the_watcher(i.file)
        ),
        "stack": sum(1 for r in incident.ranks.values() if r.stack_file),
    }


def _groups(analysis: Analysis) -> tuple[GroupPart, ...]:
    rows = []
    for view in analysis.views:
        classes: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
        for rank, member in view.members.items():
            classes[(member.enqueued, view.completed(rank))].append(rank)
        group, size = view.group, analysis.incident.world_size
        rows.append(
            GroupPart(
                group.name,
                group.desc,
                group.role,
                tuple(group.ranks) if size <= FOLD_ABOVE else compress(group.ranks),
                group.members_known,
                tuple(
                    FrontierRow(compress(ranks), enqueued, completed)
                    for (enqueued, completed), ranks in sorted(classes.items(), key=lambda kv: kv[1])
                ),
            )
        )
    return tuple(rows)


def _ranks(subject: Subject) -> tuple[RankPart, ...]:
    rows = []
    for rank, record in sorted(subject.incident.ranks.items()):
        absence = record.absence.value if record.absence else None
        rows.append(
            RankPart(
                rank=rank,
                host=record.host,
                state=subject.role(rank),
                absence=absence,
                last_call=_last_call(subject.incident, record),
                files=tuple(record.files),
            )
        )
    if len(rows) <= FOLD_ABOVE:
        return tuple(rows)
    classes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows:
        classes[(row.state, row.absence, row.last_call)].append(row.rank or 0)
    return tuple(
        RankPart(ranks=compress(ranks), count=len(ranks), state=state, absence=absence, last_call=last)
        for (state, absence, last), ranks in sorted(classes.items(), key=lambda kv: kv[1])
    )


def _last_call(incident: Incident, record: RankRecord) -> str | None:
    """Return the last call that a rank enqueued on any group, for a person."""
    best: tuple[int, Any, int] | None = None
    for queues in (record.queues, record.p2p):
        for queue in queues.values():
            if len(queue) and (best is None or int(queue.order[-1]) > best[0]):
                best = (int(queue.order[-1]), queue, int(queue.kind[-1]))
    if best is None:
        return None
    _, queue, index = best
    kind = incident.kinds.without_sizes(index)
    frame = user_frame(kind.stack)
    group = incident.groups[queue.gid]
    return f"{kind.op or 'a call,'} seq {int(queue.seq[-1])} on group {group.label}" + (
        f" at {frame}" if frame else ""
    )


def _inputs(inputs: Sequence[Input]) -> tuple[InputPart, ...]:
    if len(inputs) <= FOLD_ABOVE:
        return tuple(
            InputPart(file=i.file, kind=i.kind, rank=i.rank, status=i.status, reason=i.reason) for i in inputs
        )
    classes: dict[tuple[str, str, str], list[Input]] = defaultdict(list)
    for item in inputs:
        classes[(item.kind, item.status, item.reason)].append(item)
    return tuple(
        InputPart(
            file=f"{len(items)} files, {items[0].file} and others" if len(items) > 1 else items[0].file,
            count=len(items),
            kind=kind,
            ranks=compress(i.rank for i in items if i.rank is not None),
            status=status,
            reason=reason,
        )
        for (kind, status, reason), items in sorted(classes.items())
    )


def _coverage(analysis: Analysis) -> CoveragePart:
    inputs = analysis.incident.inputs
    windows = []
    for view in analysis.views:
        classes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for rank, member in view.members.items():
            if member.first_row:
                classes[(member.first_row, member.last_row)].append(rank)
        windows += [
            WindowPart(compress(r), view.group.label, a, b)
            for (a, b), r in sorted(classes.items(), key=lambda kv: kv[1])
        ]
    return CoveragePart(
        files=len(inputs),
        used=sum(1 for i in inputs if i.status == "used"),
        set_aside=sum(1 for i in inputs if i.status in ("set aside", "failed")),
        ignored=sum(1 for i in inputs if i.status == "ignored"),
        windows=tuple(windows[:_WINDOWS]),
        windows_left_out=len(windows) - _WINDOWS if len(windows) > _WINDOWS else None,
    )
