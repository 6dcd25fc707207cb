"""Ranks that are in different collectives as text shows it, and which of them are the outliers: the minority.

In a tie, what one side alone printed, that it is off the training step, or the program's code decides, and never names a rank by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.explain.finding import Absent, Different, Finding, OwnCall, StuckCall, Unpaired, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.knowledge.library import off_the_step, own_knowledge
from hangscope.model.incident import CallKind, Stack


def last_call(rank: int, statements: Statements) -> StuckCall:
    """Return the collective that a rank was in, as far as its stack or traceback shows it."""
    where = statements.whereabouts.get(rank)
    return StuckCall(rank=rank, kind=where.call if where is not None else None)


def different(
    seq: int | None,
    partitions: Sequence[Sequence[int]],
    kinds: Mapping[int, CallKind],
    statements: Statements,
) -> Different:
    """Return the finding that ranks are in different collectives. `partitions` are the ranks of each; they need no order."""
    sides = sorted(map(tuple, partitions), key=lambda ranks: (-len(ranks), ranks))
    tie = 2 * len(sides[0]) <= sum(map(len, sides))
    majority, outliers = sides[0], tuple(sorted(r for side in sides[1:] for r in side))
    if tie and len(sides) == 2 and (off := outlier_of_two(sides, kinds, statements)) is not None:
        majority, outliers, tie = sides[1 - off], sides[off], False
    stuck = StuckCall(None, seq, majority[0], kinds.get(majority[0]))
    own = OwnCall(kinds.get(outliers[0]) if outliers else None, seq)
    return Different(() if tie else outliers, stuck, own, tie=tie)


def outlier_of_two(
    sides: Sequence[Sequence[int]], kinds: Mapping[int, CallKind], statements: Statements
) -> int | None:
    """Return which of two even sides is the outlier: the one that alone printed a telling line, or one once, else the one off the training step."""
    lines, parts = statements.outlier_lines, [*map(tuple, sides)]
    telling = {line.ranks for line in lines if line.decides}
    if len(telling) == 1 and telling <= {*parts}:
        return parts.index(telling.pop())
    once = {line.ranks for line in lines if line.printers and line.ranks in parts}
    if len(once) == 1:
        return 1 - parts.index(once.pop())
    return off_the_step(_stack(sides[0], kinds), _stack(sides[1], kinds), own_knowledge())


def _stack(side: Sequence[int], kinds: Mapping[int, CallKind]) -> Stack:
    """Return the first stack of a side that is not empty."""
    return next((kinds[rank].stack for rank in side if rank in kinds and kinds[rank].stack), ())


def decided(finding: Finding, statements: Statements, placed: Sequence[int] = ()) -> Finding:
    """Return a finding that names nobody with the one rank that is at another line than all others (`placed`), or printed what no other did."""
    telling = {odd.ranks for odd in statements.outlier_lines if odd.decides}
    by_text = isinstance(finding, Unseen) or (isinstance(finding, Absent) and finding.stuck.view is None)
    if by_text and len(finding.culprits) > 1:
        # Of several ranks without dumps the one that alone printed something, if the output of all of them was collected.
        alone = [ranks for ranks in telling if len(ranks) == 1]
        heard = all(statements.of(rank, Printed) for rank in (*finding.culprits, *finding.waiting))
        if heard and len(alone) == 1 and set(alone[0]) <= set(finding.culprits):
            return replace(finding, culprits=alone[0], guess=True)
        return finding
    if not finding.tie or finding.culprits or not isinstance(finding, Different | Unpaired):
        return finding
    behind_a_guard = (0,) if any(e.guarded for e in statements.all(Excerpt)) else ()
    culprits = tuple(placed) or (telling.pop() if len(telling) == 1 else behind_a_guard)
    if len(culprits) != 1 or not {*finding.waiting, *finding.reached}.issuperset(culprits):
        return finding
    rank, waiting = culprits[0], tuple(r for r in finding.waiting if r not in culprits)
    stuck, view, seq = finding.stuck, finding.stuck.view, finding.stuck.seq
    own = OwnCall(last_call(rank, statements).kind)
    if view is not None and seq is not None and stuck.pair is None:
        own = OwnCall(view.kind_of(rank, seq), seq)
        others = [r for r in waiting if r in view.members and view.kind_of(r, seq) != own.kind]
        stuck = replace(stuck, rank=others[0], kind=view.kind_of(others[0], seq)) if others else stuck
    elif waiting and stuck.pair is None:
        stuck = last_call(waiting[0], statements)
    finding = replace(finding, culprits=culprits, own=own, stuck=stuck, tie=False)
    return replace(finding, waiting=waiting, reached=finding.reached - set(culprits))
