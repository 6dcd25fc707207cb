"""Rules about participation: a collective that only some ranks issue, and a rank that is busy elsewhere."""

from __future__ import annotations

from hangscope.causes.case import Case, Match, answer, at, of_odd_line, who
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import ROOTED, describe
from hangscope.explain.finding import Absent, Different, Extra
from hangscope.ingest.job_logs.activity import Computing, Held
from hangscope.ingest.torch_logs.c10d import DumpObserved, HeartbeatTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import CallKind, Event, State
from hangscope.model.rankset import counted


def one_sided_call(case: Case) -> Match | None:
    """A collective that some ranks issued and the others did not, inside the loop."""
    finding = case.finding
    if not isinstance(finding, Different | Extra):
        return None
    d = Difference(case)
    if d.differs == "root" and not d.another_call:
        return None  # one call, of which some took another root
    culprits, edited = finding.culprits, finding.change.realigned
    made, usual = describe(d.own), d.times_before(d.own)
    theirs = describe(d.peer) if d.peer.op else "another collective"
    skips = d.steps.skips
    strength, rivals = 0, list[tuple[str, str]]()
    if isinstance(finding, Extra):
        strength, what = int(not finding.tie), f"issued {made}, which the others did not issue"
    elif d.skipped and (edited or usual):
        # Who leaves out a whole step may have left the loop.
        strength = 2 if edited or d.skipped_part_of_a_step or not d.period else 1
        if d.peer_ends_epochs:
            strength, rivals = 0, [("uneven_loader", "one more batch leaves the same record")]
        what = f"skipped {_several(d.skipped)} and continued"
    elif d.too_soon and usual:
        strength, what = 1, f"issued {made} several steps early"
    elif d.added:
        strength, what = 2, f"issued an extra {_several(d.added)}"
    elif (d.same_site is not True or d.another_call) and (
        d.differs or d.same_site is False or (finding.own.kind is not None and finding.stuck.before)
    ):
        # Where both calls are of the program, loops may merely have ended at different rounds.
        sure = d.inside and not usual  # who goes on as before may have a batch more
        strength = 2 if sure else int(0 in culprits or case.from_text)
        here, there = at(case.frame_of(d.own)), at(case.frame_of(d.peer))
        what = f"called {made}{here} while the others called {theirs}"
        if d.own.op == d.peer.op:
            own, peer = (f"at {place.strip(' ()')}" if place else "" for place in (here, there))
            what = (
                f"called {d.own.op or 'a collective'} {own}".rstrip()
                + f", the others {peer or 'a different one'}"
            )
    else:
        return None
    odd = d.added[0] if d.added and not d.skipped else d.own
    advice = f"Call {odd.op or 'it'} on every rank, and guard only the side effect around it (the write, the print), not the collective."
    if d.skipped or skips:
        advice = f"Let all ranks skip together: all_reduce the flag that made {who(culprits)} skip, or run the step with a zero loss."
    crossed = finding.change.elsewhere and finding.circle is not None and finding.circle.kind == "cycle"
    order = ("collective_order_mismatch", "the collective that it skipped may have come next")
    return answer(
        "rank_conditional_collective",
        culprits,
        f"{who(culprits)} {what}",
        advice,
        "Every rank must issue each collective of a step, or none.",
        strength=2 if skips else strength,
        evidence=map(of_odd_line, skips[:2]),
        rivals=[*rivals, order] if crossed else rivals,
        frame=case.frame_of(odd),
    )


def _several(kinds: tuple[CallKind, ...]) -> str:
    """Return the first of some calls, and how many more there are."""
    return describe(kinds[0]) + (
        f" and {counted(len(kinds) - 1, 'more collective')}" if len(kinds) > 1 else ""
    )


def busy_elsewhere(case: Case) -> Match | None:
    """A rank that is alive, is blocked by nobody and never issues its next collective."""
    absent = isinstance(case.finding, Absent) and case.finding.culprits
    return busy(case, case.finding.culprits) if absent else None


