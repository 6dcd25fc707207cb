"""What ranks printed about their steps, and whether the output of the culprits differs from that of the ranks that wait."""

from __future__ import annotations

from functools import cached_property

from hangscope.explain.finding import Finding
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import LoopLength, Progress
from hangscope.model.events import Event
from hangscope.model.incident import Incident
from hangscope.model.regex import regex

_EPOCHS = regex(r"(?i)\bepoch\W{1,4}(\d{1,6}\.\d{1,6})")


def last_output(statements: Statements, rank: int) -> Progress | None:
    """Return the last line of a rank's own output that counts or reports its progress."""
    return max(statements.of(rank, Progress), key=lambda e: (e.file, e.line), default=None)


def is_last(statements: Statements, event: Progress) -> bool:
    """Return whether no later line of that rank's own program is known in the same file."""
    printed = statements.of(event.rank, Printed) if event.rank is not None else []
    return all(e.file != event.file or e.numbers[-1] <= event.line for e in printed)


class Steps:
    """Compares the output of the culprits with that of the ranks that wait."""

    def __init__(self, incident: Incident, statements: Statements, finding: Finding) -> None:
        self.incident, self.statements = incident, statements
        self.culprits, self.waiting = finding.culprits, finding.waiting
        last = ((rank, last_output(statements, rank)) for rank in (*self.culprits, *self.waiting))
        self.last = {rank: line for rank, line in last if line is not None}
        self.own = {rank: self.last[rank] for rank in self.culprits if rank in self.last}

    @cached_property
    def mid_epoch(self) -> bool:
        """Return whether a culprit's last output counts a step well before the end of its loop or epoch (`step 10/18`, `epoch 0.8`)."""
        counted = (e for e in self.own.values() if e.step is not None and not e.done)
        if any(e.total is not None and (e.step or 0) + 1 < e.total for e in counted):
            return True
        printed = [e.texts[-1] for rank in self.culprits for e in self.statements.of(rank, Printed)]
        return any(float(part) % 1 for text in printed for part in _EPOCHS.findall(text))

    @cached_property
    def skips(self) -> list[OutlierLine]:
        """Return the lines that the culprits alone printed, and that do not report the end of a loop: something happened inside it."""
        ends = {(e.file, e.line) for e in self.statements.all(LoopLength)}
        ends |= {(e.file, e.line) for e in self.statements.all(Progress) if e.done or e.leaving or e.over}
        # What it prints after its loop is not inside it.
        through = {e.file: e.line for e in self.own.values() if e.done}
        lines = [o for o in self.statements.outlier_lines if o.telling and o.how != "value"]
        alone = (o for o in lines if (o.file, o.line) not in ends and {*self.culprits}.issuperset(o.ranks))
        return [line for line in alone if line.line < through.get(line.file, line.line + 1)]

    @cached_property
    def loop_over(self) -> Progress | None:
        """Return a culprit's last output if it reports the end of its loop and most waiting ranks do not."""
        for own in self.own.values():
            if own.done and 2 * sum(self._is_over(r, own) for r in self.waiting) <= len(self.waiting):
                return own
        return None

    @cached_property
    def shorter(self) -> tuple[int, int, Event] | None:
        """Return how many steps a culprit's loop has, the least of the waiting ranks, and the culprit's line, where its own are fewer."""
        known = [line for rank in self.culprits if (line := self._length(rank)) is not None]
        others = [line[0] for rank in self.waiting if (line := self._length(rank)) is not None]
        if not known or not others or len(known) < len(self.culprits):
            return None
        fewer = max(total for total, _ in known) < min(others)
        return (known[0][0], min(others), known[0][1]) if fewer else None

    @property
    def behind(self) -> bool:
        """Return whether every culprit's last output counts fewer steps than that of any waiting rank does."""
        steps = {rank: e.step for rank, e in self.last.items() if e.step is not None}
        own, others = ([steps[r] for r in part if r in steps] for part in (self.culprits, self.waiting))
        return len(own) == len(self.culprits) and bool(others) and max(own) < min(others)

    def _length(self, rank: int) -> tuple[int, Event] | None:
        """Return how many steps a rank prints that its loop has, and the last line that says so."""
        said: list[tuple[int, Event]] = [(e.total, e) for e in self.statements.of(rank, LoopLength)]
        said += [(e.total, e) for e in self.statements.of(rank, Progress) if e.total is not None]
        return max(said, key=lambda found: (found[1].file, found[1].line), default=None)

    def _is_over(self, rank: int, done: Progress) -> bool:
        """Return whether a rank's last output reports the end of a loop, or an earlier line that of that same epoch, or of as many loops."""
        lines, last = self.statements.of(rank, Progress), self.last.get(rank)
        of_that_epoch = any(e.done and e.epoch == done.epoch is not None for e in lines)
        times, own = self._times(rank, done), self._times(done.rank, done)
        return of_that_epoch or (last is not None and last.done) or times >= own > 0

    def _times(self, rank: int | None, line: Progress) -> int:
        """Return how often a rank printed a line like one of another rank."""
        printed = self.statements.all(Printed)
        own = (e for e in printed if e.rank == line.rank and e.file == line.file)
        lines = (row for e in own for row in zip(e.templates, e.numbers, strict=True))
        alike = {template for template, number in lines if number == line.line}
        rows = (row for e in printed if e.rank == rank for row in zip(e.templates, e.counts, strict=True))
        return sum(count for template, count in rows if template in alike)
