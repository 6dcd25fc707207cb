"""Rules about participation: a collective that only some ranks issue, and a rank that is busy elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from hangscope.causes.case import Case, Match, answer, at, frames_shown, of_outlier, who
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import describe, meeting
from hangscope.explain.finding import Extra, Unseen
from hangscope.ingest.evidence.stack_owners import LOADER_WORKER
from hangscope.ingest.job_logs.activity import Computing, Held
from hangscope.ingest.torch_logs.c10d import DumpObserved, HeartbeatTimeout
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier
from hangscope.knowledge.callsite import shared_line, user_frame
from hangscope.knowledge.doing import doing
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.frames import Frame, Stack
from hangscope.model.incident import ROOTED_OPS, CallKind, Event, Incident, Queue, State
from hangscope.model.rankset import agree, counted

_ALONE = "rank_conditional_collective"
_ROUNDS = ("uneven_loader", "the loops may have ended at different rounds")
_ORDER = ("collective_order_mismatch", "the collective that it skipped may have come next")
_STOPPED = "{who} stopped by a signal (SIGSTOP, SIGTSTP or SIGTTIN): `kill -CONT PID` resumes the process; find out who stopped it."
_MOVE = "If it is slow and not stuck, move that work out of the step, or let all ranks wait for it with a longer timeout."
_QUOTED = 120  # characters of a line in a reason
_SLOW = ("slow_rank", "it may have gone on afterwards")
_OTHERWISE = ("stuck_rank", "no call of it is known, so it may as well be at work or blocked outside of them")
_STAYED = ("stuck_rank", "it may still come to their collective")
_LATE = ("slow_rank", "a rank that computes may still arrive: capture it again")


def one_sided_call(case: Case) -> Match | None:
    """A collective that some ranks issued and the others did not, inside the loop."""
    finding, d = case.finding, Difference(case)
    if (act := _act(d)) is None:
        return None
    (strength, what, *rivals), whose = act, d.whose
    outlier = d.added[0] if d.added and not d.skipped else d.own
    advice = f"Call {outlier.op or 'it'} on every rank, and guard only the side effect around it (the write, the print), not the collective."
    if not d.added and case.frame_of(outlier) is None:
        advice = f"Find out what {whose} ran right before {describe(outlier)}: a collective of the others was skipped there, or this one was added."
    if d.past_backward and not d.own_gradient:
        advice = f"Look for what takes {whose} around a collective of the backward pass: a branch of its forward pass that cuts the graph (an empty batch, a new tensor, no_grad), or parameters that get no gradient there."
    if d.steps.skips:
        advice = f"Find out why {whose} took another way after the line that no other rank printed, and let all ranks decide it together: all_reduce the flag."
    if d.skipped or any("skip" in line.text.lower() for line in d.steps.skips):
        advice = f"Let all ranks skip together: all_reduce the flag that made {whose} skip, or run the step with a zero loss."
    values = [o for o in case.statements.outlier_lines if o.telling and o.how == "value"]
    if differing := next((o for o in values if o.ranks == finding.culprits), None):
        advice = f"Find out why {differing.note.partition(' (')[0].partition(';')[0]} ('{differing.text[:_QUOTED]}'): {whose} may take another path because of it."
    crossed = finding.change.elsewhere and finding.circle is not None and finding.circle.kind == "cycle"
    strength, facts = 2 if d.steps.skips else strength, map(of_outlier, d.steps.skips[:2])
    match = answer(_ALONE, finding.culprits, f"{whose} {what}", advice, strength=strength, evidence=facts)
    return replace(match, frame=case.frame_of(outlier), rivals=[_ORDER] if crossed else rivals)


def by_its_words(case: Case) -> Match | None:
    """A rank whose calls are not known, and that alone printed something inside the loop while it went on, or another number than all others."""
    finding = case.finding
    known = finding.own.kind is not None or finding.stuck.kind is not None
    if not finding.guess or (known and not isinstance(finding, Unseen)):
        return None
    own = [o for o in case.statements.outlier_lines if o.telling and o.ranks == finding.culprits]
    if not own:
        return None
    whose, said = who(finding.culprits), own[0]
    what = said.note if said.how == "value" else f"{whose} printed a line that no other rank printed"
    evidence = map(of_outlier, own[:2])
    complete = not case.graph.waiting and any(r.seen and r.dump_file for r in case.incident.ranks.values())
    cause, also = _ALONE, "; it may have skipped a collective of the others, or issued one of its own"
    advice = f"{'Check' if finding.waiting else 'If the job no longer prints, check'} whether {whose} issues every collective of the step after that line."
    if complete or all(kept_up(case.incident, rank) for rank in finding.culprits):
        last = f"{agree(finding.culprits, 'its', 'their')} last collectives are those of the others"
        cause, also = "stuck_rank", f", and {'every recorded collective is complete' if complete else last}"
        advice = (
            f"Find out how long {whose} took for what that line is about: its next line, or a stack of it."
        )
    why, rivals = f"{what}{also}: '{said.text[:_QUOTED]}'", [_OTHERWISE if cause == _ALONE else _SLOW]
    return answer(cause, finding.culprits, why, advice, strength=0, evidence=evidence, rivals=rivals)


def kept_up(incident: Incident, rank: int) -> bool:
    """Return whether all other members of a rank's groups were seen, and none issued another collective, or one more or fewer, than it."""
    own = incident.ranks[rank].queues if rank in incident.ranks else {}
    shared = 0
    for gid, queue in own.items():
        peers = [peer for peer in incident.groups[gid].ranks if peer != rank]
        found = [incident.ranks[peer].queues.get(gid) for peer in peers if peer in incident.ranks]
        if len(found) < len(peers) or None in found:
            return False
        # Ranks of one role share their columns: each of these is compared once.
        distinct = {(id(other.seq), id(other.kind)): other for other in found if other is not None}
        if not all(_alike(queue, other, incident) for other in distinct.values()):
            return False
        shared += len(peers)
    return shared > 0


