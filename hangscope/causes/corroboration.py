"""What the logs add to a verdict that rests on dumps or stacks: which lines agree with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.align.callsite import user_frames
from hangscope.causes.case import Case, Match, quote
from hangscope.explain.facts import stack_of
from hangscope.incident import Event, Evidence

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
    facts = case.facts
    for rank in match.culprits[:4]:
        for event in facts.of(rank, "skip")[-1:]:
            yield quote(event, f"rank {rank} said that it skipped: {event.text}")
        for event in facts.of(rank, "dump_observed")[:1]:
            yield quote(event, f"rank {rank} had nothing overdue when the others timed out: {event.text}")
        words = _last(case, rank)
        if words is not None and (
            words.fields.get("done") or words.fields.get("leaving") or _apart(case, words)
        ):
            yield quote(words, f"rank {rank} printed last: {words.text}")
        for event in facts.of(rank, "exception")[:1]:
            if (
                event.fields.get("symptom")
                and match.frame is not None
                and match.frame in user_frames(stack_of(event))
            ):
                yield quote(event, f"rank {rank}'s traceback goes through {match.frame}, too: {event.text}")
        if match.cause in ("stuck_rank", "early_exit"):
            for event in facts.of(rank, "gloo_timeout", "watchdog_timeout")[:1]:
                yield quote(event, f"rank {rank} itself timed out in a call: {event.text}", stance="against")
        if match.cause in _DIED:
            for event in facts.of(rank, "gloo_timeout", "gloo_closed")[:1]:
                yield quote(
                    event,
                    f"rank {rank} still lived when it lost its own peers: {event.text}",
                    stance="against",
                )


def _of_waiting(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the ranks that wait printed: that they waited, in which call, and what they lost."""
    facts, finding = case.facts, case.finding
    others = [r for r in finding.waiting if r not in match.culprits]
    if match.cause in _SIZES:
        yield from map(_sizes, facts.all("gloo_size_mismatch")[:2])
    seen: set[str] = set()
    for rank in others:
        for event in facts.of(rank, "watchdog_timeout", "gloo_timeout", "gloo_closed")[:1]:
            if event.kind in seen:
                continue
            seen.add(event.kind)
            if event.kind == "watchdog_timeout":
                yield _timeout(case, event)
            elif event.kind == "gloo_closed":
                alone = match.cause == "stuck_rank" and not facts.all("gloo_timeout", "watchdog_timeout")
                yield quote(
                    event,
                    f"rank {rank} lost its connection to a peer: {event.text}",
                    stance="against" if alone else "for",
                )
            else:
                yield quote(event, f"rank {rank} waited until it timed out: {event.text}")


def _timeout(case: Case, event: Event) -> Evidence:
    """Return a watchdog's line, for or against the call that the dumps show, where both are numbered by one group."""
    finding, seq = case.finding, event.fields.get("seq")
    group = event.fields.get("group_name")
    same_group = finding.view is not None and group is not None and group == finding.view.group.name
    if same_group and isinstance(seq, int) and finding.seq is not None and seq != finding.seq:
        return quote(
            event,
            f"rank {event.rank}'s watchdog timed out at seq {seq}, the dumps show it waiting at {finding.seq}: {event.text}",
            stance="against",
        )
    return quote(event, f"rank {event.rank}'s watchdog timed out: {event.text}")


def _sizes(event: Event) -> Evidence:
    received, expected = event.fields.get("received"), event.fields.get("expected")
    return quote(
        event,
        f"gloo received {received} bytes for a buffer of {expected}; the aborted process is the receiver and may be innocent",
    )


def _last(case: Case, rank: int) -> Event | None:
    return max(case.facts.of(rank, "progress"), key=lambda e: (e.line, e.file), default=None)


def _apart(case: Case, words: Event) -> bool:
    """Return whether most waiting ranks counted on to another step than a culprit's last line."""
    place = (words.fields.get("epoch"), words.fields.get("step"))
    others = [e for r in case.finding.waiting[:64] if (e := _last(case, r)) is not None]
    return bool(others) and sum(
        (e.fields.get("epoch"), e.fields.get("step")) != place for e in others
    ) * 2 > len(others)
