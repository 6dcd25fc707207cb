"""What a report shows: the analysis as the JSON report's plain data (schema `hangscope.report/1`).

Every other reporter works from this dictionary alone. Keys may be added within a major version, never renamed or
removed; nanoseconds are strings, because a browser's numbers lose integers above 2^53; ranks and inputs are folded into
classes above 1,024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hangscope.align.callsite import is_user, user_frame
from hangscope.align.rankset import compress, ranks_phrase
from hangscope.analysis import Analysis
from hangscope.incident import CallRef, Incident, Input, RankRecord, Stack, Verdict
from hangscope.report import pictures
from hangscope.report.masking import mask

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
        "verdict": _verdict(verdict, incident) if verdict is not None else None,
        "confidence_why": judgement.reasons if verdict is not None else [],
        "missing": judgement.missing,
        "sources": _sources(incident),
        "candidates": [
            {"ranks": compress(c.ranks), "cause": c.what, "why_set_aside": c.why_set_aside}
            for c in judgement.candidates
        ],
        "groups": _groups(analysis),
        "ranks": _ranks(analysis),
        "inputs": _inputs(incident.inputs),
        "coverage": _coverage(analysis),
        "stacks": _stacks(verdict, incident),
        "lanes": pictures.lanes(analysis),
        "rankmap": pictures.rankmap(analysis),
        "waitfor": pictures.waitfor(analysis),
        "timeline": pictures.timeline(analysis),
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


def _verdict(verdict: Verdict, incident: Incident) -> dict[str, Any]:
    group = verdict.group
    return {
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "culprit_ranks": list(verdict.culprit_ranks),
        "culprits": [_culprit(incident.ranks[r]) for r in verdict.culprit_ranks[:64] if r in incident.ranks],
        "category": verdict.category,
        "group": {
            "name": group.name,
            "desc": group.desc,
            "role": group.role,
            "ranks": list(group.ranks),
            "members_known": group.members_known,
        }
        if group is not None
        else None,
        "op": verdict.op,
        "seq": verdict.seq,
        "is_p2p": verdict.is_p2p,
        "waiting_ranks": list(verdict.waiting_ranks),
        "explains": {"ranks": verdict.explained, "of": len(verdict.waiting_ranks)},
        "fingerprint": verdict.fingerprint,
        "culprit_call": _call(verdict.culprit_call),
        "waiting_call": _call(verdict.waiting_call),
        "location": {
            "file": verdict.location.file,
            "line": verdict.location.line,
            "function": verdict.location.function,
            "rank": verdict.location.rank,
        }
        if verdict.location is not None
        else None,
        "summary": verdict.summary,
        "evidence": [
            {
                "kind": e.kind,
                "text": e.text,
                "rank": e.rank,
                "stance": e.stance,
                "source": {"file": e.source.file, "line": e.source.line} if e.source is not None else None,
            }
            for e in verdict.evidence
        ],
        "advice": list(verdict.advice),
        "alternatives": [{"cause": a.cause, "why": a.why} for a in verdict.alternatives],
    }


def _culprit(record: RankRecord) -> dict[str, Any]:
    return {
        "rank": record.rank,
        "host": record.host,
        "local_rank": record.local_rank,
        "device": record.device,
        "pid": record.pid,
    }


def _call(call: CallRef | None) -> dict[str, Any] | None:
    if call is None:
        return None
    return {
        "op": call.op,
        "seq": call.seq,
        "sizes": [list(s) for s in call.sizes[:8]],
        "dtypes": list(call.dtypes[:8]),
        "frames": [{"name": f.name, "file": f.file, "line": f.line} for f in call.frames],
    }


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
            classes[(member.enqueued, member.completed)].append(rank)
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
                "state": pictures.role_of(analysis, rank),
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
    kind = analysis.incident.kinds[index]
    frame = user_frame(kind.stack)
    group = analysis.incident.groups[queue.gid]
    return f"{kind.op} seq {int(queue.seq[-1])} on {group.label}" + (f" at {frame}" if frame else "")


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


def _stacks(verdict: Verdict | None, incident: Incident) -> dict[str, Any]:
    """Return both sides' stacks, with the frames that differ marked; a stack dump of the culprit wins over its last call."""
    if verdict is None:
        return {}
    sides: dict[str, tuple[str, int | None, Stack]] = {}
    culprit = verdict.culprit_ranks[0] if verdict.culprit_ranks else None
    if culprit is not None and culprit in incident.ranks and incident.ranks[culprit].threads:
        sides["culprit"] = (f"Rank {culprit}, its stack", culprit, incident.ranks[culprit].threads[0][1])
    elif verdict.culprit_call is not None and verdict.culprit_call.frames:
        word = "its call" if verdict.culprit_call.seq == verdict.seq else "its last call"
        sides["culprit"] = (
            f"Rank {culprit}, {word}" if culprit is not None else "One side",
            culprit,
            verdict.culprit_call.frames,
        )
    if verdict.waiting_call is not None and verdict.waiting_call.frames:
        rank = verdict.waiting_ranks[0] if verdict.waiting_ranks else None
        sides["waiting"] = (
            f"Rank {rank}, waiting" if rank is not None else "Waiting",
            rank,
            verdict.waiting_call.frames,
        )
    frames = {side: {(f.file, f.line) for f in stack} for side, (_, _, stack) in sides.items()}
    other = {"culprit": frames.get("waiting"), "waiting": frames.get("culprit")}
    return {
        side: {
            "title": title,
            "rank": rank,
            "frames": [
                {
                    "name": f.name,
                    "file": f.file,
                    "line": f.line,
                    "user": is_user(f),
                    "differs": other[side] is not None and (f.file, f.line) not in (other[side] or ()),
                }
                for f in stack
            ],
        }
        for side, (title, rank, stack) in sides.items()
    }
