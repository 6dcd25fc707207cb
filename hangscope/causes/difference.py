"""How the culprit's call differs from the one its peers wait in, and whether it was made inside the loop.

One object per case, shared by the rules of `mismatch.py` and `participation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from hangscope.align.callsite import is_buffer_sync, is_gradient, position_to_loop, user_frames
from hangscope.align.matching import difference
from hangscope.causes.case import Case
from hangscope.incident import CallKind, Event, Frame

# Functions that are called on one rank only, as a rule: the name of the helper around the odd call.
_SIDE_WORK = re.compile(r"save|checkpoint|ckpt|log|report|metric|print|dump|debug|summary|plot|best|upload|write|record|monitor", re.IGNORECASE)
_RANK_TEST = re.compile(r"\b(?:if|unless|while|and|or)\b[^#]*\b(?:\w*rank\w*|is_main\w*|is_master\w*|main_process\w*|R)\b", re.IGNORECASE)


class Difference:
    """Compares the culprit's call with the waiting one; both may be unknown."""

    def __init__(self, case: Case) -> None:
        self.case, self.finding = case, case.finding
        self.own: CallKind | None = case.finding.own_kind
        self.peer: CallKind | None = case.finding.waiting_kind

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
        if not own or not peer:
            return True if not own and not peer and not self.case.frames_recorded else None
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
    def history(self) -> list[CallKind]:
        """Return what the members called before the divergence, oldest first, of the first waiting member."""
        finding = self.finding
        if finding.before:
            return finding.before
        if finding.history is None or finding.seq is None or finding.waiting_rank is None:
            return []
        until = min(finding.seq, finding.own_seq or finding.seq)
        return finding.history.stacks_before(finding.waiting_rank, until)

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
        """Return whether the culprit's call is one that everybody makes now and then, when a loop is over."""
        own, peer = self.times_before(self.own), self.times_before(self.peer)
        return own >= 1 and own * 2 <= peer and bool(self.position is None or self.position[0] != "inside" or own * 4 <= peer)

    @cached_property
    def in_loop_before(self) -> bool:
        """Return whether the culprit's call is one of the loop's own, made about as often as the one the others wait in."""
        own, peer = self.times_before(self.own), self.times_before(self.peer)
        return own >= 1 and own * 2 > peer

    @cached_property
    def side_work(self) -> str | None:
        """Return the helper function around the odd call whose name says that one rank alone does such work."""
        if self.own is None or self.position is None:
            return None
        shared = self.position[1]
        for frame in user_frames(self.own.stack):
            if (frame.name, frame.file) == (shared.name, shared.file):
                return None
            if _SIDE_WORK.search(frame.name):
                return frame.name
        return None

    def rank_test(self, ranks: Sequence[int]) -> Event | None:
        """Return the traceback whose quoted source line tests for a rank, on either side."""
        for rank in (*ranks, *self.finding.waiting[:8]):
            for event in self.case.facts.of(rank, "exception"):
                if _RANK_TEST.search(str(event.fields.get("code") or "")):
                    return event
        return None

    def loop_over(self, ranks: Sequence[int]) -> Event | None:
        """Return a culprit's last output where it says that its loop is over and most waiting ranks' last output does not."""
        for rank in ranks:
            last = self._last_progress(rank)
            if last is not None and last.fields.get("done"):
                others = [e for r in self.finding.waiting if (e := self._last_progress(r)) is not None and e.fields.get("done")]
                if len(others) * 2 <= len(self.finding.waiting):
                    return last
        return None

    def _last_progress(self, rank: int) -> Event | None:
        events = self.case.facts.of(rank, "progress")
        return max(events, key=lambda e: (e.file, e.line)) if events else None

    @cached_property
    def skipped(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit left out, as far as the repeated pattern or what follows shows it."""
        edit = self.finding.edit
        if edit is not None and edit.edit.kind == "missing":
            return tuple(self.case.incident.kinds[i] for i in edit.calls)
        return self.finding.skipped

    @cached_property
    def added(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit made in addition, as far as what follows shows it."""
        edit = self.finding.edit
        if edit is not None and edit.edit.kind == "extra":
            return tuple(self.case.incident.kinds[i] for i in edit.calls)
        return self.finding.added

    def gradients(self, kinds: Sequence[CallKind]) -> bool:
        """Return whether all of these calls are gradient reductions (False for none)."""
        return bool(kinds) and all(is_gradient(k, self.case.frames_recorded) for k in kinds)

    @property
    def buffers(self) -> bool:
        """Return whether one of the two calls is DDP's broadcast of buffers."""
        return any(k is not None and is_buffer_sync(k) for k in (self.own, self.peer))
