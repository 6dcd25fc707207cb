"""What stands for a verdict, against it and beside it: evidence, alternatives, candidates that were set aside."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.corroboration import corroboration
from hangscope.causes.mismatch import describe
from hangscope.conclusion import Alternative, Evidence, Source
from hangscope.explain.finding import Finding
from hangscope.incident import CallKind
from hangscope.knowledge.callsite import user_frame


def collect(case: Case, match: Match, missing: list[str]) -> list[Evidence]:
    """Return the evidence for a match, against it, and what is missing, without repeats."""
    finding, incident = case.finding, case.incident
    result: list[Evidence] = []
    view, seq = finding.stuck.view, finding.stuck.seq
    if view is not None and seq is not None and finding.stuck.pair is None:
        for ranks, kind in _sides(finding):
            frame = user_frame(kind.stack) if kind else None
            at = f" at {frame}" if frame else ""
            result.append(
                case.recorded(ranks[0], f"{ranks_phrase(ranks)}: {describe(kind)} at seq {seq}{at}")
            )
        absent = [
            r
            for r in finding.culprits
            if r in view.members
            and (view.members[r].enqueued or 0) < seq
            and view.members[r].enqueued is not None
        ]
        for rank in absent[:4]:
            member = view.members[rank]
            told = member.queue.tells_completion
            done = view.completed(rank) or 0
            completed = (
                "its log tells no completions"
                if not told
                else "its completion not recorded"
                if member.unknown and done < (member.enqueued or 0)
                else f"last completed {done}"
            )
            text = (
                f"rank {rank}: last enqueued seq {member.enqueued}, {completed} on group {view.group.label}"
            )
            result.append(case.recorded(rank, text))
    if (change := finding.change.edit) is not None:
        count, more = change.edit.length, "more" if change.edit.kind == "extra" else "less"
        calls = f"{count} call{'s' if count > 1 else ''} {more} {'at' if change.calls else 'before'} seq {change.seq}"
        text = f"{ranks_phrase(change.ranks)} made {calls}; {change.edit.confirmed} calls behind match again, shifted by {count}"
        result.append(Evidence("dump", text, change.ranks[0]))
    result += match.evidence
    result += [quote(event) for event in finding.events[:8]]
    result += corroboration(case, match)
    for rank in finding.culprits:
        same = incident.ranks[rank].unchanged_snapshots if rank in incident.ranks else 0
        if same:
            result.append(Evidence("dump", f"rank {rank}'s frontier is the same in {same + 1} dumps", rank))
    result += _against(case, match)
    result += [Evidence("method", text, stance="missing") for text in missing]
    seen: set[tuple[str, int | None]] = set()
    unique = []
    for item in result:
        if (item.text, item.rank) not in seen:
            seen.add((item.text, item.rank))
            unique.append(item)
    return unique[:40]


def _sides(finding: Finding) -> list[tuple[tuple[int, ...], CallKind | None]]:
    view, seq = finding.stuck.view, finding.stuck.seq
    assert view is not None and seq is not None
    sides: dict[CallKind | None, list[int]] = {}
    for rank in view.seen:
        kind = view.kind_of(rank, seq)
        if kind is not None or (view.members[rank].enqueued or 0) >= seq:
            sides.setdefault(kind, []).append(rank)
    return [
        (tuple(ranks), kind) for kind, ranks in sorted(sides.items(), key=lambda kv: (-len(kv[1]), kv[1]))
    ][:6]


def _against(case: Case, match: Match) -> list[Evidence]:
    """Return what speaks against the verdict: other deaths, the launcher's own root cause, ranks not explained."""
    result = []
    for rank, event in sorted(case.statements.exits.items()):
        if event.first and match.culprits and rank not in match.culprits:
            result.append(
                Evidence(
                    "exit",
                    f"the launcher names rank {rank} as its first observed failure; it names whom it polled first",
                    rank,
                    Source(event.file, event.line),
                    stance="against",
                )
            )
    for death in case.statements.deaths:
        if death.rank not in match.culprits:
            result.append(
                Evidence(
                    "log",
                    f"rank {death.rank} {death.how} as well, later or as a consequence: {death.event.text}",
                    death.rank,
                    Source(death.event.file, death.event.line),
                    stance="against",
                )
            )
    return result[:6]


def alternatives(match: Match, others: Sequence[Match], case: Case) -> list[Alternative]:
    """Return at most three other causes that the evidence allows, each with why."""
    result = [Alternative(cause, why) for cause, why in match.rivals if cause != match.cause]
    for other in others:
        if other.cause == "collective_mismatch" and (
            match.strength == 2 or match.cause == "collective_order_mismatch"
        ):
            continue  # what a finer cause explains for certain is a mismatch by definition, and no rival of it
        if other.cause != match.cause and all(a.cause != other.cause for a in result):
            result.append(Alternative(other.cause, other.why))
    rivals = {
        "uneven_loader": (
            "rank_conditional_collective",
            "an extra call in the last lines of the loop would leave the same record",
        ),
        "rank_conditional_collective": (
            "uneven_loader",
            "a rank that left the loop early makes the call behind it first",
        ),
        "crashed_rank": ("early_exit", "a process that ends without a trace may also have returned early"),
        "early_exit": ("crashed_rank", "without its exit code, a killed process looks the same"),
        "gradient_sync_mismatch": (
            "rank_conditional_collective",
            "a step that one rank skipped leaves out its gradient reductions, too",
        ),
        "collective_order_mismatch": (
            "stuck_rank",
            "a host that is busy elsewhere while its last call is pending makes a circle that looks the same",
        ),
        "stuck_rank": ("slow_rank", "one snapshot cannot tell blocked from slow"),
    }
    rival = rivals.get(match.cause)
    if (
        rival is not None
        and not match.rivals
        and match.strength < 2
        and all(a.cause != rival[0] for a in result)
    ):
        result.insert(0, Alternative(*rival))
    return result[:3]
