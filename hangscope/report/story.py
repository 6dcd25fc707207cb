"""The stories of the page: of each cause what shows it best; of an incident without a cause what is known.

The first story for which there is enough evidence is shown; what is known always can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hangscope.align.p2p import Half, PairInstance
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import on_group
from hangscope.model.rankset import compress, counted, in_words, ranks_phrase
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Program
from hangscope.report.pictures.stacks import page_frames
from hangscope.report.schema import page as parts
from hangscope.report.schema.page import Box, Lines, Story
from hangscope.report.subject import Subject, site_of, sizes_of
from hangscope.report.words import cut, first_of, grouped, listed, sizes_words
from hangscope.verdict.claims import are_in
from hangscope.verdict.phrasing import sentence_case

_CALLS, _INSTEAD = 5, 3
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
    shown: list[parts.Part] = [parts.Frames("Traceback, innermost first", trace)] if trace else []
    if rest := lines[1:_LINES]:
        shown += [] if trace else [Lines(("No traceback was collected.",), "note")]
        shown.append(Lines(tuple(map(_quoted, rest)), "quote"))
    who = ranks_phrase(ranks).capitalize() + (":" if lines else "")
    return Story("end", "How it ended", who, tuple(shown), cut(lines[0].text, _WIDTH) if lines else "")


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
        cells.append(parts.Row((compress(ranks), *counts, lag), role))
    head = ("Ranks", "Enqueued", "Started", "Completed", "Difference")
    text = f"{sentence_case(on_group(view.group.label))}. Enqueued is what the CPU thread issued, completed what the backend (NCCL on the GPU, or gloo) finished."
    title = "How far each rank is"
    return Story("progress", title, text, (parts.Table(title, head, tuple(cells), numbers=(1, 2, 3, 4)),))


def join(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return who joined and who did not."""
    verdict = subject.verdict
    lines = quotes.of_kind(subject, "join")
    if not lines and not verdict.culprit_ranks:
        return None
    blocked = verdict.waiting_ranks
    joined = ranks_phrase(blocked) if blocked else "no rank is known to have joined"
    missing = ranks_phrase(verdict.culprit_ranks) if verdict.culprit_ranks else "no rank can be named"
    boxes = parts.Boxes((Box(True, "joined, or waiting", joined), Box(False, "missing", missing)))
    quoted = Lines(tuple(map(_quoted, lines[:_LINES])), "quote")
    return Story("join", "Who joined", "", (boxes, quoted) if lines else (boxes,))