def _alike(queue: Queue, other: Queue, incident: Incident) -> bool:
    """Return whether two members issued as many collectives, and the same ones as far as both are kept."""
    if not len(queue) or not len(other) or queue.cut or other.cut:
        return False
    rows = (zip(q.seq, q.kind, strict=True) for q in (queue, other))
    calls, theirs = ({int(seq): incident.kinds[int(kind)].op for seq, kind in row} for row in rows)
    both = calls.keys() & theirs.keys()
    return max(calls) == max(theirs) and all(calls[seq] == theirs[seq] for seq in both)


def _act(d: Difference) -> tuple[int, str] | tuple[int, str, tuple[str, str]] | None:
    """Return how sure it is what the culprits did that the others did not, what it is, and another reading; None where only arguments differ."""
    own, finding, usual = describe(d.own), d.finding, d.times_before(d.own)
    edited = finding.change.realigned
    if isinstance(finding, Extra):
        return int(not finding.tie), f"issued {own}, which the others did not issue"
    if d.differs == "root" and not d.another_call:
        return None  # the same call, of another root
    if d.skipped and (edited or usual):
        # Whoever skips a whole step may have left the loop.
        sure = edited or d.skipped_part_of_a_step or not d.period
        return 2 if sure else 1, f"skipped {_several(d.skipped)} and continued"
    if d.too_soon and usual:
        return 1, f"issued {own} several steps early"
    if d.added:
        return 2, f"issued an extra {_several(d.added)}"
    parted = d.differs or d.same_site is False or (d.known and finding.stuck.before)
    if not parted or (d.same_site and not d.another_call):
        return None
    if d.inside and not usual:
        return 2, meeting(d)
    if 0 in finding.culprits or d.case.from_text:
        return 1, meeting(d)
    return int(len(d.case.incident.ranks) > 2), meeting(d), _ROUNDS


def _several(kinds: tuple[CallKind, ...]) -> str:
    """Return the first of some collectives, and how many more there are."""
    more = f" and {counted(len(kinds) - 1, 'more collective')}" if len(kinds) > 1 else ""
    return describe(kinds[0]) + more


