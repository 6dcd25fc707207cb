"""Which story shows a cause, and the stories of one or two facts.

A story that the evidence does not carry gives way to the next in its list; the last is always what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hangscope.model.rankset import compress, counted, ranks_phrase
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.pictures.stacks import page_frames
from hangscope.report.schema.stories import (
    DeviceStory,
    EndStory,
    JoinStory,
    KnownStory,
    LastLine,
    LoopStory,
    ProgressRow,
    StackStory,
    Story,
)
from hangscope.report.story.arguments import mismatch
from hangscope.report.story.order import order
from hangscope.report.story.pair import pair
from hangscope.report.subject import Subject
from hangscope.report.words import cut
from hangscope.verdict.claims import are_in

_LINES, _WIDTH = 6, 240
_SAID, _SIDES = 12, 4
_NUMBER = regex(r"\d+")
Teller = Callable[[Subject, Sequence[Behaviour]], "Story | None"]


def end(subject: Subject, classes: Sequence[Behaviour]) -> EndStory | None:
    """Return how a process ended: its traceback, exit code or signal."""
    del classes
    ranks = sorted(subject.culprits)
    if not ranks:
        return None
    lines = quotes.ends(subject, ranks[0])
    trace = quotes.traceback_of(subject, ranks[0])
    if not lines and not trace:
        return None
    return EndStory(
        who=ranks_phrase(ranks).capitalize(),
        ended=cut(lines[0].text, _WIDTH) if lines else "",
        trace=trace,
        lines=tuple(f"{cut(t.text, _WIDTH)}  [{t.source}]" for t in lines[1:_LINES]),
    )


def device(subject: Subject, classes: Sequence[Behaviour]) -> DeviceStory | None:
    """Return enqueued, started and completed per rank on the group of the verdict."""
    del classes
    view = subject.view
    if view is None:
        return None
    rows: dict[tuple[str, int | None, int | None, int | None], list[int]] = {}
    for rank, member in view.members.items():
        started = member.queue.frontier.started
        key = (subject.role(rank), member.enqueued, started, view.completed(rank))
        rows.setdefault(key, []).append(rank)
    ordered = sorted(rows.items(), key=lambda kv: (kv[0][0] != "culprit", -len(kv[1]), kv[1]))
    if all(enqueued is None for (_, enqueued, _, _), _ in ordered):
        return None
    return DeviceStory(
        view.group.label, tuple(ProgressRow(compress(r), *key) for key, r in ordered[: 2 * _LINES])
    )


def join(subject: Subject, classes: Sequence[Behaviour]) -> JoinStory | None:
    """Return who joined and who did not."""
    del classes
    verdict = subject.verdict
    lines = quotes.joins(subject)
    if verdict is None or not (lines or verdict.culprit_ranks):
        return None
    joined = sorted(verdict.waiting_ranks)
    return JoinStory(
        joined=compress(joined) if joined else "",
        missing=compress(verdict.culprit_ranks) if verdict.culprit_ranks else "",
        lines=tuple(f"{cut(t.text, _WIDTH)}  [{t.source}]" for t in lines[:_LINES]),
    )


def loop(subject: Subject, classes: Sequence[Behaviour]) -> LoopStory | None:
    """Return the ends of what two sides printed."""
    endings = last_lines(subject, classes, most=4)
    own = {_NUMBER.sub("#", line.text) for line in endings if line.role == "culprit"}
    others = {_NUMBER.sub("#", line.text) for line in endings if line.role != "culprit"}
    return LoopStory(endings) if own and others and not own & others else None


def stack(subject: Subject, classes: Sequence[Behaviour]) -> StackStory | None:
    """Return where the process is that issues no collective."""
    del classes
    for rank in sorted(subject.culprits):
        record = subject.incident.ranks.get(rank)
        if record is not None and record.threads and record.threads[0][1]:
            return StackStory(f"Rank {rank}", record.stack_file or "", page_frames(record.threads[0][1]))
    return None


def known(subject: Subject, classes: Sequence[Behaviour]) -> KnownStory | None:
    """Return what is known where no cause is."""
    awaited = []
    picture = subject.graph.open_calls
    by_call: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(picture):
        call = subject.first_open(rank)
        if call is not None:
            where = (subject.call_name(call.node, rank), subject.on_group(call.gid))
            by_call.setdefault(where, []).append(rank)
    for where, ranks in list(by_call.items())[:_LINES]:
        awaited.append(are_in(compress(ranks), len(ranks), *where))
    if len(by_call) > _LINES:
        awaited.append(f"{len(by_call) - _LINES} more collectives are pending")
    awaited += _apart(subject) if not by_call else []
    for lines in (quotes.transport(subject), quotes.ends(subject)):
        alike: dict[str, list[quotes.Quote]] = {}
        for line in lines:
            alike.setdefault(_NUMBER.sub("#", line.text), []).append(line)
        for same in list(alike.values())[:_LINES]:
            more = f", and {len(same) - 1} alike" if len(same) > 1 else ""
            awaited.append(f"{cut(same[0].text, _WIDTH)}  [{same[0].source}]{more}")
        if len(alike) > _LINES:
            awaited.append(
                f"{sum(map(len, list(alike.values())[_LINES:]))} more lines of transport, ends and exits"
            )
    endings = last_lines(subject, classes, most=len(subject.incident.ranks))
    shown = endings[:_SAID]
    return KnownStory(tuple(awaited), shown, len(endings) - len(shown)) if awaited or endings else None


def _apart(subject: Subject) -> list[str]:
    """Return where ranks have different frontiers although none is seen waiting."""
    lines = []
    for view in subject.views.values():
        reached: dict[int, list[int]] = {}
        for rank, member in view.members.items():
            if member.enqueued is not None:
                reached.setdefault(member.enqueued, []).append(rank)
        if len(reached) > 1:
            sides = [
                f"{ranks_phrase(ranks)} issued {counted(seq, 'collective')}"
                for seq, ranks in sorted(reached.items())
            ]
            lines.append(
                f"No rank is seen waiting on group {view.group.label}; {', '.join(sides[:_SIDES])}"
                + (f" and {len(sides) - _SIDES} more" if len(sides) > _SIDES else "")
            )
    return lines[:_LINES] + (
        [f"{len(lines) - _LINES} more groups are uneven as well"] if len(lines) > _LINES else []
    )


def last_lines(subject: Subject, classes: Sequence[Behaviour], most: int) -> tuple[LastLine, ...]:
    """Return what ranks printed last, those of culprits first, equal words of several ranks once."""
    del classes
    found: dict[tuple[str, str], list[int]] = {}
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    for rank in sorted(subject.incident.ranks, key=lambda r: (r not in subject.culprits, r)):
        words = quotes.last_words(subject, rank, 1)
        tails = subject.incident.ranks[rank].log_tails
        said = [(w.text, w.source) for w in words] or [(lines[-1], file) for file, lines in tails if lines]
        if said:
            text, source = said[-1]
            key = (subject.role(rank), _NUMBER.sub("#", cut(text, _WIDTH)))
            found.setdefault(key, []).append(rank)
            texts.setdefault(key, (cut(text, _WIDTH), source))
    return tuple(LastLine(compress(ranks), key[0], *texts[key]) for key, ranks in list(found.items())[:most])


STORIES: dict[str, tuple[Teller, ...]] = {
    "rank_conditional_collective": (),
    "uneven_loader": (loop,),
    "crashed_rank": (end,),
    "early_exit": (end, loop),
    "stuck_rank": (stack, loop),
    "slow_rank": (stack, loop),
    "shape_mismatch": (mismatch,),
    "dtype_mismatch": (mismatch,),
    "collective_mismatch": (mismatch,),
    "gradient_sync_mismatch": (mismatch,),
    "model_mismatch": (mismatch,),
    "collective_order_mismatch": (order,),
    "p2p_mismatch": (pair,),
    "gpu_stall": (device,),
    "network_stall": (device,),
    "init_hang": (join,),
    "unknown": (known,),
}


def tell(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the story of an incident; None if the call diff shows it, or nothing is stuck.

    Where no call is known at all, what is known is the story of any cause.
    """
    if subject.verdict is None:
        return known(subject, classes) if subject.analysis.judgement.status == "inconclusive" else None
    for teller in STORIES.get(subject.verdict.cause, (known,)):
        found = teller(subject, classes)
        if found is not None:
            return found
    return None if any(len(b.program) for b in classes) else known(subject, classes)
