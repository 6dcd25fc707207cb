"""Rules about ranks that are left over: the others have ended, the loop that they are in is over for somebody, or their script is."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.conclusion import Evidence, Source
from hangscope.explain.finding import Absent, Nothing, Unseen
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.incident import Stack
from hangscope.ingest.torch_logs.wrapper import GlooClosed
from hangscope.knowledge.callsite import is_user, user_frame

#: what Python runs at the end of a process: threading.py, multiprocessing/util.py and concurrent/futures (CPython 3.8 to 3.14)
_EXITS = frozenset({"_shutdown", "_exit_function", "_python_exit"})


def made_after_the_end(case: Case) -> Match | None:
    """Few ranks wait in a call while most have ended without an error: those few made a call too many.

    The launcher lists who failed. Who is not on its list ended well, and had nothing more to call.
    """
    statements, finding = case.statements, case.finding
    failed = sorted(r for r, e in statements.exits.items() if e.code != 0)
    waited = tuple(r for r in failed if r in statements.witnesses)
    if (
        not isinstance(finding, Unseen | Nothing)
        or not waited
        or len(waited) < len(failed)
        or statements.deaths
    ):
        return None
    others = [r for r in case.incident.ranks if r not in failed]
    if len(failed) * 2 >= len(case.incident.ranks) or any(r in statements.witnesses for r in others):
        return None
    unheard = beyond_the_text(case.incident, statements).intersection(others) - set(statements.left_quietly)
    if unheard and not _on_one_host(case):
        return None  # of whom nothing was collected may have been on another node, with a launcher of its own
    where = statements.whereabouts.get(waited[0])
    stack = where.stack if where is not None and where.inside else ()
    silent = [r for r in others if not case.incident.ranks[r].files]
    frame, who = user_frame(stack), ranks_phrase(waited)
    at = f" at {frame.file.rsplit('/', 1)[-1]}:{frame.line}" if frame is not None else ""
    return Match(
        "rank_conditional_collective",
        waited,
        f"{who} still {'waits' if len(waited) == 1 else 'wait'} in a call{at} when {ranks_phrase(others)} had ended without an error",
        strength=0 if silent else 1,
        evidence=[
            *(Evidence("exit", f"the launcher lists {ranks_phrase(failed)} alone as failed: the others ended well") for _ in failed[:1]),
            *(quote(statements.exits[r]) for r in waited[:2]),
        ],
        advice=["Let every rank make the same calls up to the very end: what one rank does behind the loop must not call a collective."],
        frame=frame,
        frame_rank=waited[0],
        rivals=[("early_exit", "the others may have left before a call that all should have made")],
        stack=stack,
    )  # fmt: skip


def _on_one_host(case: Case) -> bool:
    """Return whether a rank lost a peer at a loopback address, so that one launcher speaks for all."""
    closed = case.statements.all(GlooClosed)
    return any((e.peer or "").startswith(("[127.", "127.", "[::1]", "::1")) for e in closed)


def left_a_librarys_loop(case: Case) -> Match | None:
    """A rank ended without an error while the others are in a training step of a library's own loop.

    The user's code cannot return from within such a loop: it is over where the batches are, or where it was told to stop.
    """
    statements, finding = case.statements, case.finding
    quiet = set(statements.left_quietly)
    if (
        not quiet
        or len(quiet) * 2 > len(case.incident.ranks)
        or not isinstance(finding, Absent | Unseen | Nothing)
    ):
        return None
    left = tuple(r for r in finding.culprits if r in quiet) or (
        tuple(sorted(quiet)) if isinstance(finding, Nothing) else ()
    )
    others = (rank for rank in sorted(statements.whereabouts) if rank not in left)
    reading = case.knowledge.read(case.stack_of(finding.stuck.kind, others))
    if not left or reading.loop is None or reading.stage != "step" or reading.by_user:
        return None
    who = ranks_phrase(left)
    return Match(
        "uneven_loader",
        left,
        f"{who} had no step left to make in {reading.loop.api} and ended without an error, while the others are in one",
        strength=1,
        category="data",
        evidence=[Evidence("exit", f"rank {r}: {statements.left_quietly[r]}", r) for r in left],
        rivals=[
            ("early_exit", "a rank that stopped the loop or left the program by itself ends in the same way"),
            (
                "gradient_sync_mismatch",
                "a rank that skipped a backward pass is done one step before the others",
            ),
        ],
    )


def held_at_its_exit(case: Case) -> Match | None:
    """A rank whose script is over, and whose process does not end: the interpreter waits for a thread or a child of it."""
    statements, ranks = case.statements, case.incident.ranks
    held = tuple(
        r for r, w in sorted(statements.whereabouts.items()) if w.kind == "stack" and _at_exit(w.stack)
    )
    inside = [r for r, w in statements.whereabouts.items() if w.inside]
    if not held or 2 * len(held) > len(ranks) or statements.deaths:
        return None
    if not isinstance(case.finding, Nothing | Absent | Unseen) or set(case.finding.culprits) - set(held):
        return None
    who, left = ranks_phrase(held), bool(inside or case.graph.waiting)
    threads = [(r, name, stack) for r in held for name, stack in ranks[r].threads[1:] if user_frame(stack)]
    frame = user_frame(threads[0][2]) if threads else None
    its = "their processes do" if len(held) > 1 else "its process does"
    busy = f": a thread is at {frame}" if frame is not None and not left else ""
    return Match(
        "early_exit" if left else "stuck_rank",
        held,
        f"the script of {who} is over{', while others are in a call' if left else ''}, and {its} not end{busy}",
        strength=0 if not left or case.finding.guess else 1,
        evidence=[
            *(_thread(case, r, *ranks[r].threads[0]) for r in held[:4]),
            *(_thread(case, *thread) for thread in threads[:4]),
        ],
        advice=[
            "Leave together: agree on the end over all ranks before any returns."
            if left
            else f"End that thread when the script ends: let it see a flag or a deadline, and join it; or start it with daemon=True ({frame or 'py-spy dump shows which it is'}).",
        ],
        frame=frame,
        frame_rank=threads[0][0] if threads else None,
    )


def _at_exit(stack: Stack) -> bool:
    """Return whether a main thread is past the script, in what Python does at the end of a process."""
    return bool(stack) and stack[-1].name in _EXITS and not any(is_user(frame) for frame in stack)


def _thread(case: Case, rank: int, name: str, stack: Stack) -> Evidence:
    text = f"rank {rank}'s thread {name}: " + " <- ".join(str(frame) for frame in stack[:4])
    return Evidence("stack", text, rank, Source(case.incident.ranks[rank].stack_file or ""))