def busy_elsewhere(case: Case) -> Match | None:
    """A rank that is alive, is blocked by nobody and never issues its next collective."""
    return busy(case, case.finding.culprits) if case.finding.culprits else None


def busy(case: Case, culprits: Sequence[int]) -> Match:
    """Return the answer for ranks that are known to be alive and outside of every collective."""
    statements, records = case.statements, case.incident.ranks
    seen = [r for r in culprits if records[r].seen and records[r].dump_file]
    placed = {rank: statements.whereabouts[rank] for rank in culprits if rank in statements.whereabouts}
    outside = [rank for rank, where in placed.items() if not where.inside]
    frame = next(filter(None, (user_frame(placed[rank].stack) for rank in outside)), None)
    evidence: list[Evidence | Event] = [case.seen_at(rank) for rank in outside]
    for kind in (Held, Computing, DumpObserved, HeartbeatTimeout):
        evidence += [e for rank in culprits for e in statements.of(rank, kind)[:1]]
    for rank in seen[:8]:
        if {int(s) for queue in records[rank].queues.values() for s in queue.state} == {int(State.DONE)}:
            text = f"rank {rank} has completed every collective that it enqueued"
            evidence.append(case.recorded(rank, text))
    whose, one = who(culprits), len(culprits) == 1
    look = []
    if any(e.by == "stop" for r in culprits for e in statements.of(r, Held)):
        look = [_STOPPED.format(who=f"{whose} {'was' if one else 'were'}")]
    elif remedies := [d.remedy for r in outside if (d := doing(placed[r].stack)) is not None and d.remedy]:
        look = remedies[:1]
    elif frame:
        did = f"{whose} {'does' if one else 'do'} at {frame}"
        look = [f"Check what {did}: I/O, a lock, a data loader, a download.", _MOVE]
    behind = _works_for(case, culprits[0]) if one and outside else None
    if behind is not None:
        worker, at_work, fact = behind
        look = [f"Check what {worker} of {whose} does at {at_work}: that is what its main thread waits for."]
        evidence.append(fact)
    computing = all(statements.of(r, Computing) for r in culprits)
    what = f"{'is' if one else 'are'} computing and {'has' if one else 'have'} not" if computing else "never"
    acts = {d.doing for r in outside if (d := doing(placed[r].stack)) is not None and d.host}
    if len(acts) == 1 and len(outside) == len(culprits) and not computing:
        what = f"{'is' if one else 'are'} {acts.pop()}, and never"
    recorded = len(seen) == len(culprits) and calls_stay_open(case) is not False
    passed = [] if computing else _may_have_passed(case, culprits)
    if passed and (branch := _another_branch(case, culprits, frame)) is not None:
        return branch
    strength = 2 if (frame is not None or recorded) and not (computing or passed) else 1
    why, rivals = f"{whose} {what} {_awaited(case)}", [_LATE] if computing else passed
    match = answer("stuck_rank", culprits, why, *look, strength=strength, evidence=evidence, rivals=rivals)
    return replace(match, frame=frame)


def _works_for(case: Case, rank: int) -> tuple[str, Frame, Evidence] | None:
    """Return which other thread of a rank, or worker of its data loader, is in the user's code where those of no other rank are, and where."""
    records = case.incident.ranks
    own, peers = records[rank], [r for r in records.values() if r.rank != rank]
    alike = {user_frame(_of_a_worker(stack)) for peer in peers for _, stack in peer.threads[1:]}
    for name, stack in own.threads[1:]:
        frame = user_frame(_of_a_worker(stack))
        if frame is not None and frame not in alike:
            what = name if name.startswith("worker") else f"thread {name}"
            text = f"rank {rank}'s {what}: {frames_shown(_of_a_worker(stack))}"
            return f"the {what}", frame, Evidence("stack", text, rank, Source(own.stack_file or ""))
    return None


