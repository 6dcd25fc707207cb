"""Rules about ranks that are left over: the others have ended, or the loop that they are in is over for somebody."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Absent, Nothing, Unseen
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.incident import Stack
from hangscope.ingest.torch_logs.wrapper import GlooClosed
from hangscope.knowledge.callsite import user_frame


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
    return any(
        (e.peer or "").startswith(("[127.", "127.", "[::1]", "::1")) for e in case.statements.all(GlooClosed)
    )


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
    reading = case.knowledge.read(_waiting_stack(case, left))
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


def _waiting_stack(case: Case, left: tuple[int, ...]) -> Stack:
    """Return where the others wait."""
    kind = case.finding.stuck.kind
    if kind is not None and kind.stack:
        return kind.stack
    stacks = (w.stack for r, w in sorted(case.statements.whereabouts.items()) if r not in left and w.inside)
    return next(stacks, ())
