"""The verdict as the JSON report's plain data, and the stacks of its two sides."""

from __future__ import annotations

from typing import Any

from hangscope.align.callsite import is_user
from hangscope.incident import CallRef, Incident, RankRecord, Stack, Verdict


def verdict_view(verdict: Verdict, incident: Incident) -> dict[str, Any]:
    """Return the `verdict` of the JSON report."""
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
        "in_call": list(verdict.in_call),
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
        "deciding": list(verdict.deciding),
        "api": verdict.api,
        "since": None if verdict.since is None else str(verdict.since),
        "until": None if verdict.until is None else str(verdict.until),
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


def both_stacks(verdict: Verdict | None, incident: Incident) -> dict[str, Any]:
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
        rank = verdict.in_call[0] if verdict.in_call else None
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
