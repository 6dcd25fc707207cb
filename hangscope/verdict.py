"""From findings and rules to one verdict: who, what, why, how sure, and what speaks against it.

Confidence is earned: it starts from what the rule itself can establish and falls with everything that is missing or
assumed. The reasons of each step are kept for the report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from hangscope.align.callsite import user_frame
from hangscope.align.finding import Candidate, Finding
from hangscope.align.rankset import compress, ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.catalog import CATALOG
from hangscope.causes.corroboration import corroboration
from hangscope.causes.mismatch import describe
from hangscope.causes.rules import match_all
from hangscope.incident import Absence, Alternative, CallKind, CallRef, Evidence, Incident, Location, Source, Verdict

LEVELS = ("low", "medium", "high")


@dataclass(slots=True)
class Judgement:
    """A verdict with the status of the job and what the report says around it."""

    status: str
    verdict: Verdict | None
    reasons: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)


def judge(case: Case) -> Judgement:
    """Return the verdict on a case and the status of its job."""
    missing = _missing(case)
    matches = match_all(case, case.incident.notes)
    if not matches:
        status = _status_without_verdict(case)
        if status == "no_hang":
            return Judgement(status, None, missing=[])
        return Judgement(status, _unknown(case, missing) if case.graph.waiting else None, missing=missing, candidates=case.finding.candidates)
    best = matches[0]
    level, reasons = _confidence(case, best)
    verdict = _verdict(case, best, matches[1:], LEVELS[level], missing)
    if best.cause == "slow_rank" and not case.graph.waiting and case.finding.form != "late":
        return Judgement("no_hang", verdict, reasons, missing, _candidates(case, best))
    named = verdict.cause != "unknown" or verdict.culprit_ranks
    return Judgement("hang" if named else "inconclusive", verdict, reasons, missing, _candidates(case, best))


def _status_without_verdict(case: Case) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident, facts = case.incident, case.facts
    trouble = facts.all(
        "exception", "exit", "gloo_timeout", "gloo_closed", "watchdog_timeout", "terminate", "fingerprint", "monitored_barrier", "store_timeout",
        "nccl_warn", "external_end", "heartbeat_timeout", "desync", "async_error",
    )
    trouble = [e for e in trouble if not (e.kind == "exit" and e.fields.get("code") == 0)]
    if trouble or case.graph.waiting:
        return "inconclusive"
    ranks = incident.ranks.values()
    # Under DETAIL the call that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    all_seen = not blind and bool(incident.ranks) and all(r.seen and r.dump_file for r in ranks)
    all_exited = bool(incident.ranks) and all(r.rank in facts.left_quietly for r in ranks)
    return "no_hang" if (all_seen and _equal_frontiers(case)) or all_exited else "inconclusive"


def _equal_frontiers(case: Case) -> bool:
    """Return whether all members of every group stand at the same seq, with calls made at all."""
    made = False
    for group in case.incident.groups:
        ends = set()
        for rank in group.ranks:
            queue = case.incident.ranks[rank].queues.get(group.gid) if rank in case.incident.ranks else None
            ends.add(max(int(queue.seq.max()) if queue is not None and len(queue) else 0, (queue.frontier.enqueued or 0) if queue is not None else 0))
        made = made or bool(ends - {0})
        if len(ends) > 1 and not any(r in case.incident.ranks and group.gid in case.incident.ranks[r].p2p for r in group.ranks):
            return False
    return made


def _confidence(case: Case, match: Match) -> tuple[int, list[str]]:
    finding, incident = case.finding, case.incident
    level = match.sure
    reasons = [("nothing else fits the evidence", "the usual reading of this evidence", "a guess: other causes fit as well")[2 - match.sure]]

    def lower(to: int, why: str) -> None:
        nonlocal level
        if level > to:
            level = to
            reasons.append(why)

    if finding.tie and not match.culprits:
        lower(1, "the sides are even and history does not tell which is wrong")
    if finding.form not in ("none",) and match.cause not in ("crashed_rank", "early_exit", "model_mismatch", "init_hang"):
        if finding.waiting and finding.explained * 10 < len(finding.waiting) * 9:
            lower(1, f"it explains only {finding.explained} of {len(finding.waiting)} waiting ranks")
        if finding.guess:
            lower(0, "it rests on what the ranks printed last, or on counts of one moment")
        doubtful = sorted({r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks} - set(match.culprits))
        if doubtful and finding.form != "different":
            lower(1, f"calls also lack {ranks_phrase(doubtful)}, of which no usable dump was seen")
        if finding.assumed:
            lower(1, "it rests on an assumption about who waits for whom, or about which group a log line means")
        if finding.view is not None and not finding.view.group.members_known and finding.form in ("absent", "unseen"):
            lower(1 if not match.frame else 2, "the members of the group are not recorded, so that nobody can be called absent for certain")
        if finding.view is not None:
            others = [r for r in finding.view.unseen if r not in match.culprits]
            if others and finding.form in ("absent", "different", "shifted", "half") and len(others) * 2 >= len(finding.view.members):
                lower(1, f"half of the group's members were not seen ({ranks_phrase(others)})")
    if case.from_text and not case.solid and match.cause not in ("crashed_rank", "early_exit", "model_mismatch", "init_hang"):
        lower(1, "there is no record of the calls: it rests on lines of text")
    silent = [r for r, record in incident.ranks.items() if not record.files and not record.events]
    if case.from_text and len(silent) * 2 > len(incident.ranks):
        lower(1, f"most ranks left no text ({len(silent)} of {len(incident.ranks)})")
    kinds = sorted({e.kind for e in match.evidence} | ({"dump"} if finding.view is not None and any(r.dump_file for r in incident.ranks.values()) else set()))
    if len(kinds) > 1:
        reasons.append(f"independent evidence agrees: {', '.join(kinds)}")
    return level, reasons


def _verdict(case: Case, match: Match, others: Sequence[Match], confidence: str, missing: list[str]) -> Verdict:
    finding = case.finding
    entry = CATALOG[match.cause]
    culprits = tuple(sorted(set(match.culprits)))
    waiting = tuple(r for r in (case.graph.waiting or finding.waiting or _stuck_in_text(case)) if r not in culprits)
    explained = finding.explained if set(culprits) == set(finding.culprits) else sum(1 for r in waiting)
    frame = match.frame or user_frame(finding.own_kind.stack if finding.own_kind else ())
    frame_rank = match.frame_rank if match.frame is not None else (culprits[0] if culprits else None)
    location = Location(frame.file, frame.line, frame.name, frame_rank) if frame is not None else None
    kind = finding.waiting_kind
    view = finding.view
    verdict = Verdict(
        cause=match.cause,
        confidence=confidence,
        culprit_ranks=culprits,
        category=match.category or entry.category,
        summary=_summary(case, match, culprits, waiting),
        group=view.group if view is not None else None,
        op=kind.op or None if kind is not None else None,
        seq=finding.seq,
        is_p2p=finding.pair is not None,
        waiting_ranks=waiting,
        explained=min(explained, len(waiting)),
        culprit_call=_ref(finding.own_kind, finding.own_seq),
        waiting_call=_ref(kind, finding.seq),
        location=location,
        evidence=_evidence(case, match, missing),
        advice=match.advice[:3],
        alternatives=_alternatives(match, others, case),
        fingerprint=_fingerprint(match.cause, kind, location, finding),
    )
    return verdict


def _stuck_in_text(case: Case) -> tuple[int, ...]:
    """Return the ranks that text shows waiting: they timed out or lost a peer, or sat in a monitored barrier."""
    barrier = {e.rank for e in case.facts.all("monitored_barrier") if e.rank is not None}
    return tuple(sorted(case.facts.witnesses | barrier))


def _ref(kind: CallKind | None, seq: int | None) -> CallRef | None:
    if kind is None:
        return None
    return CallRef(kind.op, seq, kind.stack, kind.input_sizes or kind.output_sizes, kind.input_dtypes or kind.output_dtypes)


def _summary(case: Case, match: Match, culprits: tuple[int, ...], waiting: tuple[int, ...]) -> str:
    finding = case.finding
    host = case.incident.ranks[culprits[0]].host if culprits and culprits[0] in case.incident.ranks else None
    on = f" (host {host})" if host and len(culprits) == 1 else ""
    why = match.why
    phrase = ranks_phrase(culprits) if culprits else ""
    if on and why.startswith(phrase):
        why = phrase + on + why[len(phrase) :]
    sentence = why[:1].upper() + why[1:]
    where = f" at {finding.waiting_kind.op}" if finding.waiting_kind is not None and finding.waiting_kind.op else ""
    seq = f" seq {finding.seq}" if finding.seq is not None else ""
    group = f" on group {finding.view.group.label}" if finding.view is not None else ""
    if waiting and (where or seq):
        verb = "waits" if len(waiting) == 1 else "wait"
        sentence += f"; {ranks_phrase(waiting)} {verb}{where}{seq}{group}"
    return sentence + "."


def _evidence(case: Case, match: Match, missing: list[str]) -> list[Evidence]:
    finding, incident = case.finding, case.incident
    result: list[Evidence] = []
    view, seq = finding.view, finding.seq
    if view is not None and seq is not None and finding.pair is None:
        for ranks, kind in _sides(finding):
            frame = user_frame(kind.stack) if kind else None
            source = incident.ranks[ranks[0]].calls_file if ranks[0] in incident.ranks else None
            at = f" at {frame.file}:{frame.line} in {frame.name}" if frame else ", no frame recorded" if kind is not None and case.frames_recorded else ""
            result.append(Evidence(incident.ranks[ranks[0]].recorder, f"{ranks_phrase(ranks)}: {describe(kind)} at seq {seq}{at}", ranks[0], Source(source) if source else None))
        absent = [r for r in finding.culprits if r in view.members and (view.members[r].enqueued or 0) < seq and view.members[r].enqueued is not None]
        for rank in absent[:4]:
            member = view.members[rank]
            told = member.queue is None or member.queue.tells_completion
            done = max(member.completed or 0, min(view.proven, member.enqueued or 0))
            completed = "its log tells no completions" if not told else "its last call's end not recorded" if member.unknown and done < (member.enqueued or 0) else f"last completed {done}"
            result.append(Evidence(incident.ranks[rank].recorder, f"rank {rank}: last enqueued seq {member.enqueued}, {completed} on group {view.group.label}", rank, Source(incident.ranks[rank].calls_file or "")))
    if finding.edit is not None:
        edit = finding.edit
        result.append(Evidence("dump", f"{ranks_phrase(edit.ranks)} {'made' if edit.edit.kind == 'extra' else 'left out'} {edit.edit.length} call(s) at seq {edit.seq}; the {edit.edit.confirmed} calls behind match again, shifted by {edit.edit.length}", edit.ranks[0]))
    result += match.evidence
    result += [quote(event) for event in finding.events[:8]]
    result += corroboration(case, match)
    for rank in finding.culprits:
        if rank in incident.ranks and incident.ranks[rank].unchanged_snapshots and len({f for f in incident.ranks[rank].files}) > 1:
            result.append(Evidence("dump", f"rank {rank}'s frontier is the same in {incident.ranks[rank].unchanged_snapshots + 1} dumps", rank))
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
    view, seq = finding.view, finding.seq
    assert view is not None and seq is not None
    sides: dict[CallKind | None, list[int]] = {}
    for rank in view.seen:
        kind = view.kind_of(rank, seq)
        if kind is not None or (view.members[rank].enqueued or 0) >= seq:
            sides.setdefault(kind, []).append(rank)
    return [(tuple(ranks), kind) for kind, ranks in sorted(sides.items(), key=lambda kv: (-len(kv[1]), kv[1]))][:6]


def _against(case: Case, match: Match) -> list[Evidence]:
    """Return what speaks against the verdict: other deaths, the launcher's own root cause, ranks not explained."""
    result = []
    for rank, event in sorted(case.facts.exits.items()):
        if event.fields.get("first") and match.culprits and rank not in match.culprits:
            result.append(Evidence("exit", f"the launcher names rank {rank} as its first observed failure; it names whom it polled first", rank, Source(event.file, event.line), "against"))
    for death in case.facts.deaths:
        if death.rank not in match.culprits:
            result.append(Evidence("log", f"rank {death.rank} {death.how}: a fault of its own, though the calls point elsewhere", death.rank, Source(death.event.file, death.event.line), "against"))
    return result[:6]


