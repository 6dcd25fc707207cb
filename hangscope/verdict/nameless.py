"""Verdicts that name neither a cause nor a rank: what is known of the stop all the same."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.rankset import compress
from hangscope.causes.case import Case
from hangscope.conclusion import Evidence, Source, Verdict
from hangscope.explain.text.stop import Stop
from hangscope.incident import Event, Group
from hangscope.verdict.references import call_ref, fingerprint


def unknown(case: Case, missing: list[str]) -> Verdict:
    """Return the verdict on what does not tell whether a job stopped: open calls of which nothing says that they stay open, or none."""
    finding = case.finding
    kind = finding.stuck.kind
    return Verdict(
        cause="unknown",
        confidence="low",
        culprit_ranks=(),
        category="unknown",
        summary=f"Ranks {compress(case.graph.waiting)} have open calls, and what was left behind does not say why."
        if case.graph.waiting
        else "What was left behind does not tell whether the job stopped, or where.",
        group=finding.stuck.view.group if finding.stuck.view is not None else None,
        op=(kind.op or None) if kind is not None else None,
        seq=finding.stuck.seq,
        waiting_ranks=tuple(case.graph.waiting),
        waiting_call=call_ref(kind, finding.stuck.seq),
        evidence=[Evidence("method", text, stance="missing") for text in missing],
        advice=missing[:3],
        fingerprint=fingerprint("unknown", kind, None, finding),
    )


def stopped(case: Case, stop: Stop, missing: list[str]) -> Verdict:
    """Return the verdict on a stop of which nothing tells the cause: who waited, in which call, since when."""
    open_calls = unknown(case, missing)
    kind = stop.call or case.finding.stuck.kind
    seq = stop.seq if stop.seq is not None else case.finding.stuck.seq
    waiting = tuple(stop.ranks or case.graph.waiting)
    evidence = [_quoted(event) for event in stop.events]
    return replace(
        open_calls,
        summary=f"The job stopped: {stop.told()}; what was left does not say for whom.",
        group=_printed_group(case, stop),
        op=(kind.op or None) if kind is not None else None,
        seq=seq,
        waiting_ranks=waiting,
        in_call=waiting if stop.call is not None else (),
        waiting_call=call_ref(kind, seq),
        evidence=[*evidence, *open_calls.evidence],
        advice=[
            "The lines of the ranks that are not in this text would name the culprit: the one whose last enqueued call is behind, or whose process ended.",
            *missing,
        ][:3],
        fingerprint=fingerprint("unknown", kind, None, case.finding),
        deciding=(0,) if evidence else (),
        since=_ns(stop.since),
        until=_ns(stop.until),
    )


def _quoted(event: Event) -> Evidence:
    return Evidence("log", event.text, event.rank, Source(event.file, event.line))


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000_000)


def _printed_group(case: Case, stop: Stop) -> Group | None:
    """Return the group that the lines of a stop name: the incident's own where it is known, else one of unknown members."""
    name, desc = stop.group
    if not name:
        return None
    known = next((g for g in case.incident.groups if name == g.name and desc in ("", g.desc)), None)
    return known or Group(-1, name, desc, stop.ranks, members_known=False)
