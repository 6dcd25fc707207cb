"""Clauses that several outputs share, each made of typed facts in one place.

A clause names its ranks (global) and says nothing of what is not known: a claim about all ranks needs a size that some
input states, a claim about a collective needs its op or its seq.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hangscope.causes.case import Case, Match, at
from hangscope.explain.finding import Absent, StuckCall
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.conclusion import WaitEnds
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import on_group
from hangscope.model.rankset import agree, counted, ranks_phrase


@dataclass(frozen=True, slots=True)
class Act:
    """The root cause: `what` is the clause that says who did what; `host` and `place` where one rank did it."""

    ranks: tuple[int, ...]
    what: str
    host: str = ""
    place: str = ""

    def phrase(self) -> str:
        """Return `rank 3 skipped all_reduce`, with the rank's host in parentheses if it is known."""
        who = ranks_phrase(self.ranks)
        if self.host and self.what.startswith(who):
            return f"{who} (host {self.host}){self.what[len(who) :]}"
        return self.what


def act(case: Case, match: Match) -> Act:
    """Return who did what, of a match."""
    ranks, records = tuple(sorted(set(match.culprits))), case.incident.ranks
    hosts = {records[r].host for r in ranks if r in records}
    finding = case.finding
    # A call that ranks never entered is at the line where the others issued it.
    kind = finding.stuck.kind if isinstance(finding, Absent) else finding.own.kind
    place = at(match.frame or case.frame_of(kind))
    return Act(ranks, match.why, (hosts.pop() or "") if len(ranks) == len(hosts) == 1 else "", place)


def blocked(case: Case, stuck: StuckCall, waiting: Sequence[int], in_call: Sequence[int], left: bool) -> str:
    """Return `ranks 0-2 are blocked in all_reduce seq 11 on group 0 (default_pg)`; empty where no collective is known.

    `left`: the CPU threads of the ranks in `in_call` have left the collective, which the device of a peer has not completed.
    """
    statements = case.statements
    op = stuck.kind.op if stuck.kind is not None else ""
    checked = any(e.context == "mismatch" for e in statements.all(CallFingerprint))
    raised = case.from_text and checked and not statements.all(WatchdogTimeout)
    if raised or not (op or stuck.seq is not None):
        return ""  # the ranks raised what the consistency check found
    placed = statements.whereabouts if case.from_text else {}
    elsewhere = {r for r in in_call if r in placed and placed[r].op and op and placed[r].op != op}
    apart = _in_others(case, stuck, [r for r in in_call if r not in elsewhere])
    there = [r for r in in_call if r not in elsewhere.union(*apart.values())]
    if not there:
        return ""
    seq = f" seq {stuck.seq}" if stuck.seq is not None else ""
    group = f" {on_group(stuck.group.label)}" if stuck.group is not None else ""
    where = f"{'after' if left else 'in'} {op or ('collective' if seq else 'a collective')}{seq}{group}"
    ends, others = statements.wait_ends, set(waiting) - set(in_call)
    where += "".join(f", {ends.clause(ranks)} in {other}" for other, ranks in sorted(apart.items()))
    more = f", and {len(others):,} more {blocked_elsewhere(ends, others)}" if others else ""
    return f"{ends.clause(there)} {where}{more}"


def _in_others(case: Case, stuck: StuckCall, ranks: Sequence[int]) -> dict[str, list[int]]:
    """Return the ranks that issued another operation under the number of the collective that blocks, or the other side of a pair, by operation."""
    view, seq, call, pair = stuck.view, stuck.seq, stuck.kind, stuck.pair
    if pair is not None:
        halves = [half for half in (pair.send, pair.recv) if half is not None and half.rank in ranks]
        others = (half for half in halves if half.rank != stuck.rank)
        return {f"{case.incident.kinds[half.kind].op} seq {half.seq}": [half.rank] for half in others}
    if view is None or seq is None or call is None:
        return {}
    found: dict[str, list[int]] = {}
    for rank in ranks:
        kind = view.kind_of(rank, seq)
        if kind is not None and kind.op != call.op:
            found.setdefault(kind.op, []).append(rank)
    return found


def blocked_elsewhere(ends: WaitEnds, ranks: Collection[int]) -> str:
    """Return `ranks are blocked elsewhere`, after how many they are."""
    state = ends.state(ranks)
    verb = f"{agree(ranks, 'is', 'are')} " if state == "blocked" else ""
    return f"{agree(ranks, 'rank', 'ranks')} {verb}{state} elsewhere"


def are_in(ranks: str, count: int, call: str, where: str = "", past: bool = False) -> str:
    """Return `Ranks 0-2 are in all_reduce seq 11 on group 0 (default_pg)`, or that they were."""
    verb = ("was", "were") if past else ("is", "are")
    return f"{'Rank' if count == 1 else 'Ranks'} {ranks} {verb[count != 1]} in {call}{where}"


def accounts_for(ranks: int, of: int) -> str:
    """Return `15 of 16 blocked ranks`."""
    return f"{ranks:,} of {counted(of, 'blocked rank')}"


def seen_of(what: str, ranks: Collection[int], size: int | None) -> str:
    """Return `text of 3 of 8 ranks`, or `text of ranks 0-3; world size unknown` where no input states the size."""
    if size is None:
        return f"{what} of {ranks_phrase(ranks)}; world size unknown" if ranks else f"no {what}"
    number = len(ranks) if ranks else "unidentified ranks,"
    return f"{what} of {number} of {size}{' ranks' if ranks else ''}"
