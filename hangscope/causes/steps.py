"""What ranks printed about their steps, and whether the culprits' words differ from those of the ranks that wait."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.causes.case import Case, last_output
from hangscope.explain.text.output import batches
from hangscope.incident import Event
from hangscope.ingest.job_logs.faults import Skip
from hangscope.ingest.job_logs.progress import Progress
from hangscope.regex import regex

_WORDS = regex(r"[^a-z ]+|rank\s*\d*", re.IGNORECASE)  # what differs between ranks that say the same
_SKIPS = regex(
    r"\bskip(?:s|ped|ping)?\b|\bempty batch\b|\b(?:loss|grad\w{0,20}|norm|is)[ =:]{1,3}nan\b", re.IGNORECASE
)


def _words(event: Event) -> str:
    return " ".join(_WORDS.sub(" ", event.text).split())


class Steps:
    """Compares the output of some ranks with that of those who wait. All ranks are global."""

    def __init__(self, case: Case) -> None:
        self.case, self.statements, self.waiting = case, case.statements, case.finding.waiting

    def ran_further(self, ranks: Sequence[int]) -> bool:
        """Return whether a culprit's output counts a step of the same epoch that no waiting rank has reached."""
        reached = [step for rank in self.waiting if (step := self._reached(rank)) is not None]
        own = [step for rank in ranks if (step := self._reached(rank)) is not None]
        return bool(own and reached) and max(own) > max(reached)

    def _reached(self, rank: int) -> tuple[int, int] | None:
        """Return (epoch, step) of the last line of a rank that counts a step."""
        counted = [
            (e.file, e.line, e.epoch or 0, e.step)
            for e in self.statements.of(rank, Progress)
            if e.step is not None
        ]
        return max(counted)[2:] if counted else None

    def mid_epoch(self, ranks: Sequence[int]) -> bool:
        """Return whether a culprit's last output counts a step well before the last of its own loop (`step 10/18`)."""
        last = (last_output(self.case, rank) for rank in ranks)
        counted = (e for e in last if e is not None and not e.done and e.step is not None and e.total)
        return any((e.step or 0) + 1 < (e.total or 0) for e in counted)

    def skips(self, ranks: Sequence[int]) -> list[Event]:
        """Return a culprit's own words about a batch or step that it skipped alone.

        What all ranks skip together, rank 0 may say for all: without logs of those who wait, nothing follows from it.
        """
        records, waiting = self.case.incident.ranks, self.waiting
        if not any(f != records[r].dump_file for r in waiting if r in records for f in records[r].files):
            return []
        common = {_words(e) for r in waiting for e in self._of_skips(r)}
        return [e for r in ranks for e in self._of_skips(r) if _words(e) not in common]

    def _of_skips(self, rank: int) -> list[Event]:
        """Return the lines by which a rank tells that it skipped something, or saw what is no number: no overflow of a scaler."""
        counted = [e for e in self.statements.of(rank, Progress) if _SKIPS.search(e.text)]
        return [e for e in (*self.statements.of(rank, Skip), *counted) if "overflow" not in e.text.lower()]

    def loop_over(self, ranks: Sequence[int]) -> Progress | None:
        """Return a culprit's last output where it says that its loop is over and most waiting ranks do not say so."""
        for rank in ranks:
            last = last_output(self.case, rank)
            if last is not None and last.done:
                others = [r for r in self.waiting if self._says_over(r, last)]
                if len(others) * 2 <= len(self.waiting):
                    return last
        return None

    def others_over(self, ranks: Sequence[int]) -> Progress | None:
        """Return a culprit's last output where it counts a step beyond all that the waiting ranks made, who all say that their loop is over."""
        last = [last_output(self.case, rank) for rank in self.waiting]
        own = next((e for r in ranks if (e := last_output(self.case, r)) is not None), None)
        over = bool(last) and all(e is not None and e.done for e in last)
        return own if over and own is not None and not own.done and self.ran_further(ranks) else None

    def uneven(self, ranks: Sequence[int]) -> tuple[Progress, Progress] | None:
        """Return a culprit's line that counts steps out of another total than all waiting ranks', and one of theirs."""
        totals = batches(self.statements)
        others = sorted((totals[r], r) for r in self.waiting if r in totals)
        for rank in ranks:
            own, last = totals.get(rank), last_output(self.case, rank)
            if own is not None and last is not None and others and own not in {total for total, _ in others}:
                nearest = min(others, key=lambda other: (abs(other[0] - own), other))[1]
                theirs = last_output(self.case, nearest)
                return (last, theirs) if theirs is not None else None
        return None

    def _says_over(self, rank: int, done: Progress) -> bool:
        """Return whether a rank's last output says that a loop is over, or it said so of that same epoch and went on."""
        last, epoch = last_output(self.case, rank), done.epoch
        return (last is not None and bool(last.done)) or any(
            e.done and e.epoch == epoch is not None for e in self.statements.of(rank, Progress)
        )