def _alternatives(match: Match, others: Sequence[Match], case: Case) -> list[Alternative]:
    result: list[Alternative] = []
    for other in others:
        if other.cause != match.cause and all(a.cause != other.cause for a in result):
            result.append(Alternative(other.cause, other.why))
    waiting = case.finding.waiting_kind
    if match.cause == "network_stall" and waiting is not None and waiting.op.startswith("all_to_all"):
        result.append(Alternative("shape_mismatch", "an all_to_all whose splits do not fit stalls the same way, and recorders keep no splits"))
    rivals = {
        "uneven_loader": ("rank_conditional_collective", "an extra call in the last lines of the loop would leave the same record"),
        "rank_conditional_collective": ("uneven_loader", "a rank that left the loop early makes the call behind it first"),
        "crashed_rank": ("early_exit", "a process that ends without a trace may also have returned early"),
        "early_exit": ("crashed_rank", "without its exit code, a killed process looks the same"),
        "gradient_sync_mismatch": ("rank_conditional_collective", "a step that one rank skipped leaves out its gradient reductions, too"),
        "collective_order_mismatch": ("stuck_rank", "a host that is busy elsewhere while its last call is pending makes a circle that looks the same"),
        "stuck_rank": ("slow_rank", "one snapshot cannot tell blocked from slow"),
    }
    rival = rivals.get(match.cause)
    if rival is not None and match.sure < 2 and all(a.cause != rival[0] for a in result):
        result.insert(0, Alternative(*rival))
    return result[:3]


