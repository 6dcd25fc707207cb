"""The rules in the order in which they are asked; the first answer is the verdict, later ones are its alternatives."""

from __future__ import annotations

from types import UnionType

from hangscope.causes import (
    agreement,
    device,
    init,
    late,
    loops,
    mismatch,
    order,
    pairs,
    participation,
    programs,
)
from hangscope.causes.case import Case, Match, Rule
from hangscope.causes.ends import process, silence, unnamed
from hangscope.errors import Note
from hangscope.explain import finding

#: Each with the kinds of findings of which it is asked.
RULES: tuple[tuple[type[finding.Finding] | UnionType, Rule], ...] = (
    (finding.Finding, process.ended_from_outside),
    (finding.Finding, unnamed.known_defect),
    (finding.Finding, programs.different_models),
    (finding.Finding, programs.unused_parameters),
    (finding.Finding, device.device_fault),
    (finding.Finding, process.died),
    (finding.Finding, init.never_formed),
    (finding.Finding, late.came_late),
    (finding.Finding, late.outlasted_the_timeout),
    (finding.Finding, late.arrived_late),
    (finding.Finding, late.takes_longer),
    (finding.Unseen | finding.Nothing, late.made_after_the_end),
    (finding.Unseen | finding.Nothing | finding.Different, loops.unequal_loops),
    (finding.Finding, programs.stands_behind_a_guard),
    (finding.Finding, process.left_quietly),
    (finding.Absent, process.ends_its_groups),
    (finding.OtherMembers, agreement.other_members),
    (finding.OtherRoot, agreement.other_root),
    (finding.Miscounted, pairs.miscounted),
    (finding.Unpaired | finding.Nothing, pairs.both_send),
    (finding.Unpaired, pairs.unpaired),
    (finding.Finding, order.false_circle),
    (finding.Different, order.crossed_groups),
    (finding.Circular, order.circular_wait),
    (finding.Different, mismatch.swapped_calls),
    (finding.Different, programs.called_from_a_library),
    (finding.Different, programs.gradient_sets),
    (finding.Finding, loops.left_the_loop),
    (finding.Different, mismatch.other_arguments),
    (finding.Different, mismatch.other_number),
    (finding.Finding, programs.called_behind_a_guard),
    (finding.Different | finding.Extra, participation.one_sided_call),
    (finding.Finding, mismatch.received_sizes),
    (finding.Different | finding.Unseen, participation.by_its_words),
    (finding.Different, mismatch.different_calls),
    (finding.Stalled, mismatch.refused),
    (finding.Stalled, mismatch.unequal_splits),
    (finding.Absent | finding.Unseen, unnamed.known_culprit),
    (finding.Absent, silence.lost_by_peers),
    (finding.Absent, pairs.left_by_one),
    (finding.Absent | finding.Unseen, late.at_work),
    (finding.Absent, pairs.unanswered),
    (finding.Absent, participation.busy_elsewhere),
    (finding.Unseen, silence.vanished),
    (finding.Absent, silence.may_have_died),
    (finding.Stalled | finding.Nothing, order.two_threads),
    (finding.Nothing, order.each_in_another_group),
    (finding.Stalled | finding.Nothing, agreement.other_roots),
    (finding.Nothing, participation.each_alone),
    (finding.Nothing | finding.Unseen, unnamed.gone_by_a_list),
    (finding.Finding, unnamed.known_message),
    (finding.Finding, process.ended_for_no_known_reason),
    (finding.Finding, unnamed.fault_without_rank),
    (finding.Stalled | finding.Lagging | finding.Nothing | finding.Circular, device.network_fault),
    (finding.Nothing | finding.Unseen | finding.Absent, device.unanswered),
    (finding.Stalled | finding.Nothing, device.helped_by_a_setting),
    (finding.Finding, unnamed.end_without_rank),
    (finding.Finding, unnamed.known_notice),
)


def match_all(case: Case, notes: list[Note]) -> list[Match]:
    """Return every rule's answer in order; a rule that fails becomes a note, and the others are asked all the same."""
    found = []
    for kinds, rule in RULES:
        try:
            found.append(rule(case) if isinstance(case.finding, kinds) else None)
        except Exception as error:
            why = f"the rule {rule.__name__} failed: {type(error).__name__}: {error}"
            notes.append(Note("rule_failed", why, hint="please report this"))
    return [match for match in found if match is not None]
