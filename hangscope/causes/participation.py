"""Rules about who takes part: a call that only some ranks make, and a rank that is busy elsewhere."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import describe
from hangscope.causes.rooted import ROOTED
from hangscope.conclusion import Evidence, Source
from hangscope.explain.finding import Absent, Different, Extra
from hangscope.incident import Frame
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.torch_logs.c10d import DumpObserved, HeartbeatTimeout
from hangscope.knowledge.callsite import user_frame


def one_sided_call(case: Case) -> Match | None:
    """A call that some ranks made and the others did not, inside the loop."""
    finding = case.finding
    if not isinstance(finding, Different | Extra):
        return None
    d = Difference(case)
    if d.differs == "root" and not d.another_call:
        return None  # one call, of which some took another root
    culprits = finding.culprits
    who = ranks_phrase(culprits) if culprits else "one side"
    strength, why = 0, ""
    skips = d.steps.skips(culprits)
    left_out = bool(d.skipped) and not d.inserted and not d.too_soon
    if isinstance(finding, Extra):
        strength, why = (
            (0 if finding.tie else 1),
            f"{who} made {describe(d.own)}, which the others did not make",
        )
    elif left_out and (finding.change.edit is not None or d.times_before(d.own)):
        strength, why = (
            # Who leaves out a whole step may have left the loop.
            2 if finding.change.edit is not None or d.skipped_part_of_a_step or not d.period else 1,
            f"{who} left out {describe(d.skipped[0])}"
            + (f" and {len(d.skipped) - 1} more" if len(d.skipped) > 1 else "")
            + " and went on",
        )
    elif d.too_soon and d.times_before(d.own):
        strength, why = 1, f"{who} made {describe(d.own)} steps before it was due"
    elif d.added:
        strength, why = (
            2,
            f"{who} made {describe(d.added[0])} in addition"
            + (f" (and {len(d.added) - 1} more)" if len(d.added) > 1 else ""),
        )
    elif d.differs == "op" and not case.frames_recorded and d.history and not d.times_before(d.own):
        why = f"{who} made {describe(d.own)}, which nobody had made before, where the others made {describe(d.peer)}"
    elif d.own is not None and (d.same_site is not True or d.another_call):
        inside = d.position is not None and d.position[0] == "inside"
        if d.differs or d.same_site is False or finding.change.before:
            made = describe(d.own)
            # Where both calls are of the program, loops may merely have ended at different rounds.
            usual = bool(d.times_before(d.own) and d.times_before(d.peer))
            strength = 2 if inside and not usual else int(0 in culprits or case.from_text)
            why = f"{who} {'is' if len(culprits) < 2 else 'are'} in {made} at {case.frame_of(d.own) or 'an unknown line'}, where the others are in {describe(d.peer)}"
    if not why:
        return None
    evidence = [quote(e, f"rank {e.rank} said that it skipped: {e.text}") for e in skips[-2:]]
    if skips:
        strength = 2
    odd = d.added[0] if d.added and not left_out else d.own
    if left_out or skips:
        advice = f"Let all ranks skip together: all_reduce the flag that made {who} skip, or run the step with a zero loss."
    else:
        call = (odd.op if odd is not None else "") or "it"
        advice = f"Call {call} on every rank and gate only the side effect around it (the write, the print), not the collective."
    circle = finding.change.elsewhere and finding.circle is not None and finding.circle.kind == "cycle"
    return Match(
        "rank_conditional_collective",
        culprits,
        why,
        strength=strength,
        evidence=evidence,
        advice=[advice, "Every rank must reach each collective of a step, or none."],
        rivals=[("collective_order_mismatch", "the call that it did not make may have come next")]
        if circle
        else []
        if case.frames_recorded or strength
        else [
            (
                "uneven_loader",
                "without frames, a call behind the loop that nobody had reached before looks the same",
            )
        ],
        frame=case.frame_of(odd) or case.frame_of(d.own),
    )


def busy_elsewhere(case: Case) -> Match | None:
    """A rank that is alive, waits for nobody and never makes its next call."""
    finding = case.finding
    if not isinstance(finding, Absent) or not finding.culprits:
        return None
    return busy(case, finding.culprits)


def busy(case: Case, culprits: tuple[int, ...]) -> Match:
    """Return the answer for ranks that are known to be alive and outside of every call."""
    who = ranks_phrase(culprits)
    evidence: list[Evidence] = []
    frame: Frame | None = None
    for rank in culprits:
        where = case.statements.whereabouts.get(rank)
        if where is not None and not where.inside and user_frame(where.stack) is not None:
            frame = frame or user_frame(where.stack)
            evidence.append(case.stands(rank))
        evidence += _at_work_below(case, rank)
        evidence += [quote(e) for e in case.statements.of(rank, DumpObserved)[:1]]
        evidence += [quote(e) for e in case.statements.of(rank, HeartbeatTimeout)[:1]]
    seen = [r for r in culprits if case.incident.ranks[r].seen and case.incident.ranks[r].dump_file]
    done = "every call it enqueued is complete, and it has not made the one its peers wait in"
    evidence[:0] = [case.recorded(rank, f"rank {rank}: {done}") for rank in seen[:8]]
    return Match(
        "stuck_rank",
        culprits,
        f"{who} is waiting for nobody and has not made its next call"
        if len(culprits) == 1
        else f"{who} are waiting for nobody and have not made their next call",
        strength=2
        if frame is not None or (seen and len(seen) == len(culprits) and calls_stay_open(case) is not False)
        else 1,
        evidence=evidence,
        frame=frame,
        advice=[
            f"See what {who} {'does' if len(culprits) == 1 else 'do'} at {frame}: I/O, a lock, a data loader, a download."
            if frame
            else f"Take a stack of {who} before such a job is ended (hangscope run does): data loader, lock, I/O, checkpoint or a kernel launch."
            if bool(case.statements.all(Exit)) or bool(case.statements.all(ExternalEnd))
            else f"Take a stack of {who} now (py-spy dump --pid PID): data loader, lock, I/O, checkpoint or a kernel launch.",
            "Move work that one rank does alone out of the step, or give that group a longer timeout with the reason.",
        ],
    )


def calls_stay_open(case: Case) -> bool | None:
    """Return whether gloo's dumps show the call open in which ranks wait, None where no dump of gloo tells.

    A process that ends closes its connections, which fails the calls of its peers at once. Of a call with a root some are done
    before others come.
    """
    stuck = case.finding.stuck
    if stuck.view is None or stuck.seq is None or stuck.kind is None or stuck.kind.backend != "gloo":
        return None
    inside = [m for m in stuck.view.members.values() if m.row_of(stuck.seq) is not None]
    still_open = [stuck.seq in member.pending for member in inside]
    return (any(still_open) if stuck.kind.op in ROOTED else all(still_open)) if inside else None


def _at_work_below(case: Case, rank: int) -> list[Evidence]:
    """Return what the loader workers of a rank do, of those that do anything but wait for their next task."""
    record = case.incident.ranks[rank]
    told = []
    for name, stack in record.threads:
        loop = next((n for n, frame in enumerate(stack) if frame.name == "_worker_loop"), None)
        frame = user_frame(stack[:loop]) if name.startswith("worker ") and loop is not None else None
        if frame is not None:
            text = f"rank {rank}'s loader {name.partition(':')[0]} is at {frame.file}:{frame.line} in {frame.name}"
            told.append(Evidence("stack", text, rank, Source(record.stack_file or "")))
    return told[:2]
