"""What the logs add to a verdict that rests on dumps or stacks: which lines agree with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.causes.case import Case, Match, quote
from hangscope.conclusion import Evidence
from hangscope.ingest.job_logs.faults import Skip
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooSizeMismatch, GlooTimeout
from hangscope.knowledge.callsite import user_frames

_MOST = 8
_DIED = frozenset({"crashed_rank", "early_exit"})
_SIZES = frozenset(
    {
        "shape_mismatch",
        "dtype_mismatch",
        "collective_mismatch",
        "rank_conditional_collective",
        "uneven_loader",
    }
)


def corroboration(case: Case, match: Match) -> list[Evidence]:
    """Return quotes of log lines with their stance to a verdict, those of the culprits first."""
    if case.from_text:
        return []  # the finding names its lines itself
    known = {item.source for item in match.evidence}
    items: list[Evidence] = []
    for item in (*_of_culprits(case, match), *_of_waiting(case, match)):
        if item.source not in known:
            known.add(item.source)
            items.append(item)
    return items[:_MOST]


def _of_culprits(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the culprits themselves printed."""
    statements = case.statements
    for rank in match.culprits[:4]:
        for skip in statements.of(rank, Skip)[-1:]:
            yield quote(skip, f"rank {rank} said that it skipped: {skip.text}")
        for idle in statements.of(rank, DumpObserved)[:1]:
            yield quote(idle, f"rank {rank} had nothing overdue when the others timed out: {idle.text}")
        words = _last(case, rank)
        if words is not None and (words.done or words.leaving or _apart(case, words)):
            yield quote(words, f"rank {rank} printed last: {words.text}")
        for raised in statements.of(rank, RankException)[:1]:
            if raised.symptom and match.frame is not None and match.frame in user_frames(raised.frames):
                yield quote(raised, f"rank {rank}'s traceback goes through {match.frame}, too: {raised.text}")
        if match.cause in ("stuck_rank", "early_exit"):
            for event in statements.of(rank, GlooTimeout, WatchdogTimeout)[:1]:
                yield quote(event, f"rank {rank} itself timed out in a call: {event.text}", stance="against")
        if match.cause in _DIED:
            for event in statements.of(rank, GlooTimeout, GlooClosed)[:1]:
                yield quote(
                    event,
                    f"rank {rank} still lived when it lost its own peers: {event.text}",
                    stance="against",
                )


def _of_waiting(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the ranks that wait printed: that they waited, in which call, and what they lost."""
    statements, finding = case.statements, case.finding
    others = [r for r in finding.waiting if r not in match.culprits]
    if match.cause in _SIZES:
        yield from map(_sizes, statements.all(GlooSizeMismatch)[:2])
    seen: set[str] = set()
    for rank in others:
        for event in statements.of(rank, WatchdogTimeout, GlooTimeout, GlooClosed)[:1]:
            if event.kind in seen:
                continue
            seen.add(event.kind)
            if isinstance(event, WatchdogTimeout):
                yield _timeout(case, event)
            elif isinstance(event, GlooClosed):
                alone = match.cause == "stuck_rank" and not statements.all(GlooTimeout, WatchdogTimeout)
                yield quote(
                    event,
                    f"rank {rank} lost its connection to a peer: {event.text}",
                    stance="against" if alone else "for",
                )
            else:
                yield quote(event, f"rank {rank} waited until it timed out: {event.text}")


def _timeout(case: Case, event: WatchdogTimeout) -> Evidence:
    """Return a watchdog's line, for or against the call that the dumps show, where both are numbered by one group."""
    finding, seq = case.finding, event.seq
    group = event.group_name
    same_group = (
        finding.stuck.view is not None and group is not None and group == finding.stuck.view.group.name
    )
    if same_group and seq is not None and finding.stuck.seq is not None and seq != finding.stuck.seq:
        return quote(
            event,
            f"rank {event.rank}'s watchdog timed out at seq {seq}, the dumps show it waiting at {finding.stuck.seq}: {event.text}",
            stance="against",
        )
    return quote(event, f"rank {event.rank}'s watchdog timed out: {event.text}")


def _sizes(event: GlooSizeMismatch) -> Evidence:
    received, expected = event.received, event.expected
    return quote(
        event,
        f"gloo received {received} bytes for a buffer of {expected}; the aborted process is the receiver and may be innocent",
    )


def _last(case: Case, rank: int) -> Progress | None:
    return max(case.statements.of(rank, Progress), key=lambda e: (e.line, e.file), default=None)


def _apart(case: Case, words: Progress) -> bool:
    """Return whether most waiting ranks counted on to another step than a culprit's last line."""
    place = (words.epoch, words.step)
    others = [e for r in case.finding.waiting[:64] if (e := _last(case, r)) is not None]
    return bool(others) and sum((e.epoch, e.step) != place for e in others) * 2 > len(others)
