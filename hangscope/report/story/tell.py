"""Which story shows a cause, the stories of one or two facts, and what is known where no cause is.

The first story for which there is enough evidence is shown; the last one of each list, what is known, always can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hangscope.model.incident import on_group
from hangscope.model.rankset import compress, counted, in_words, ranks_phrase
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.pictures.stacks import page_frames
from hangscope.report.schema.page import (
    Box,
    Boxes,
    Endings,
    Frames,
    LastLine,
    Lines,
    Part,
    Row,
    Story,
    Table,
)
from hangscope.report.story.calls import mismatch, order, pair
from hangscope.report.subject import Subject
from hangscope.report.words import cut, first_of, grouped, listed
from hangscope.verdict.claims import are_in
from hangscope.verdict.phrasing import sentence_case

_LINES, _WIDTH = 6, 240
_SAID, _SIDES = 12, 4
_ENDINGS = 4
_NUMBER = regex(r"\d+")
Teller = Callable[[Subject, Sequence[Behaviour]], "Story | None"]


def end(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return how a process ended: its traceback, exit code or signal."""
    ranks = sorted(subject.culprits)
    lines = quotes.ends(subject, ranks[0]) if ranks else []
    trace = quotes.traceback_of(subject, ranks[0]) if ranks else ()
    if not lines and not trace:
        return None
    parts: list[Part] = [Frames("Traceback, innermost first", trace)] if trace else []
    if rest := lines[1:_LINES]:
        parts += [] if trace else [Lines(("No traceback was collected.",), "note")]
        parts.append(Lines(tuple(map(_quoted, rest)), "quote"))
    who = ranks_phrase(ranks).capitalize() + (":" if lines else "")
    return Story("end", "How it ended", who, tuple(parts), cut(lines[0].text, _WIDTH) if lines else "")


def device(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return enqueued, started and completed per rank on the group that shows the fault."""
    # The group that shows the fault need not be the one in which ranks are stuck.
    view = subject.analysis.case.finding.telling.view or subject.view
    if view is None or all(member.enqueued is None for member in view.members.values()):
        return None
    of_rank = {r: (m.enqueued, m.queue.frontier.started, view.completed(r)) for r, m in view.members.items()}
    rows = grouped(((subject.role(rank), *known), rank) for rank, known in of_rank.items())
    ordered = sorted(rows.items(), key=lambda kv: (kv[0][0] != "culprit", -len(kv[1]), kv[1]))
    cells = []
    for (role, enqueued, started, completed), ranks in ordered[: 2 * _LINES]:
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
    if not lines and not verdict.culprit_ranks:
        return None
    blocked = verdict.waiting_ranks
    joined = ranks_phrase(blocked) if blocked else "no rank is known to have joined"
    missing = ranks_phrase(verdict.culprit_ranks) if verdict.culprit_ranks else "no rank can be named"
    boxes = Boxes((Box(True, "joined, or waiting", joined), Box(False, "missing", missing)))
    quotes_of_it = Lines(tuple(map(_quoted, lines[:_LINES])), "quote")
    return Story("join", "Who joined", "", (boxes, quotes_of_it) if lines else (boxes,))


def loop(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return the ends of what two sides printed, where they differ."""
    endings = _last_lines(subject)[:_ENDINGS]
    own = {_masked(line.text) for line in endings if line.role == "culprit"}
    others = {_masked(line.text) for line in endings if line.role != "culprit"}
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


def known(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return what is known where no cause is."""
    lines = _pending(subject) or _apart(subject)
    for found in (quotes.of_kind(subject, "transport"), quotes.ends(subject)):
        alike = grouped((_masked(quote.text), quote) for quote in found)
        for same in list(alike.values())[:_LINES]:
            more = f", and {len(same) - 1} alike" if len(same) > 1 else ""
            lines.append(f"{_quoted(same[0])}{more}")
        if left_out := sum(map(len, list(alike.values())[_LINES:])):
            lines.append(f"{left_out} more lines of transport, ends and exits")
    parts: list[Part] = [Lines(tuple(lines))] if lines else []
    if endings := _last_lines(subject):
        title = Lines(("Last output of each rank, ignoring numbers:",), "note")
        parts += [title, Endings(endings[:_SAID])]
        if (left_out := len(endings) - _SAID) > 0:
            text = f"{left_out} more ranks printed something else; their panels show it."
            parts.append(Lines((text,), "note"))
    return Story("known", "What is known", "", tuple(parts)) if parts else None


def _pending(subject: Subject) -> list[str]:
    """Return the collectives that ranks are in."""
    calls = [(rank, found[0]) for rank, found in sorted(subject.graph.open_calls.items()) if found]
    by_call = grouped(((subject.call_name(c.node, r), subject.on_group(c.gid)), r) for r, c in calls)
    past = subject.waits_ended
    lines = [are_in(in_words(compress(ranks)), len(ranks), *where, past) for where, ranks in by_call.items()]
    return first_of(lines, _LINES, "{} more collectives are pending")


def _apart(subject: Subject) -> list[str]:
    """Return where ranks have different frontiers although none is seen waiting."""
    lines = []
    for view in subject.views.values():
        reached = grouped((m.enqueued, rank) for rank, m in view.members.items() if m.enqueued is not None)
        issued = [(ranks_phrase(ranks), counted(seq, "collective")) for seq, ranks in sorted(reached.items())]
        sides = [f"{who} issued {what}" for who, what in issued]
        if len(sides) > 1:
            lines.append(f"No rank is seen waiting {on_group(view.group.label)}; {listed(sides, _SIDES)}")
    return first_of(lines, _LINES, "{} more groups are uneven as well")


def _last_lines(subject: Subject) -> tuple[LastLine, ...]:
    """Return what ranks printed last, those of culprits first, equal words of several ranks once."""
    found: dict[tuple[str, str], tuple[list[int], str, str]] = {}
    for rank in sorted(subject.incident.ranks, key=lambda r: (r not in subject.culprits, r)):
        if said := quotes.last_line(subject, rank):
            text = cut(said.text, _WIDTH)
            first: tuple[list[int], str, str] = ([], text, said.source)
            found.setdefault((subject.role(rank), _masked(text)), first)[0].append(rank)
    return tuple(LastLine(compress(ranks), role, *said) for (role, _), (ranks, *said) in found.items())


def _masked(text: str) -> str:
    """Return a line without its numbers."""
    return _NUMBER.sub("#", text)


def _quoted(quote: quotes.Quote) -> str:
    """Return a line and where it is."""
    return f"{cut(quote.text, _WIDTH)}  [{quote.source}]"


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
    if not subject.verdict.cause:
        return known(subject, classes) if subject.analysis.judgement.status == "inconclusive" else None
    for teller in STORIES.get(subject.verdict.cause, (known,)):
        if (found := teller(subject, classes)) is not None:
            return found
    return None if any(len(b.program) for b in classes) else known(subject, classes)
