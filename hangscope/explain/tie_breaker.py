"""Which of two even sides is at fault, where one rank alone printed a telling line shortly before the freeze.

Such a line never names a rank by itself, nor does a stack. Where collectives or stacks prove that ranks went different ways, and only leave open
which of them is wrong, it decides. So does the program's code, where a text shows that rank 0 alone calls a collective in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.explain.finding import Different, Finding, OwnCall, Unpaired, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.partitions import last_call
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.last_lines import Printed


def decided(finding: Finding, statements: Statements, placed: Sequence[int] = ()) -> Finding:
    """Return a finding that names nobody with the one rank that is at another line than all others (`placed`), or printed what no other did."""
    telling = {odd.ranks for odd in statements.outlier_lines if odd.decides}
    if isinstance(finding, Unseen) and len(finding.culprits) > 1:
        return _of_several(finding, [ranks for ranks in telling if len(ranks) == 1], statements)
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
    reached = finding.reached - set(culprits)
    return replace(
        finding, culprits=culprits, waiting=waiting, reached=reached, own=own, stuck=stuck, tie=False
    )


def _of_several(finding: Unseen, telling: Sequence[tuple[int, ...]], statements: Statements) -> Unseen:
    """Return a finding of several ranks without dumps as that of the one which alone printed something, where all their output was collected."""
    named = [ranks for ranks in telling if set(ranks) <= set(finding.culprits)]
    heard = all(statements.of(rank, Printed) for rank in (*finding.culprits, *finding.waiting))
    return (
        replace(finding, culprits=named[0], guess=True)
        if heard and len(named) == len(telling) == 1
        else finding
    )
