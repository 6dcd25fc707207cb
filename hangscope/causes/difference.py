"""How the culprit's collective differs from the one its peers wait in, and whether it was issued inside their loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import prod

from hangscope.align.matching import difference
from hangscope.causes.case import Case, who
from hangscope.explain.text.steps import Steps
from hangscope.knowledge import callsite
from hangscope.knowledge.callsite import user_frame, user_frames
from hangscope.model.incident import CallKind, Frame

_TIMES = 1024  # as many elements are of a tensor, and not of a flag or a loss
_UNKNOWN = CallKind("")
_LATEST = 64  # framed collectives in which the loop of the peers is looked for


class Difference:
    """Compares the culprit's collective with the pending one; both may be unknown."""

    def __init__(self, case: Case) -> None:
        self.case, self.finding = case, case.finding
        self.steps = Steps(case.incident, case.statements, case.finding)
        self.known = case.finding.own.kind is not None and case.finding.stuck.kind is not None
        self.own = case.finding.own.kind or _UNKNOWN
        self.peer = case.finding.stuck.kind or _UNKNOWN
        self.own_stack = case.stack_of(self.own, case.finding.culprits)
        self.peer_stack = case.stack_of(self.peer, case.finding.waiting)
        self.differs = difference(self.own, self.peer) if self.known else ""  # op, dtype, shape, root or ""
        self.own_gradient, self.peer_gradient = (self.gradients([kind]) for kind in (self.own, self.peer))

    @cached_property
    def whose(self) -> str:
        """Return who issued the culprit's collective, for a sentence: where nobody is named, those who issued the other one of the two."""
        return who(self.finding.culprits or self._issuers(self.own))

    @cached_property
    def others(self) -> str:
        """Return who issued the collective that they differ from."""
        return "the others" if self.finding.culprits else who(self._issuers(self.peer), "the others")

    def _issuers(self, kind: CallKind) -> list[int]:
        """Return the waiting ranks that issued an operation at the number of the pending collective."""
        view, seq = self.finding.stuck.view, self.finding.stuck.seq
        if view is None or seq is None or not kind.op or self.own.op == self.peer.op:
            return []
        found = {rank: view.kind_of(rank, seq) for rank in self.finding.waiting}
        return [rank for rank, one in found.items() if one is not None and one.op == kind.op]

    @cached_property
    def same_site(self) -> bool | None:
        """Return whether both collectives come from the same user lines; None where a side has no frames."""
        own, peer = user_frames(self.own.stack), user_frames(self.peer.stack)
        return own == peer if own and peer else None

    @cached_property
    def another_call(self) -> bool:
        """Return whether the two are issued at different places of the program, and are not one call with other arguments.

        So they are where their user lines differ, or where a library under one line of both goes two ways; where these part
        at torch's own function for a collective, the line itself chose it. Without lines, a few numbers are no tensor.
        """
        if self.finding.change.realigned:
            return True
        if self.same_site is None and self.differs == "shape":
            sizes = (self.own.input_sizes, self.peer.input_sizes)
            few, many = sorted(max(map(prod, tensors), default=0) for tensors in sizes)
            return 0 < few * _TIMES < many
        own, peer = callsite.first_difference(self.own.stack, self.peer.stack) or (None, None)
        if own is None or peer is None or any(f.file.endswith(callsite.COLLECTIVES) for f in (own, peer)):
            return self.same_site is False
        return self.same_site is False or (own.name, own.file) != (peer.name, peer.file)

    @cached_property
    def history(self) -> Sequence[CallKind]:
        """Return what a waiting rank issued before the divergence, oldest first."""
        return self.finding.stuck.before

    @cached_property
    def position(self) -> tuple[str, Frame] | None:
        """Return where the culprit's collective is relative to the loop of its peers (`position_to_loop`).

        Where theirs has no frames (autograd's thread has none), the latest framed collectives show their loop.
        """
        theirs, stacks = self.peer.stack, [kind.stack for kind in self.history if kind.stack]
        if not theirs:
            stacks = [stack for stack in stacks if stack != self.own.stack]
        peers = [theirs] if theirs else stacks[: -_LATEST - 1 : -1]
        found = (callsite.position_to_loop(self.own.stack, peer, stacks) for peer in peers)
        return next(filter(None, found), None)

    @property
    def inside(self) -> bool:
        """Return whether the culprit's collective is among the lines of the loop that its peers are in."""
        return self.position is not None and self.position[0] == "inside"

    @property
    def beyond(self) -> Frame | None:
        """Return where the culprit's collective is after the loop that its peers are in, None where it is not."""
        return self.position[1] if self.position is not None and self.position[0] == "beyond" else None

    @property
    def out_of_their_function(self) -> bool:
        """Return whether the culprit's collective is in a function that called the one in which its peers are."""
        stacks = (kind.stack for kind in (self.peer, *reversed(self.history)) if kind.stack)
        frames = (user_frame(next(stacks, ())), self.beyond)
        return len({(frame.file, frame.name) for frame in frames if frame is not None}) == 2

    def times_before(self, kind: CallKind) -> int:
        """Return how often the members issued this very collective, site included, before the divergence."""
        return sum(1 for k in self.history if k == kind)

    @cached_property
    def ends_epochs(self) -> bool:
        """Return whether everybody issues the culprit's collective when an epoch is over.

        Every collective between two of these was issued at least twice: between two of each step there is one that a
        step issues only once, or all come from one line, as those of a model's equal layers.
        """
        places = [i for i, kind in enumerate(self.history) if kind == self.own]
        if not places or places[-1] == len(self.history) - 1 or self.inside or self.stays_inside:
            return False  # one that all have just issued, once more: an extra one before shifted it
        counts = Counter(self.history[(places[-2] + 1 if len(places) > 1 else 0) : places[-1]])
        since = Counter(self.history[places[-1] + 1 :])
        if since == counts and not (self.peer.is_p2p or self.steps.behind):
            return False  # it issued as many as before the last one: the others have more
        line = user_frames(self.own.stack)
        other_lines = not line or any(user_frames(k.stack) != line for k in counts)
        return other_lines and min(counts.values(), default=0) > 1

    @cached_property
    def period(self) -> int:
        """Return how many collectives one step issues: the distance of the last two like the pending one (0: unknown)."""
        places = [i for i, kind in enumerate(self.history) if kind == self.peer][-2:]
        return places[1] - places[0] if len(places) == 2 else 0

    @cached_property
    def skipped_part_of_a_step(self) -> bool:
        """Return whether the culprit skipped fewer collectives than a step issues: then it skipped something inside."""
        return 0 < len(self.skipped) < self.period

    @property
    def too_soon(self) -> bool:
        """Return whether several whole steps lie before the culprit's collective by the pattern: it skipped none of them on its way."""
        return not self.finding.change.realigned and 0 < self.period < len(self.finding.change.skipped)

    @cached_property
    def stays_inside(self) -> bool:
        """Return whether the culprit went on inside the loop, or ran as many steps as its peers and skipped one of them."""
        return self.skipped_part_of_a_step or self.steps.mid_epoch or bool(self.steps.skips)

    @property
    def past_backward(self) -> bool:
        """Return whether the peers are in a collective of their own of a backward pass, no gradients' reduction, and the culprit somewhere else."""
        if self.peer_gradient:
            return False
        outside = bool(self.own_stack) and not callsite.within_backward(self.own_stack)
        return outside and callsite.within_backward(self.peer_stack)

    @property
    def skipped(self) -> tuple[CallKind, ...]:
        """Return the collectives that the culprit skipped, as far as the repeated pattern or what follows shows it."""
        return self.finding.change.skipped if not self.too_soon else ()

    @property
    def added(self) -> tuple[CallKind, ...]:
        """Return the extra collectives of the culprit, as far as what follows shows it."""
        return self.finding.change.added

    def gradients(self, kinds: Sequence[CallKind]) -> bool:
        """Return whether all of these collectives are gradient reductions (False for none)."""
        return bool(kinds) and all(callsite.is_gradient(k, self.case.frames_recorded) for k in kinds)
