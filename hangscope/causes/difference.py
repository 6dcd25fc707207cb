"""How the culprit's call differs from the one its peers wait in, and whether it was made inside the loop.

One object per case, shared by the rules about calls that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import prod

from hangscope.align.matching import difference
from hangscope.causes.case import Case
from hangscope.explain.text.steps import Steps
from hangscope.knowledge.callsite import is_gradient, position_to_loop, user_frame, user_frames
from hangscope.model.incident import CallKind, Frame, Stack

_NUMBERS = 8  # elements of a flag, a loss or a metric
_TENSORS = 1024  # times as many are of a tensor, which no ragged batch makes so small
UNKNOWN = CallKind("")
MET = 64  # calls of a group in which two lines are looked for that met before
_COLLECTIVES = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")


class Difference:
    """Compares the culprit's call with the waiting one; both may be unknown."""

    def __init__(self, case: Case) -> None:
        self.case, self.finding = case, case.finding
        self.steps = Steps(case.incident, case.statements, case.finding)
        self.known = case.finding.own.kind is not None and case.finding.stuck.kind is not None
        self.own = case.finding.own.kind or UNKNOWN
        self.peer = case.finding.stuck.kind or UNKNOWN
        self.own_stack = case.stack_of(self.own, case.finding.culprits)
        self.peer_stack = case.stack_of(self.peer, case.finding.waiting)
        self.differs = difference(self.own, self.peer) if self.known else ""  # op, dtype, shape, root or ""
        self.own_gradient, self.peer_gradient = (self.gradients([kind]) for kind in (self.own, self.peer))

    @cached_property
    def same_site(self) -> bool | None:
        """Return whether both calls come from the same user lines; None where a side has no frames."""
        own, peer = user_frames(self.own.stack), user_frames(self.peer.stack)
        return own == peer or self.met_before if own and peer else None

    @cached_property
    def met_before(self) -> bool:
        """Return whether calls from these two lines met before, as those of a source and its receivers do: they are one call."""
        view, seq, culprits = self.finding.stuck.view, self.finding.stuck.seq, self.finding.culprits
        waits = self.finding.stuck.rank
        if view is None or seq is None or waits is None or not culprits or self.differs != "shape":
            return False
        calls = [kind and (kind.op, kind.stack) for kind in (self.own, self.peer)]
        earlier = range(seq - 1, max(0, seq - MET), -1)
        met = ([view.kind_of(rank, before) for rank in (culprits[0], waits)] for before in earlier)
        return any([kind and (kind.op, kind.stack) for kind in pair] == calls for pair in met)

    @cached_property
    def another_call(self) -> bool:
        """Return whether the two calls are made at different places of the program, and not one call with other arguments.

        So they are where their user lines differ, or where a library under one line of both goes two ways; where these part
        at torch's own function for a collective, the line itself chose it. Without lines, a few numbers are no tensor.
        """
        if self.finding.change.realigned:
            return True
        if self.same_site is False or self.met_before:
            return self.same_site is False
        if self.same_site is None and self.differs == "shape":
            sides = (self.own.input_sizes, self.peer.input_sizes)
            few, many = sorted(max(map(prod, sizes), default=0) for sizes in sides)
            return 0 < few <= _NUMBERS and many > few * _TENSORS
        ways = zip(reversed(self.own.stack), reversed(self.peer.stack), strict=False)
        apart = next(((own, peer) for own, peer in ways if own != peer), None)
        if apart is None or any(frame.file.endswith(_COLLECTIVES) for frame in apart):
            return False
        return (apart[0].name, apart[0].file) != (apart[1].name, apart[1].file)

    @cached_property
    def history(self) -> Sequence[CallKind]:
        """Return what a waiting rank issued before the divergence, oldest first."""
        return self.finding.stuck.before

    @cached_property
    def position(self) -> tuple[str, Frame] | None:
        """Return where the culprit's call stands to the loop that its peers are in (`callsite.position_to_loop`)."""
        return self._place(self.own.stack, self.peer.stack)

    def _place(self, stack: Stack, theirs: Stack) -> tuple[str, Frame] | None:
        """Return where a stack stands to the loop of another: without frames (autograd's thread) that of the last framed calls."""
        stacks = [kind.stack for kind in self.history if kind.stack and (theirs or kind.stack != stack)]
        references = [theirs] if theirs else stacks[: -MET - 1 : -1]
        found = (position_to_loop(stack, reference, stacks) for reference in references)
        return next(filter(None, found), None)

    @property
    def inside(self) -> bool:
        """Return whether the culprit's call stands among the lines of the loop that its peers are in."""
        return self.position is not None and self.position[0] == "inside"

    @property
    def beyond(self) -> Frame | None:
        """Return where the culprit's call stands behind the loop that its peers are in, None where it does not."""
        return self.position[1] if self.position is not None and self.position[0] == "beyond" else None

    @property
    def out_of_their_function(self) -> bool:
        """Return whether the culprit's call stands in a function that called the one in which its peers are."""
        stacks = (kind.stack for kind in (self.peer, *reversed(self.history)) if kind.stack)
        frames = (user_frame(next(stacks, ())), self.beyond)
        return len({(frame.file, frame.name) for frame in frames if frame is not None}) == 2

    def times_before(self, kind: CallKind) -> int:
        """Return how often the members made this very call, site included, before the divergence."""
        return sum(1 for k in self.history if k == kind)

    @cached_property
    def ends_epochs(self) -> bool:
        """Return whether the culprit's call is one that everybody makes when an epoch is over."""
        if self.inside or self.stays_inside or self.history[-1:] == (self.own,):
            return False  # the call that all have just made, once more: one too many before shifted it
        return self._made_per_epoch(self.own)

    @property
    def peer_ends_epochs(self) -> bool:
        """Return whether the others wait in a call that everybody makes when an epoch is over."""
        return self._made_per_epoch(self.peer)

    def _made_per_epoch(self, kind: CallKind | None) -> bool:
        """Return whether a call ended each round of a loop before: every call between two of it was made at least twice.

        Between two calls of one step's own there is always one that a step makes only once, or all come from one line: those of
        a model's like layers.
        """
        places = [i for i, k in enumerate(self.history) if k == kind]
        if kind is None or not places:
            return False
        counts = Counter(self.history[(places[-2] + 1 if len(places) > 1 else 0) : places[-1]])
        line = user_frames(kind.stack)
        apart = not line or any(user_frames(k.stack) != line for k in counts)
        return apart and bool(counts) and min(counts.values()) > 1

    @cached_property
    def period(self) -> int:
        """Return how many calls one step of the loop makes: the distance between the last two calls like the waiting one (0: unknown)."""
        places = [i for i, kind in enumerate(self.history) if kind == self.peer][-2:]
        return places[1] - places[0] if len(places) == 2 else 0

    @cached_property
    def skipped_part_of_a_step(self) -> bool:
        """Return whether the culprit left out fewer calls than a step makes: then it skipped something inside."""
        return 0 < len(self.skipped) < self.period

    @property
    def too_soon(self) -> bool:
        """Return whether several whole steps lie before the culprit's call by the pattern: it left out none of them on its way."""
        return not self.finding.change.realigned and 0 < self.period < len(self.finding.change.skipped)

    @cached_property
    def stays_inside(self) -> bool:
        """Return whether the culprit went on inside the loop, or ran as many steps as its peers and skipped one of them."""
        steps = self.steps
        return self.skipped_part_of_a_step or steps.mid_epoch or bool(steps.skips)

    @cached_property
    def of_the_loop(self) -> bool:
        """Return whether the culprit's call stands in the loop, or is one of its own: made about as often as the one the others wait in."""
        own, peer = self.times_before(self.own), self.times_before(self.peer)
        return self.inside or (own >= 1 and own * 2 > peer)

    @property
    def skipped(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit left out, as far as the repeated pattern or what follows shows it."""
        return self.finding.change.skipped if not self.too_soon else ()

    @property
    def added(self) -> tuple[CallKind, ...]:
        """Return the calls that the culprit made in addition, as far as what follows shows it."""
        return self.finding.change.added

    def gradients(self, kinds: Sequence[CallKind]) -> bool:
        """Return whether all of these calls are gradient reductions (False for none)."""
        return bool(kinds) and all(is_gradient(k, self.case.frames_recorded) for k in kinds)