def loop(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return the ends of what two sides printed, where they differ."""
    endings = _last_lines(subject)[:_ENDINGS]
    own = {_masked(line.text) for line in endings if line.role == "culprit"}
    others = {_masked(line.text) for line in endings if line.role != "culprit"}
    if not own or not others or own & others:
        return None
    return Story("loop", "Last output of each side", "", (parts.Endings(endings),))


def stack(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return where the process is that issues no collective."""
    for rank in sorted(subject.culprits):
        if found := subject.stack(rank):
            file = subject.incident.ranks[rank].stack_file
            text = f"Rank {rank}, innermost frame first" + (f" ({file})" if file else "")
            frames = parts.Frames("Stack, innermost first", page_frames(found))
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
    shown: list[parts.Part] = [Lines(tuple(lines))] if lines else []
    if endings := _last_lines(subject):
        title = Lines(("Last output of each rank, ignoring numbers:",), "note")
        shown += [title, parts.Endings(endings[:_SAID])]
        if (left_out := len(endings) - _SAID) > 0:
            text = f"{left_out} more ranks printed something else; their panels show it."
            shown.append(Lines((text,), "note"))
    return Story("known", "What is known", "", tuple(shown)) if shown else None


def _pending(subject: Subject) -> list[str]:
    calls = [(rank, found[0]) for rank, found in sorted(subject.graph.open_calls.items()) if found]
    by_call = grouped(((subject.call_name(c.node, r), subject.on_group(c.gid)), r) for r, c in calls)
    past = subject.waits_ended
    lines = [are_in(in_words(compress(ranks)), len(ranks), *where, past) for where, ranks in by_call.items()]
    return first_of(lines, _LINES, "{} more collectives are pending")


def _apart(subject: Subject) -> list[str]:
    lines = []
    for view in subject.views.values():
        reached = grouped((m.enqueued, rank) for rank, m in view.members.items() if m.enqueued is not None)
        issued = [(ranks_phrase(ranks), counted(seq, "collective")) for seq, ranks in sorted(reached.items())]
        sides = [f"{who} issued {what}" for who, what in issued]
        if len(sides) > 1:
            lines.append(f"No rank is seen waiting {on_group(view.group.label)}; {listed(sides, _SIDES)}")
    return first_of(lines, _LINES, "{} more groups are uneven as well")


def _last_lines(subject: Subject) -> tuple[parts.LastLine, ...]:
    """Return what ranks printed last, those of culprits first, equal words of several ranks once."""
    found: dict[tuple[str, str], tuple[list[int], str, str]] = {}
    for rank in sorted(subject.incident.ranks, key=lambda r: (r not in subject.culprits, r)):
        if said := quotes.last_line(subject, rank):
            text = cut(said.text, _WIDTH)
            first: tuple[list[int], str, str] = ([], text, said.source)
            found.setdefault((subject.role(rank), _masked(text)), first)[0].append(rank)
    rows = found.items()
    return tuple(parts.LastLine(compress(ranks), role, *said) for (role, _), (ranks, *said) in rows)


def _masked(text: str) -> str:
    return _NUMBER.sub("#", text)


def _quoted(quote: quotes.Quote) -> str:
    return f"{cut(quote.text, _WIDTH)}  [{quote.source}]"


def mismatch(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return the two sides' arguments, or None where one of them is not known or they are alike."""
    verdict = subject.verdict
    if verdict.culprit_call is None or verdict.waiting_call is None:
        return None
    mine, theirs = _arguments(verdict.waiting_call), _arguments(verdict.culprit_call)
    if mine == theirs:
        return None
    others, named = verdict.in_call or verdict.waiting_ranks, verdict.culprit_ranks
    left = ranks_phrase(others).capitalize() if others else "One side"
    right = ranks_phrase(named).capitalize() if named else "The other side"
    rows = []
    for name in mine:
        values = [values[name] for values in (mine, theirs)]
        if any(values):
            mark = "hit" if all(values) and len(set(values)) > 1 else ""
            rows.append(parts.Row((name, *(value or "not known" for value in values)), mark))
    title, head = "The two collectives, argument by argument", ("Argument", left, right)
    return Story("arguments", title, "", (parts.Table(title, head, tuple(rows), (1, 2)),))


def _arguments(call: CallRef) -> dict[str, str]:
    return {
        "collective": call.op,
        "seq": "" if call.seq is None else str(call.seq),
        "sizes": sizes_words(call.sizes, most=4),
        "type": ", ".join(dict.fromkeys(call.dtypes)),
        "line": str(user_frame(call.frames) or ""),
    }


def order(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the last collectives of the side with the different order and of a side that it waits for, or None."""
    stuck = [b for b in classes if len(b.program) and b.role in ("culprit", "waiting")]
    stuck.sort(key=lambda b: b.role != "culprit")
    own = _open_keys(stuck[0].program) if stuck else []
    if not own:
        return None
    named, mine = stuck[0], set(stuck[0].program.tokens)
    others = [b for b in stuck[1:] if (keys := _open_keys(b.program)) and keys[0][0] != own[0][0]]
    if not others:
        return None
    peer = min(others, key=lambda b: (-len(mine & set(b.program.tokens)), -len(b.ranks), b.ranks[0]))
    titles = ranks_phrase(peer.ranks).capitalize(), ranks_phrase(named.ranks).capitalize()
    left = _last(subject, peer.program, named.program)
    right = _last(subject, named.program, peer.program)
    last = [(title, call) for title, calls in zip(titles, (left, right), strict=True) for call in calls[-2:]]
    said = Lines(tuple(f"{title}: {call.text}, {call.state}" for title, call in last))
    text = "The last collectives of two groups of ranks, the newest below; a line joins the same collective on both sides, and lines that cross show a different order."
    return Story("order", "The order of the collectives", text, (parts.Orders(titles, left, right), said))


def _open_keys(program: Program) -> list[tuple[int, int]]:
    return [(call.gid, call.seq) for call in program.last(len(program)) if not call.is_done]


def _last(subject: Subject, program: Program, other: Program) -> tuple[parts.OrderedCall, ...]:
    """Return the last calls of one side, and the one that it would issue next if it did as the other side does."""
    groups = set(program.gid.tolist())
    shared = groups & set(other.gid.tolist())
    calls, issued = [], set()
    for call in program.last(_CALLS):
        issued.add((call.gid, call.seq))
        group = subject.incident.groups[call.gid]
        # Both sides may be in groups of their own with the same purpose.
        key = call.gid if call.gid in shared else group.role or group.desc or group.name
        text = f"{call.kind.op} seq {call.seq} {on_group(group.label)}"
        calls.append(parts.OrderedCall(f"{key} {call.seq}", text, call.site, call.state))
    for gid, seq in _open_keys(other):
        if (gid, seq) not in issued and gid in groups:
            text = f"seq {seq} {on_group(subject.label(gid))}"
            calls.append(parts.OrderedCall(f"{gid} {seq}", text, "", "not issued yet"))
    return tuple(calls)


def pair(subject: Subject, classes: Sequence[Behaviour]) -> Story | None:
    """Return the send and the recv, and what the rank did instead that did not issue its own; None if no pair is known."""
    node = subject.node
    if not isinstance(node, PairInstance) or node not in subject.graph.pairs:
        return None
    node = next((n for n in (node, *subject.graph.pairs) if _missing(subject, n) in subject.culprits), node)
    found, source, destination = subject.graph.pairs[node], node.source, node.destination
    boxes = _half(subject, source, "send", found.send), _half(subject, destination, "recv", found.recv)
    shown: list[parts.Part] = [parts.Boxes(boxes)]
    missing = _missing(subject, node)
    behaviour = next((b for b in classes if missing in b.ranks), None)
    if behaviour is not None and len(behaviour.program):
        last = [(call, call.site or "a line that is not known") for call in behaviour.program.last(_INSTEAD)]
        issued = [f"{call.kind.op} {call.sizes} at {site}, {call.state}" for call, site in last]
        shown.append(Lines(("What the rank with the missing op issued last:",), "note"))
        shown.append(Lines(tuple(issued), "mono"))
    text = f"The pair number {node.index + 1}, from rank {source} to rank {destination}"
    return Story("pair", "The send and its recv", text, tuple(shown))


def _missing(subject: Subject, node: PairInstance) -> int | None:
    """Return the rank that did not issue its send or recv of a pair, None if both are there."""
    found = subject.graph.pairs[node]
    return node.destination if found.recv is None else node.source if found.send is None else None


def _half(subject: Subject, rank: int, verb: str, half: Half | None) -> Box:
    title = f"rank {rank} {verb}"
    if half is None:
        return Box(False, title, "not issued", rank=rank)
    kind = subject.incident.kinds[half.kind]
    text = " ".join(filter(None, (f"seq {half.seq}", sizes_of(kind), f"({half.state.name.lower()})")))
    return Box(True, title, text, site_of(kind), rank)


_MISMATCHES = [f"{what}_mismatch" for what in ("shape", "dtype", "collective", "gradient_sync", "model")]
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
