"""How the culprit's call differs from the one its peers wait in, and whether it was made inside the loop.

One object per case, shared by the rules about calls that differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from hangscope.align.matching import difference
from hangscope.causes.case import Case
from hangscope.explain.text.output import batches
from hangscope.incident import CallKind, Event, Frame
from hangscope.ingest.job_logs.faults import Skip
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import is_buffer_sync, is_gradient, position_to_loop, user_frames

_RANK_TEST = re.compile(
    r"\b(?:if|unless|while|and|or)\b[^#]*\b(?:\w*rank\w*|is_main\w*|is_master\w*|main_process\w*|R)\b",
    re.IGNORECASE,
)
_OF_STEPS = re.compile(r"\b(?:step|iter(?:ation)?|batch|it)\W{0,3}(\d{1,9})\s*/\s*(\d{1,9})\b", re.IGNORECASE)
_WORDS = re.compile(r"[^a-z ]+|rank\s*\d*", re.IGNORECASE)  # what differs between ranks that say the same
_SKIPS = re.compile(
    r"\bskip(?:s|ped|ping)?\b|\bempty batch\b|\b(?:loss|grad\w{0,20}|norm|is)[ =:]{1,3}nan\b", re.IGNORECASE
)


class Difference:
    """Compares the culprit's call with the waiting one; both may be unknown."""

    def __init__(self, case: Case) -> None:
        self.case, self.finding = case, case.finding
        self.own: CallKind | None = case.finding.own.kind
        self.peer: CallKind | None = case.finding.stuck.kind

    @cached_property
    def differs(self) -> str:
        """Return op, dtype, shape, root or `` (see `matching.difference`)."""
        return difference(self.own, self.peer) if self.own is not None and self.peer is not None else ""

    @cached_property
    def same_site(self) -> bool | None:
        """Return whether both calls come from the same user lines; None where a side has no frames."""
        if self.own is None or self.peer is None:
            return None
        own, peer = user_frames(self.own.stack), user_frames(self.peer.stack)
        if (own and not peer and self.peer_gradient) or (peer and not own and self.own_gradient):
            return False  # a line of the user's against autograd's own thread
        if not own or not peer:
            return (
                True
                if not own
                and not peer
                and not self.case.frames_recorded
                and not self.case.from_text
                and not self.finding.change.elsewhere
                else None
            )
        return own == peer

    @cached_property
    def own_gradient(self) -> bool:
        """Return whether the culprit's call is a gradient reduction."""
        return self.own is not None and is_gradient(self.own, self.case.frames_recorded)

    @cached_property
    def peer_gradient(self) -> bool:
        """Return whether the call that the others wait in is a gradient reduction."""
        return self.peer is not None and is_gradient(self.peer, self.case.frames_recorded)

    @cached_property
    def history(self) -> Sequence[CallKind]:
        """Return what the members called before the divergence, oldest first, of the first waiting member."""
        finding = self.finding
        if finding.change.before:
            return finding.change.before
        if finding.stuck.history is None or finding.stuck.seq is None or finding.stuck.rank is None:
            return []
        until = min(finding.stuck.seq, finding.own.seq or finding.stuck.seq)
        return finding.stuck.history.stacks_before(finding.stuck.rank, until)

    @cached_property
    def position(self) -> tuple[str, Frame] | None:
        """Return where the culprit's call stands to the loop that its peers are in (`callsite.position_to_loop`)."""
        if self.own is None or self.peer is None:
            return None
        stacks = [kind.stack for kind in self.history if kind.stack]
        if self.peer.stack:
            return position_to_loop(self.own.stack, self.peer.stack, stacks)
        # The waiting call has no frames (autograd's thread): compare with the last framed call of the loop instead.
        for stack in reversed(stacks[-64:]):
            found = position_to_loop(self.own.stack, stack, stacks)
            if found is not None:
                return found
        return None

    def times_before(self, kind: CallKind | None) -> int:
        """Return how often the members made this very call, site included, before the divergence."""
        return sum(1 for k in self.history if k == kind) if kind is not None else 0

    @cached_property
    def ends_epochs(self) -> bool:
        """Return whether the culprit's call is one that everybody makes when an epoch is over."""
        return (
            self._made_per_epoch(self.own)
            and not self.mid_epoch(self.finding.culprits)
            and (self.position is None or self.position[0] != "inside" or self.times_before(self.own) > 1)
        )

    @cached_property
    def peer_ends_epochs(self) -> bool:
        """Return whether the waiting call stands behind the loop, while the culprit's is one of the loop."""
        if self.times_before(self.own) < 2 or self.added or self._made_per_epoch(self.own):
            return False
        if self.times_before(self.peer):
            return self._made_per_epoch(self.peer)
        if self.own is None or self.peer is None:
            return False
        stacks = [kind.stack for kind in self.history if kind.stack]
        references = [self.own.stack] if self.own.stack else stacks[-8:]
        found = next(
            (f for s in references if (f := position_to_loop(self.peer.stack, s, stacks)) is not None), None
        )
        return found is not None and found[0] == "beyond"

    def _made_per_epoch(self, kind: CallKind | None) -> bool:
        """Return whether a call ended each round of a loop before: every call between two of it was made at least twice.

        Between two calls of one step's own there is always one that a step makes only once.
        """
        places = [i for i, k in enumerate(self.history) if k == kind]
        if not places:
            return False
        between = self.history[(places[-2] + 1 if len(places) > 1 else 0) : places[-1]]
        counts = Counter(k for k in between if k.op != "broadcast" or len(places) > 1)
        repeated = [k for k, n in counts.items() if n > 1]
        if len(places) > 1:
            return bool(counts) and len(repeated) == len(counts)
        # Only one was seen, and the history may begin inside the round or with the set-up's own calls.
        return len(between) >= 2 and sum(counts[k] for k in repeated) * 5 >= 4 * len(between)

    @cached_property
    def period(self) -> int:
        """Return how many calls one step of the loop makes: the distance between the last two calls like the waiting one (0: unknown)."""
        places = [i for i, kind in enumerate(self.history) if kind == self.peer][-2:]
        return places[1] - places[0] if len(places) == 2 else 0

    @cached_property
    def skipped_part_of_a_step(self) -> bool:
        """Return whether the culprit left out fewer calls than a step makes: then it skipped something inside."""
        return 0 < len(self.skipped) < self.period

    @cached_property
    def stays_inside(self) -> bool:
        """Return whether the culprit went on inside the loop, or ran as many steps as its peers and skipped one of them."""
        culprits = self.finding.culprits
        return (
            self.skipped_part_of_a_step
            or self.ran_further(culprits)
            or self.mid_epoch(culprits)
            or bool(self.skips(culprits))
        )

    def ran_further(self, ranks: Sequence[int]) -> bool:
        """Return whether a culprit's output counts a step of the same epoch that no waiting rank has reached."""
        for rank in ranks:
            own = self._steps(rank)
            others = [s for r in self.finding.waiting for s in [self._steps(r)] if s is not None]
            if own is not None and others and own > max(others):
                return True
        return False

    def mid_epoch(self, ranks: Sequence[int]) -> bool:
        """Return whether a culprit's last output counts a step well before the last of its own loop (`step 10/18`)."""
        for rank in ranks:
            last = self._last_progress(rank)
            found = _OF_STEPS.search(last.text) if last is not None and not last.done else None
            if found and int(found.group(1)) + 1 < int(found.group(2)):
                return True
        return False

    def skips(self, ranks: Sequence[int]) -> list[Event]:
        """Return a culprit's own words about a batch or step that it skipped alone.

        What all ranks skip together, rank 0 may say for all: without logs of those who wait, nothing follows from it.
        """
        statements, records = self.case.statements, self.case.incident.ranks
        waiting = self.case.finding.waiting
        if not any(f != records[r].dump_file for r in waiting if r in records for f in records[r].files):
            return []
        common = {_WORDS.sub("", e.text) for r in waiting for e in statements.of(r, Skip)}
        said: list[Event] = [
            e
            for r in ranks
            for e in statements.of(r, Skip)
            if _WORDS.sub("", e.text) not in common and "overflow" not in e.text.lower()
        ]
        said += [e for r in ranks for e in statements.of(r, Progress) if _SKIPS.search(e.text)]
        return said

    def _steps(self, rank: int) -> tuple[int, int] | None:
        """Return (epoch, step) of the last progress line of a rank that counts steps."""
        counted = [
            (e.file, e.line, e.epoch or 0, e.step)
            for e in self.case.statements.of(rank, Progress)
            if e.step is not None
        ]
        return max(counted)[2:] if counted else None

    @cached_property
    def in_loop_before(self) -> bool:
        """Return whether the culprit's call is one of the loop's own, made about as often as the one the others wait in."""
        own, peer = self.times_before(self.own), self.times_before(self.peer)
        return own >= 1 and own * 2 > peer

    @cached_property
    def cut_short(self) -> bool:
        """Return whether the culprit left a backward pass before its last gradient reductions.

        Buckets come in one order, and only behind the last one were other calls made before. Where the call just before
        the difference is a bucket after which nothing but buckets ever came, this pass had begun and was not over.
        """
        if not self.peer_gradient or self.own_gradient or self.own is None or not self.history:
            return False
        reduces = [is_gradient(kind, self.case.frames_recorded) for kind in self.history]
        ends = {self.history[i] for i in range(len(reduces) - 1) if reduces[i] and not reduces[i + 1]}
        return reduces[-1] and bool(ends) and self.history[-1] not in ends

    def rank_test(self, ranks: Sequence[int]) -> RankException | None:
        """Return the traceback whose quoted source line tests for a rank, on either side."""
        for rank in (*ranks, *self.finding.waiting[:8]):
            for event in self.case.statements.of(rank, RankException):
                if _RANK_TEST.search(event.code or ""):
                    return event
        return None

    def loop_over(self, ranks: Sequence[int]) -> Progress | None:
        """Return a culprit's last output where it says that its loop is over and most waiting ranks do not say so."""
        for rank in ranks:
            last = self._last_progress(rank)
            if last is not None and last.done:
                others = [r for r in self.finding.waiting if self._says_over(r, last)]
                if len(others) * 2 <= len(self.finding.waiting):
                    return last
        return None

    def uneven(self, ranks: Sequence[int]) -> tuple[Progress, Progress] | None:
        """Return a culprit's line that counts steps out of another total than all waiting ranks', and one of theirs."""
        totals = batches(self.case.statements)
        others = sorted((totals[r], r) for r in self.finding.waiting if r in totals)
        for rank in ranks:
            own, last = totals.get(rank), self._last_progress(rank)
            if own is not None and last is not None and others and own not in {total for total, _ in others}:
                nearest = min(others, key=lambda other: (abs(other[0] - own), other))[1]
                theirs = self._last_progress(nearest)
                return (last, theirs) if theirs is not None else None
        return None

    def _says_over(self, rank: int, done: Progress) -> bool:
        """Return whether a rank's last output says that a loop is over, or it said so of that same epoch and went on."""
        last, epoch = self._last_progress(rank), done.epoch
        return (last is not None and bool(last.done)) or any(
            e.done and e.epoch == epoch is not None for e in self.case.statements.of(rank, Progress)
        )

    def _last_progress(self, rank: int) -> Progress | None:
        events = self.case.statements.of(rank, Progress)
        return max(events, key=lambda e: (e.file, e.line)) if events else None

    @cached_property
    def skipped(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit left out, as far as the repeated pattern or what follows shows it."""
        edit = self.finding.change.edit
        if edit is not None and edit.edit.kind == "missing":
            return tuple(self.case.incident.kinds[i] for i in edit.calls)
        return self.finding.change.skipped

    @cached_property
    def added(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit made in addition, as far as what follows shows it."""
        edit = self.finding.change.edit
        if edit is not None and edit.edit.kind == "extra":
            return tuple(self.case.incident.kinds[i] for i in edit.calls)
        return self.finding.change.added

    @cached_property
    def edited(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit left out or made in addition, where what follows matches again behind them."""
        if self.finding.change.edit is None:
            return ()
        return self.added if self.inserted else self.skipped

    @property
    def inserted(self) -> bool:
        """Return whether what follows the culprit's odd calls shows that they were made in addition."""
        return self.finding.change.edit is not None and self.finding.change.edit.edit.kind == "extra"

    @cached_property
    def resumes(self) -> bool:
        """Return whether the culprit's next call is the one that the others wait in, and its odd call was never made before."""
        finding = self.finding
        if (
            finding.stuck.history is None
            or finding.stuck.seq is None
            or not finding.culprits
            or finding.own.seq != finding.stuck.seq
            or self.times_before(self.own)
        ):
            return False
        keys = finding.stuck.history.hard.get(finding.culprits[0])
        peer = finding.stuck.history.hard.get(finding.stuck.rank if finding.stuck.rank is not None else -1)
        index = finding.stuck.seq - finding.stuck.history.sequences.first
        return (
            keys is not None
            and peer is not None
            and index + 1 < len(keys)
            and index < len(peer)
            and int(keys[index + 1]) == int(peer[index])
        )

    def gradients(self, kinds: Sequence[CallKind]) -> bool:
        """Return whether all of these calls are gradient reductions (False for none)."""
        return bool(kinds) and all(is_gradient(k, self.case.frames_recorded) for k in kinds)

    @property
    def buffers(self) -> bool:
        """Return whether one of the two calls is DDP's broadcast of buffers."""
        return any(k is not None and is_buffer_sync(k) for k in (self.own, self.peer))