def _candidates(case: Case, match: Match) -> list[Candidate]:
    result = list(case.finding.candidates)
    for rank, event in sorted(case.facts.exits.items()):
        if event.fields.get("first") and rank not in match.culprits:
            result.append(Candidate((rank,), "launcher's first failure", "the launcher names whom it polled first; this rank shows only consequences"))
    return result[:12]


def _fingerprint(cause: str, kind: CallKind | None, location: Location | None, finding: Finding) -> str:
    """Return a short hash that is the same for the same hang in another run: no ranks, seqs, hosts or line numbers."""
    waiting = user_frame(kind.stack) if kind is not None else None
    parts = [
        cause, kind.op if kind is not None else "", finding.view.group.desc if finding.view is not None else "",
        f"{location.file.rsplit('/', 1)[-1]}:{location.function}" if location is not None else "",
        f"{waiting.file.rsplit('/', 1)[-1]}:{waiting.name}" if waiting is not None else "",
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _missing(case: Case) -> list[str]:
    """Return what was not there, with the setting that brings it next time."""
    incident, result = case.incident, []
    no_dump = [r for r, record in incident.ranks.items() if record.dump_file is None]
    if len(no_dump) == len(incident.ranks):
        result.append("no Flight Recorder dump: keep TORCH_FR_BUFFER_SIZE at 2000 or more, and with gloo call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread")
    elif no_dump:
        result.append(f"no dump of {ranks_phrase(no_dump)}")
    for absence, text in ((Absence.EARLY, "dumps taken before their peers'"), (Absence.STALE, "only a stale dump"), (Absence.UNREADABLE, "an unreadable dump")):
        ranks = [r for r, record in incident.ranks.items() if record.absence == absence]
        if ranks:
            result.append(f"{text} of {ranks_phrase(ranks)}")
    if not case.facts.whereabouts:
        result.append("no stacks: py-spy dump --pid PID on each rank, or faulthandler.dump_traceback_later")
    logged = [r for r, record in incident.ranks.items() if record.events or any(f != record.dump_file for f in record.files)]
    if not logged and not case.facts.kinds:
        result.append("no logs: one file per rank (torchrun --log-dir DIR --tee 3)")
    return result


def _unknown(case: Case, missing: list[str]) -> Verdict:
    finding = case.finding
    kind = finding.waiting_kind
    return Verdict(
        cause="unknown", confidence="low", culprit_ranks=(), category="unknown",
        summary=f"Ranks {compress(case.graph.waiting)} have open calls, and what was left behind does not say why.",
        group=finding.view.group if finding.view is not None else None, op=kind.op if kind is not None else None, seq=finding.seq,
        waiting_ranks=tuple(case.graph.waiting), waiting_call=_ref(kind, finding.seq),
        evidence=[Evidence("method", text, stance="missing") for text in missing],
        advice=missing[:3], fingerprint=_fingerprint("unknown", kind, None, finding),
    )
