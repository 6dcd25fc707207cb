"""The rules in the order in which they are asked; the first answer is the verdict, later ones are its alternatives."""

from __future__ import annotations

from hangscope.causes import (
    device,
    gradients,
    init,
    left_over,
    library_calls,
    loop_end,
    mismatch,
    order,
    pairs,
    participation,
    rooted,
)
from hangscope.causes.case import Case, Match, Rule
from hangscope.causes.ends import lateness, output, process, silence, unnamed
from hangscope.errors import Note

RULES: tuple[Rule, ...] = (
    process.ended_from_outside,
    init.different_models,
    gradients.unused_parameters,
    device.device_fault,
    process.died,
    init.never_formed,
    lateness.late,
    lateness.came_late,
    left_over.made_after_the_end,
    left_over.left_a_librarys_loop,
    process.left_quietly,
    pairs.unpaired,
    order.false_circle,
    order.crossed_groups,
    order.circular_wait,
    mismatch.wrong_dtype,
    library_calls.interrupted_elsewhere,
    library_calls.called_from_a_library,
    gradients.gradient_sets,
    output.last_output,
    loop_end.left_the_loop,
    mismatch.wrong_shape,
    participation.one_sided_call,
    mismatch.received_sizes,
    mismatch.received_types,
    mismatch.different_calls,
    silence.lost_by_peers,
    participation.busy_elsewhere,
    silence.vanished,
    silence.may_have_died,
    rooted.other_roots,
    device.network_fault,
    unnamed.fault_without_rank,
)


def match_all(case: Case, notes: list[Note]) -> list[Match]:
    """Return every rule's answer in order; a rule that fails becomes a note and the rest go on."""
    found = []
    for rule in RULES:
        try:
            match = rule(case)
        except Exception as error:
            notes.append(
                Note(
                    "rule_failed",
                    f"the rule {rule.__name__} failed: {type(error).__name__}: {error}",
                    hint="please report this",
                )
            )
            continue
        if match is not None:
            found.append(match)
    return found
