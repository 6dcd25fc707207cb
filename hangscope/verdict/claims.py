"""What a report states, as typed facts: created once from the case; `phrasing.py` and the outputs only put them into words.

A claim names its ranks (global) and what it presupposes: a claim about all ranks needs a size that some input
states (`Scope`), a claim about one call needs its op or its seq. What is not known is None or empty, never a filled-in word.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case, Match, at
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import agree, ranks_phrase


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


@dataclass(frozen=True, slots=True)
class Blocked:
    """Who is blocked in the collective that the verdict names, and how many more ranks wait for those.

    `left` where a device lags: the ranks have left the collective and are blocked after it.
    """

    ranks: tuple[int, ...]
    op: str
    seq: int | None
    group: str
    left: bool = False
    more: int = 0

    def phrase(self) -> str:
        """Return `ranks 0-2 are blocked in all_reduce seq 11 on group 0 (default_pg)`; empty where no collective is known."""
        if not self.ranks or not (self.op or self.seq is not None):
            return ""
        call = self.op or "a collective"
        call += f" seq {self.seq}" if self.seq is not None else ""
        text = f"{ranks_phrase(self.ranks)} {agree(self.ranks, 'is', 'are')} blocked {'after' if self.left else 'in'} {call}"
        text += f" on group {self.group}" if self.group else ""
        more = f", and {self.more:,} more {'rank is' if self.more == 1 else 'ranks are'} indirectly blocked"
        return text + (more if self.more else "")


@dataclass(frozen=True, slots=True)
class Pending:
    """Ranks (as text, and how many) that are in one collective; `call` is its op with its seq, `where` its group."""

    ranks: str
    count: int
    call: str
    where: str = ""

    def phrase(self) -> str:
        """Return `Ranks 0-2 are in all_reduce seq 11 on group 0 (default_pg)`."""
        who = f"Rank {self.ranks} is" if self.count == 1 else f"Ranks {self.ranks} are"
        return f"{who} in {self.call}{self.where}"


@dataclass(frozen=True, slots=True)
class Accounts:
    """How many of the blocked ranks a root cause accounts for."""

    ranks: int
    of: int

    def phrase(self) -> str:
        """Return `15 of 16 blocked ranks`."""
        return f"{self.ranks:,} of {self.of:,} blocked {'rank' if self.of == 1 else 'ranks'}"


@dataclass(frozen=True, slots=True)
class Issued:
    """The same collective of several ranks: `call` is its op with its arguments, `place` the line that issued it."""

    ranks: tuple[int, ...]
    call: str
    seq: int
    place: str = ""

    def phrase(self) -> str:
        """Return `ranks 0-2 issued all_reduce([64] Float) seq 6 at train.py:11 in step`."""
        return f"{ranks_phrase(self.ranks)} issued {self.call} seq {self.seq}" + (
            f" at {self.place}" if self.place else ""
        )


@dataclass(frozen=True, slots=True)
class Reached:
    """How far one rank is on one group, in seqs; `completed` is None where its record does not show completions."""

    rank: int
    group: str
    enqueued: int
    completed: int | None

    def phrase(self) -> str:
        """Return `rank 3 last enqueued seq 5 on group 0 (default_pg); last completed seq 5`."""
        done = "completions were not recorded"
        if self.completed is not None:
            done = f"last completed seq {self.completed}" if self.completed else "it completed none"
        if not self.enqueued:
            return f"rank {self.rank} has enqueued nothing on group {self.group}"
        return f"rank {self.rank} last enqueued seq {self.enqueued} on group {self.group}; {done}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which ranks of the job were seen; `size` is None where no input states it: then nothing is said of all ranks."""

    seen: tuple[int, ...]
    size: int | None

    def phrase(self, what: str) -> str:
        """Return `text of 3 of 8 ranks`, or `text of ranks 0-3; world size unknown`."""
        if self.size is None:
            return f"{what} of {ranks_phrase(self.seen)}; world size unknown" if self.seen else f"no {what}"
        if not self.seen:
            return f"{what} of unidentified ranks, of {self.size}"
        return f"{what} of {len(self.seen)} of {self.size} ranks"


def act(case: Case, match: Match) -> Act:
    """Return who did what, of a match."""
    ranks, records = tuple(sorted(set(match.culprits))), case.incident.ranks
    hosts = {records[r].host for r in ranks if r in records}
    place = at(match.frame or case.frame_of(case.finding.own.kind))
    return Act(ranks, match.why, (hosts.pop() or "") if len(ranks) == len(hosts) == 1 else "", place)


def blocked(case: Case, waiting: Sequence[int], in_call: Sequence[int], left: bool) -> Blocked:
    """Return which ranks are blocked where; `left`: those in `in_call` have left the collective in which a peer's device still is."""
    stuck = case.finding.stuck
    group = stuck.group.label if stuck.group is not None else ""
    op = stuck.kind.op if stuck.kind is not None else ""
    checked = any(e.context == "mismatch" for e in case.statements.all(CallFingerprint))
    if case.from_text and checked and not case.statements.all(WatchdogTimeout):
        return Blocked((), op, stuck.seq, group)  # they raised what DETAIL's check found
    stood = {r: case.statements.whereabouts.get(r) for r in in_call} if case.from_text else {}
    elsewhere = {r for r, where in stood.items() if where is not None and where.op and op and where.op != op}
    there = tuple(r for r in in_call if r not in elsewhere)
    return Blocked(there, op, stuck.seq, group, left, len(waiting) - len(in_call))
