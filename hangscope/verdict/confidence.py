"""How sure a verdict may be, and what was missing that would have made it surer.

Confidence starts from what the rule itself can establish and falls with everything that is missing or assumed.
"""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.incident import Absence
from hangscope.verdict.doubts import DOUBTS, LOW

#: What a rule says of itself whose facts leave other readings open.
USUAL = "the usual reading of this evidence"
_BY_STRENGTH = ("a guess: other causes fit as well", USUAL, "no other cause fits the evidence as well")


def confidence(case: Case, match: Match) -> tuple[int, list[str]]:
    """Return the level (2 high, 1 medium, 0 low) that a match has earned, and the reasons of each step."""
    level, reasons = match.strength, [_BY_STRENGTH[match.strength]]
    for asks in DOUBTS:
        doubt = asks(case, match) if level > LOW else None
        if doubt is not None and doubt[0] < level:
            level = doubt[0]
            reasons.append(doubt[1])
    dumps = case.finding.stuck.view is not None and any(r.dump_file for r in case.incident.ranks.values())
    kinds = sorted({*(item.kind for item in match.evidence), *(("dump",) if dumps else ())})
    if len(kinds) > 1:
        reasons.append(f"independent evidence agrees: {', '.join(kinds)}")
    return level, reasons


def missing_inputs(case: Case) -> list[str]:
    """Return what was not there, with the setting that brings it next time."""
    records, result = case.incident.ranks.values(), []
    for what, ranks in (
        ("no dump", [r.rank for r in records if r.dump_file is None]),
        ("only a stale dump", [r.rank for r in records if r.absence is Absence.STALE]),
        ("an unreadable dump", [r.rank for r in records if r.absence is Absence.UNREADABLE]),
    ):
        if what == "no dump" and len(ranks) == len(records):
            result.append(
                "no Flight Recorder dump: keep TORCH_FR_BUFFER_SIZE at 2000 or more, and with gloo call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread"
            )
        elif ranks:
            result.append(f"{what} of {ranks_phrase(ranks)}")
    if case.incident.momentary:
        result.append(
            "the dumps were written within a second of the last call, or show calls made since others before: take them again a minute later"
        )
    if not case.statements.whereabouts:
        result.append("no stacks: py-spy dump --pid PID on each rank, or faulthandler.dump_traceback_later")
    logged = any(r.events or set(r.files) - {r.dump_file} for r in records)
    if not logged and not case.statements.kinds:
        result.append("no logs: one file per rank (torchrun --log-dir DIR --tee 3)")
    return result