def busy(case: Case, culprits: tuple[int, ...]) -> Match:
    """Return the answer for ranks that are known to be alive and outside of every call."""
    statements, records = case.statements, case.incident.ranks
    seen = [r for r in culprits if records[r].seen and records[r].dump_file]
    stood = ((rank, statements.whereabouts.get(rank)) for rank in culprits)
    frames = {rank: user_frame(w.stack) for rank, w in stood if w is not None and not w.inside}
    evidence: list[Evidence | Event] = []
    for rank in culprits:
        evidence += [case.stands(rank)] if rank in frames else []
        evidence += [
            e
            for kind in (Held, Computing, DumpObserved, HeartbeatTimeout)
            for e in statements.of(rank, kind)[:1]
        ]
    evidence += [
        case.recorded(rank, f"rank {rank} {text}") for rank in seen[:8] if (text := _record(case, rank))
    ]
    frame = next(filter(None, frames.values()), None)
    whose, one = who(culprits), len(culprits) == 1
    look = f"Take a stack of {whose} (py-spy dump --pid PID; hangscope run does so before it ends a job) and look for a data loader, a lock, I/O, a checkpoint or a kernel launch."
    if frame:
        look = f"Check what {whose} {'does' if one else 'do'} at {frame}: I/O, a lock, a data loader, a download."
    if any(e.by == "stop" for r in culprits for e in statements.of(r, Held)):
        look = f"{whose} {'was' if one else 'were'} stopped by a signal (SIGSTOP, SIGTSTP or SIGTTIN): `kill -CONT PID` resumes the process; find out who stopped it."
    recorded = len(seen) == len(culprits) and calls_stay_open(case) is not False
    computing = {r for r in culprits if statements.of(r, Computing)}
    what = "never"
    if computing == set(culprits):
        what = f"{'is' if one else 'are'} computing and {'has' if one else 'have'} not"
    return answer(
        "stuck_rank",
        culprits,
        f"{whose} {what} {_awaited(case)}",
        look,
        "Move work that one rank does alone out of the step, or give that group a longer timeout and say why.",
        strength=2 if (frame is not None or recorded) and not computing else 1,
        evidence=evidence,
        frame=frame,
        rivals=[("slow_rank", "a rank that computes may still arrive: capture it again")]
        if computing
        else [],
    )


def _record(case: Case, rank: int) -> str:
    """Return what the record of a rank shows beside how far it came on the group of the collective; perhaps nothing."""
    queues, stuck = case.incident.ranks[rank].queues.values(), case.finding.stuck
    if {int(state) for queue in queues for state in queue.state} == {int(State.DONE)}:
        return "has completed every collective that it enqueued"
    far = stuck.view is not None and stuck.seq is not None and rank in stuck.view.seen
    return "" if far else "has not enqueued the collective that its peers are blocked in"


def _awaited(case: Case) -> str:
    """Return `entered all_reduce seq 6`: what the others are waiting for, as far as it is known."""
    stuck = case.finding.stuck
    op = stuck.kind.op if stuck.kind is not None else ""
    match = {"recv": "issued the send for ", "send": "issued the recv for "}.get(op, "entered ")
    return match + (
        f"{op or 'collective'} seq {stuck.seq}" if stuck.seq is not None else op or "the next collective"
    )


def calls_stay_open(case: Case) -> bool | None:
    """Return whether gloo's dumps show the call open in which ranks wait, None where no dump of gloo tells.

    A process that ends fails the calls of its peers at once. Of a call with a root some are done before others come.
    """
    stuck = case.finding.stuck
    if stuck.view is None or stuck.seq is None or stuck.kind is None or stuck.kind.backend != "gloo":
        return None
    inside = [m for m in stuck.view.members.values() if m.row_of(stuck.seq) is not None]
    still_open = [stuck.seq in member.pending for member in inside]
    return (any(still_open) if stuck.kind.op in ROOTED else all(still_open)) if inside else None
