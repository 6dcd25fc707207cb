"""What can be said where ranks differ only in what they printed last: a guess, with the lines that it rests on."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.explain.finding import Absent
from hangscope.ingest.job_logs.faults import Skip
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.ras.snapshot import NcclRas


def last_output(case: Case) -> Match | None:
    """A rank whose last output differs from its peers', in a job that stood still and left no record of its calls."""
    finding = case.finding
    if not finding.guess or not finding.culprits or not case.from_text or case.statements.all(NcclRas):
        return None
    if finding.stuck.kind is not None:
        return None  # it rests on where ranks stood, and not on words
    culprits = finding.culprits
    who = ranks_phrase(culprits)
    own = [e for r in culprits if (e := _last(case, r)) is not None]
    peers = [e for r in finding.waiting if (e := _last(case, r)) is not None]
    if not own or not peers:
        return None
    skips = [e for r in culprits for e in case.statements.of(r, Skip)]
    evidence = [quote(e, f"rank {e.rank} printed last: {e.text}") for e in (*own[:4], *peers[:1])] + [
        quote(e, f"rank {e.rank} said that it skipped: {e.text}") for e in skips[-2:]
    ]
    if skips:
        cause, why = (
            "rank_conditional_collective",
            f"{who} said that it skipped work that its peers did, and printed otherwise from then on",
        )
    elif any(e.done for e in own):
        cause, why = "uneven_loader", f"{who} alone printed that its loop is over"
    elif isinstance(finding, Absent):
        cause, why = "stuck_rank", f"{who} printed fewer steps than the others"
    else:
        cause, why = "rank_conditional_collective", f"{who} printed something last that no other rank printed"
    return Match(
        cause,
        culprits,
        why,
        strength=0,
        evidence=evidence,
        advice=[
            f"Look at what {who} does behind its last line of output; the lines alone do not tell which call differs.",
            "Keep the recorder on (TORCH_FR_BUFFER_SIZE), or rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL and TORCH_CPP_LOG_LEVEL=INFO, which prints every call.",
        ],
    )


def _last(case: Case, rank: int) -> Progress | None:
    return max(case.statements.of(rank, Progress), key=lambda e: (e.line, e.file), default=None)
