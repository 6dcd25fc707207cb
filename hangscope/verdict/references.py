"""What a verdict refers to: a call, and the same hang in another run."""

from __future__ import annotations

import hashlib

from hangscope.conclusion import CallRef, Location
from hangscope.explain.finding import Finding
from hangscope.incident import CallKind
from hangscope.knowledge.callsite import user_frame


def call_ref(kind: CallKind | None, seq: int | None, group: str | None = None) -> CallRef | None:
    """Return a call as a verdict shows it, None where no kind is known; `seq` counts from 1, `group` is its label."""
    if kind is None:
        return None
    return CallRef(
        kind.op,
        seq,
        kind.input_sizes or kind.output_sizes,
        kind.input_dtypes or kind.output_dtypes,
        kind.stack,
        group,
    )


def fingerprint(cause: str, kind: CallKind | None, location: Location | None, finding: Finding) -> str:
    """Return a short hash that is the same for the same hang in another run: no ranks, seqs, hosts or line numbers."""
    waiting = user_frame(kind.stack) if kind is not None else None
    parts = [
        cause,
        kind.op if kind is not None else "",
        finding.stuck.view.group.desc if finding.stuck.view is not None else "",
        f"{location.file.rsplit('/', 1)[-1]}:{location.function}" if location is not None else "",
        f"{waiting.file.rsplit('/', 1)[-1]}:{waiting.name}" if waiting is not None else "",
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
