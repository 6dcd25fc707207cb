"""The rules in the order in which they are asked; the first answer is the verdict, later ones are its alternatives."""

from __future__ import annotations

from hangscope.causes import (
    device,
    gradients,
    init,
    known,
    left_over,
    loops,
    mismatch,
    order,
    pairs,
    participation,
)
from hangscope.causes.case import Case, Match, Rule
from hangscope.causes.ends import process, silence, unnamed
from hangscope.errors import Note

RULES: tuple[Rule, ...] = (
    process.ended_from_outside,
    known.known_defect,
    gradients.different_models,
    gradients.unused_parameters,
    device.device_fault,
    process.died,
    init.never_formed,
    left_over.came_late,
    left_over.arrived_late,
    left_over.made_after_the_end,
    process.left_quietly,
    pairs.unpaired,
    pairs.both_send,
    order.false_circle,
    order.crossed_groups,
    order.circular_wait,
    loops.called_from_a_library,
    gradients.gradient_sets,
    loops.left_the_loop,
    mismatch.other_arguments,
    participation.one_sided_call,
    mismatch.received_sizes,
    mismatch.different_calls,
    mismatch.refused,
    mismatch.unequal_splits,
    known.host_thread_stuck,
    participation.busy_elsewhere,
    silence.vanished,
    silence.may_have_died,
    mismatch.other_roots,
    known.known_message,
    unnamed.fault_without_rank,
    device.network_fault,
    unnamed.end_without_rank,
)


def match_all(case: Case, notes: list[Note]) -> list[Match]:
    """Return every rule's answer in order; a rule that fails becomes a note, and the others are asked all the same."""
    found = []
    for rule in RULES:
        try:
            found.append(rule(case))
        except Exception as error:
            why = f"the rule {rule.__name__} failed: {type(error).__name__}: {error}"
            notes.append(Note("rule_failed", why, hint="please report this"))
    return [match for match in found if match is not None]
