"""What a report shows: the analysis as the JSON report's plain data (schema `hangscope.report/1`).

Every other reporter works from this dictionary alone. Keys may be added within a major version, never renamed or
removed; nanoseconds are strings, because a browser's numbers lose integers above 2^53; ranks and inputs are folded into
classes above 1,024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hangscope.align.callsite import user_frame
from hangscope.align.rankset import compress, ranks_phrase
from hangscope.analysis import Analysis
from hangscope.incident import Incident, Input, RankRecord
from hangscope.report.masking.secrets import mask
from hangscope.report.pictures import gather
from hangscope.report.verdict_view import both_stacks, verdict_view

SCHEMA = "hangscope.report/1"
FOLD_ABOVE = 1024
View = dict[str, Any]


def build_view(analysis: Analysis, tool_version: str) -> View:
    """Return the report of an analysis as plain data, with secrets in quoted text masked."""
    incident, judgement = analysis.incident, analysis.judgement
    verdict = judgement.verdict
    view: View = {
        "schema": SCHEMA,
        "status": judgement.status,
        "headline": _headline(analysis),
        "world_size": incident.world_size,
        "partial": _partial(incident),
        "verdict": verdict_view(verdict, incident) if verdict is not None else None,
        "confidence_why": judgement.reasons if verdict is not None else [],
        "missing": judgement.missing,
        "sources": _sources(incident),
        "candidates": [
            {"ranks": compress(c.ranks), "cause": c.what, "why_set_aside": c.why_set_aside}
            for c in judgement.candidates
        ],
        "hypotheses": [
            {
                "cause": h.cause,
                "ranks": list(h.ranks),
                "fits": list(h.fits),
                "contradicts": list(h.contradicts),
                "would_decide": h.would_decide,
            }
            for h in judgement.hypotheses
        ],
        "groups": _groups(analysis),
        "ranks": _ranks(analysis),
        "inputs": _inputs(incident.inputs),
        "coverage": _coverage(analysis),
        "stacks": both_stacks(verdict, incident),
        "lanes": gather.lanes(analysis),
        "rankmap": gather.rankmap(analysis),
        "waitfor": gather.waitfor(analysis),
        "timeline": gather.timeline(analysis),
        "warnings": [
            {"code": n.code, "file": n.file, "line": n.line, "message": n.message, "hint": n.hint}
            for n in incident.notes
        ],
        "tool_version": tool_version,
    }
    masked: View = mask(view)
    return masked


def _headline(analysis: Analysis) -> str:
    judgement = analysis.judgement
    if judgement.verdict is not None:
        if judgement.status == "inconclusive":
            return f"Inconclusive: {judgement.verdict.summary}"
        return judgement.verdict.summary
    if judgement.status == "no_hang":
        return "No hang: every rank was seen, nothing is pending and all frontiers are equal."
    return "Inconclusive: what was left behind does not tell whether the job stopped, or where."


def _partial(incident: Incident) -> dict[str, Any]:
    missing = [r for r, record in sorted(incident.ranks.items()) if record.dump_file is None]
    dumped = incident.world_size - len(missing)
    if not missing:
        return {"is_partial": False, "text": f"dumps of all {incident.world_size} ranks", "missing_ranks": ""}
    text = (
        f"dumps of {dumped} of {incident.world_size} ranks; {ranks_phrase(missing)} left none"
        if dumped
        else f"no dumps; text of {sum(1 for r in incident.ranks.values() if r.files or r.events)} of {incident.world_size} ranks"
    )
    return {"is_partial": True, "text": text, "missing_ranks": compress(missing)}


def _sources(incident: Incident) -> dict[str, int]:
    return {
        "dump": sum(1 for r in incident.ranks.values() if r.dump_file),
        "log": sum(
            1
            for i in incident.inputs
            if i.kind in ("log", "error_file", "ras", "inspector") and i.status == "used"
        ),
        "stack": sum(1 for r in incident.ranks.values() if r.stack_file),
    }


def _groups(analysis: Analysis) -> list[dict[str, Any]]:
    rows = []
    for view in analysis.views:
        classes: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
        for rank, member in view.members.items():
            classes[(member.enqueued, view.completed(rank))].append(rank)
        rows.append(
            {
                "name": view.group.name,
                "desc": view.group.desc,
                "role": view.group.role,
                "ranks": _folded(view.group.ranks, analysis.incident.world_size),
                "members_known": view.group.members_known,
                "frontier": [
                    {"ranks": compress(ranks), "enqueued": enqueued, "completed": completed}
                    for (enqueued, completed), ranks in sorted(classes.items(), key=lambda kv: kv[1])
                ],
            }
        )
    return rows


def _folded(ranks: Sequence[int], world_size: int) -> list[int] | str:
    return list(ranks) if world_size <= FOLD_ABOVE else compress(ranks)


def _ranks(analysis: Analysis) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for rank, record in sorted(analysis.incident.ranks.items()):
        rows.append(
            {
                "rank": rank,
                "host": record.host,
                "state": gather.role_of(analysis, rank),
                "absence": record.absence.value if record.absence else None,
                "last_call": _last_call(analysis, record),
                "files": record.files,
            }
        )
    if len(rows) <= FOLD_ABOVE:
        return rows
    classes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows:
        classes[(row["state"], row["absence"], row["last_call"])].append(row["rank"])
    return [
        {
            "ranks": compress(ranks),
            "count": len(ranks),
            "state": state,
            "absence": absence,
            "last_call": last,
            "host": None,
            "files": [],
        }
        for (state, absence, last), ranks in sorted(classes.items(), key=lambda kv: kv[1])
    ]


def _last_call(analysis: Analysis, record: RankRecord) -> str | None:
    """Return the last call that a rank enqueued on any group, for a person."""
    best: tuple[int, Any, int] | None = None
    for queues in (record.queues, record.p2p):
        for queue in queues.values():
            if len(queue) and (best is None or int(queue.order[-1]) > best[0]):
                best = (int(queue.order[-1]), queue, int(queue.kind[-1]))
    if best is None:
        return None
    _, queue, index = best
    kind = analysis.incident.kinds.without_sizes(index)
    frame = user_frame(kind.stack)
    group = analysis.incident.groups[queue.gid]
    return f"{kind.op} seq {int(queue.seq[-1])} on group {group.label}" + (f" at {frame}" if frame else "")


def _inputs(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    if len(inputs) <= FOLD_ABOVE:
        return [
            {"file": i.file, "kind": i.kind, "rank": i.rank, "status": i.status, "reason": i.reason}
            for i in inputs
        ]
    classes: dict[tuple[str, str, str], list[Input]] = defaultdict(list)
    for item in inputs:
        classes[(item.kind, item.status, item.reason)].append(item)
    return [
        {
            "file": f"{len(items)} files, {items[0].file} and others",
            "count": len(items),
            "kind": kind,
            "rank": None,
            "ranks": compress(i.rank for i in items if i.rank is not None),
            "status": status,
            "reason": reason,
        }
        for (kind, status, reason), items in sorted(classes.items())
    ]


def _coverage(analysis: Analysis) -> dict[str, Any]:
    inputs = analysis.incident.inputs
    windows = []
    for view in analysis.views:
        classes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for rank, member in view.members.items():
            if member.first_row:
                classes[(member.first_row, member.last_row)].append(rank)
        windows += [
            {"ranks": compress(r), "group": view.group.label, "from_seq": a, "to_seq": b}
            for (a, b), r in sorted(classes.items(), key=lambda kv: kv[1])
        ]
    return {
        "files": len(inputs),
        "used": sum(1 for i in inputs if i.status == "used"),
        "set_aside": sum(1 for i in inputs if i.status in ("set aside", "failed")),
        "ignored": sum(1 for i in inputs if i.status == "ignored"),
        "windows": windows[:200],
    }