def _of_a_worker(stack: Stack) -> Stack:
    """Return a stack without what a forked worker process inherited from its parent."""
    return tuple(takewhile(lambda frame: frame.name != LOADER_WORKER, stack))


def _another_branch(case: Case, culprits: Sequence[int], frame: Frame | None) -> Match | None:
    """Return the answer for a rank that alone printed a line where all others printed another one, and that may be past their collective."""
    its = [o for o in case.statements.outlier_lines if o.ranks == tuple(culprits)]
    own, theirs = ([o for o in its if o.how == how] for how in ("only", "missing"))
    if not own or not theirs:
        return None
    op = case.finding.stuck.kind.op if case.finding.stuck.kind is not None else "collective"
    whose = who(culprits)
    why = f"{whose} took another branch than the others{at(frame)}; it printed '{own[0].text[:_QUOTED]}', they '{theirs[0].text[:_QUOTED]}'; it may be past their {op or 'collective'}"
    advice = "Let one rank decide and broadcast the decision, so that all ranks take the same branch."
    facts = map(of_outlier, (own[0], theirs[0]))
    return answer(_ALONE, culprits, why, advice, evidence=facts, frame=frame, rivals=[_STAYED])


def _may_have_passed(case: Case, culprits: Sequence[int]) -> list[tuple[str, str]]:
    """Return the other reading of a rank that alone printed something and is below the line at which the others wait, in one function.

    Only dumps would show whether that function loops, so that the rank is still to come there.
    """
    odd = any(o.telling and o.ranks == tuple(culprits) for o in case.statements.outlier_lines)
    own = case.stacks.get(culprits[0]) if odd and case.from_text else None
    peer = next((w for r, w in case.statements.whereabouts.items() if w.inside and r not in culprits), None)
    shared = shared_line(own.stack, peer.stack) if own is not None and peer is not None else None
    if shared is None or shared[0].line <= shared[1].line:
        return []
    why = f"it is at line {shared[0].line} of {shared[0].name}, the others at line {shared[1].line}: it may have passed their collective and skipped it"
    return [(_ALONE, why)]


def each_alone(case: Case) -> Match | None:
    """Every rank that is known waits for something of its own host, and none for another rank: all their data loaders, for instance."""
    waits = {rank: doing(where.stack) for rank, where in case.stacks.items() if not where.inside}
    own = [wait for wait in waits.values() if wait is not None and wait.host]
    if len(own) < 2 or len(own) < len(case.incident.ranks):
        return None
    why = f"{who(waits)} wait for something of their own host, and none for another rank"
    evidence = [case.seen_at(rank) for rank in [*waits][:4]]
    look = [own[0].remedy] if own[0].remedy else []
    return answer("stuck_rank", (), why, *look, strength=0, evidence=evidence, suspects=waits)


def _awaited(case: Case) -> str:
    """Return `entered all_reduce seq 6`: what the others are waiting for, as far as it is known."""
    stuck = case.finding.stuck
    op = stuck.kind.op if stuck.kind is not None else ""
    match = {"recv": "issued the send for ", "send": "issued the recv for "}.get(op, "entered ")
    known = f"{op or 'collective'} seq {stuck.seq}" if stuck.seq is not None else op
    monitored = any(isinstance(e, MonitoredBarrier) for e in case.finding.events)
    return match + (known or ("monitored_barrier" if monitored else "the next collective"))


def calls_stay_open(case: Case) -> bool | None:
    """Return whether gloo's dumps show the collective pending in which ranks wait, None where no dump of gloo shows it.

    A process that ends fails the collectives of its peers at once. Some ranks complete a rooted one before others come.
    """
    stuck = case.finding.stuck
    if stuck.view is None or stuck.seq is None or stuck.kind is None or stuck.kind.backend != "gloo":
        return None
    inside = [m for m in stuck.view.members.values() if m.row_of(stuck.seq) is not None]
    pending = [stuck.seq in member.pending for member in inside]
    return (any(pending) if stuck.kind.op in ROOTED_OPS else all(pending)) if inside else None
