"""The stories that can show each cause, and those that need only one or two facts.

The first story for which there is enough evidence is shown; the last one of each list, what is known, always can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hangscope.model.incident import on_group
from hangscope.model.rankset import compress, ranks_phrase
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.pictures.stacks import page_frames
from hangscope.report.schema.stories import Box, Boxes, Endings, Frames, Lines, Part, Row, Story, Table
from hangscope.report.story.calls import mismatch, order, pair
from hangscope.report.story.known import LINES, WIDTH, known, last_lines, masked, quoted
from hangscope.report.subject import Subject
from hangscope.report.words import cut, grouped
from hangscope.verdict.phrasing import sentence_case

_ENDINGS = 4
Teller = Callable[[Subject, Sequence[Behaviour]], "Story | None"]


def end(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return how a process ended: its traceback, exit code or signal."""
    ranks = sorted(subject.culprits)
    lines = quotes.ends(subject, ranks[0]) if ranks else []
    trace = quotes.traceback_of(subject, ranks[0]) if ranks else ()
    if not lines and not trace:
        return None
    parts: list[Part] = [Frames("Traceback, innermost first", trace)] if trace else []
    if rest := lines[1:LINES]:
        parts += [] if trace else [Lines(("No traceback was collected.",), "note")]
        parts.append(Lines(tuple(map(quoted, rest)), "quote"))
    who = ranks_phrase(ranks).capitalize() + (":" if lines else "")
    return Story("end", "How it ended", who, tuple(parts), cut(lines[0].text, WIDTH) if lines else "")


def device(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return enqueued, started and completed per rank on the group that shows the fault."""
    view = subject.telling_view
    if view is None or all(member.enqueued is None for member in view.members.values()):
        return None
    of_rank = {r: (m.enqueued, m.queue.frontier.started, view.completed(r)) for r, m in view.members.items()}
    rows = grouped(((subject.role(rank), *known), rank) for rank, known in of_rank.items())
    ordered = sorted(rows.items(), key=lambda kv: (kv[0][0] != "culprit", -len(kv[1]), kv[1]))
    cells = []
    for (role, enqueued, started, completed), ranks in ordered[: 2 * LINES]:
        lag = f"{enqueued - completed:,}" if enqueued is not None and completed is not None else ""
        counts = ("not known" if n is None or n < 0 else f"{n:,}" for n in (enqueued, started, completed))
        cells.append(Row((compress(ranks), *counts, lag), role))
    head = ("Ranks", "Enqueued", "Started", "Completed", "Difference")
    text = f"{sentence_case(on_group(view.group.label))}. Enqueued is what the CPU thread issued, completed what the backend (NCCL on the GPU, or gloo) finished."
    title = "How far each rank is"
    return Story("progress", title, text, (Table(title, head, tuple(cells), numbers=(1, 2, 3, 4)),))


def join(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return who joined and who did not."""
    verdict = subject.verdict
    lines = quotes.of_kind(subject, "join")
    if verdict is None or not (lines or verdict.culprit_ranks):
        return None
    blocked = verdict.waiting_ranks
    joined = ranks_phrase(blocked) if blocked else "no rank is known to have joined"
    missing = ranks_phrase(verdict.culprit_ranks) if verdict.culprit_ranks else "no rank can be named"
    boxes = Boxes((Box(True, "joined, or waiting", joined), Box(False, "missing", missing)))
    quotes_of_it = Lines(tuple(map(quoted, lines[:LINES])), "quote")
    return Story("join", "Who joined", "", (boxes, quotes_of_it) if lines else (boxes,))


def loop(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return the ends of what two sides printed, where they differ."""
    endings = last_lines(subject)[:_ENDINGS]
    own = {masked(line.text) for line in endings if line.role == "culprit"}
    others = {masked(line.text) for line in endings if line.role != "culprit"}
    if not own or not others or own & others:
        return None
    return Story("loop", "Last output of each side", "", (Endings(endings),))


def stack(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return where the process is that issues no collective."""
    for rank in sorted(subject.culprits):
        if found := subject.stack(rank):
            file = subject.incident.ranks[rank].stack_file
            text = f"Rank {rank}, innermost frame first" + (f" ({file})" if file else "")
            frames = Frames("Stack, innermost first", page_frames(found))
            return Story("stack", "Where it is", text, (frames,))
    return None


_MISMATCHES = [
    "shape_mismatch",
    "dtype_mismatch",
    "collective_mismatch",
    "gradient_sync_mismatch",
    "model_mismatch",
]
STORIES: dict[str, tuple[Teller, ...]] = {
    "rank_conditional_collective": (),
    "uneven_loader": (loop,),
    "crashed_rank": (end,),
    "early_exit": (end, loop),
    **dict.fromkeys(("stuck_rank", "slow_rank"), (stack, loop)),
    **dict.fromkeys(_MISMATCHES, (mismatch,)),
    "collective_order_mismatch": (order,),
    "p2p_mismatch": (pair,),
    **dict.fromkeys(("gpu_stall", "network_stall"), (device,)),
    "init_hang": (join,),
}


def tell(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the story of an incident; None if the call diff shows it, or nothing is stuck.

    Where no call is known at all, what is known is the story of any cause.
    """
    if subject.verdict is None:
        return known(subject, classes) if subject.analysis.judgement.status == "inconclusive" else None
    for teller in STORIES.get(subject.verdict.cause, (known,)):
        if (found := teller(subject, classes)) is not None:
            return found
    return None if any(len(b.program) for b in classes) else known(subject, classes)
