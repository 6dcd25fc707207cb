"""Rules about who takes part: a call too many or too few, a loop left early, a rank that is busy elsewhere."""

from __future__ import annotations

from hangscope.align.callsite import is_user, position_to_loop, user_frame
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.causes.mismatch import describe
from hangscope.incident import Evidence, Frame, Source, Stack


def late(case: Case) -> Match | None:
    """A rank came later than its peers were willing to wait, with the very call they were in."""
    if case.finding.form != "late":
        return None
    culprits = case.finding.culprits
    return Match(
        "slow_rank",
        culprits,
        f"{ranks_phrase(culprits)} made the same call after the others had given up waiting",
        sure=2,
        evidence=[quote(e) for r in culprits for e in case.facts.of(r, "fingerprint")[:1]]
        + [quote(e) for e in case.facts.all("monitored_barrier")[:1]],
        advice=[
            f"Give the group a longer timeout if {ranks_phrase(culprits)}'s pause is legitimate, or move that work out of the step."
        ],
        frame=case.frame_of(case.finding.own_kind),
        frame_rank=culprits[0] if culprits else None,
    )


def came_late(case: Case) -> Match | None:
    """Watchdogs timed out, and yet every call is complete in the dumps: somebody was slow, nobody hangs."""
    timeouts = case.facts.all("watchdog_timeout")
    if (
        not timeouts
        or case.graph.waiting
        or case.facts.deaths
        or not all(r.seen and r.dump_file for r in case.incident.ranks.values())
    ):
        return None
    told = {e.rank for e in timeouts if e.rank is not None}
    silent = tuple(r for r in sorted(case.incident.ranks) if r not in told)
    culprits = silent if len(silent) * 2 < len(case.incident.ranks) else ()
    event = timeouts[0]
    return Match(
        "slow_rank",
        culprits,
        f"{ranks_phrase(culprits) if culprits else 'a rank'} came later than the timeout; the call that the others gave up on did complete",
        sure=2 if culprits else 1,
        evidence=[
            quote(event),
            Evidence("dump", "no rank has an open call: what timed out is complete in every dump"),
            *[quote(e) for r in culprits for e in case.facts.of(r, "dump_observed")[:1]],
        ],
        advice=[
            f"Find what kept {ranks_phrase(culprits) if culprits else 'the late rank'} (checkpoint, validation, compilation, data) and move it out of the step, or give that group a longer timeout with the reason."
        ],
    )


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding = case.finding
    d = Difference(case)
    culprits = finding.culprits
    exhausted = case.facts.all("join_exhausted")
    told = d.loop_over(culprits) if culprits else None
    its, it_is, it = ("its", "it is", "it") if len(culprits) < 2 else ("their", "they are", "they")
    sure, why = 0, ""
    evidence: list[Evidence] = []
    frame: Frame | None = case.frame_of(d.own)
    if exhausted:
        sure, why = 2, f"{it} ran out of inputs"
        evidence = [quote(e) for e in exhausted[:2]]
        culprits = tuple(sorted({e.rank for e in exhausted if e.rank is not None})) or culprits
    elif finding.form == "different" and finding.edit is not None:
        return None  # its calls match again behind the edit: it went on inside the loop
    elif (
        finding.form == "different"
        and not finding.tie
        and d.peer_ends_epochs
        and not d.ran_further(culprits)
        and not d.skips(culprits)
    ):
        sure, why = 2 if d.times_before(d.peer) else 1, ""
        who = ranks_phrase(culprits)
        return Match(
            "uneven_loader",
            culprits,
            f"{who} began one more step while {its} peers are already in the call behind the loop: {it} {'has' if len(culprits) < 2 else 'have'} more batches",
            sure=sure,
            frame=frame,
            frame_rank=culprits[0] if culprits else None,
            advice=_batches(who),
        )
    elif finding.form == "different" and not finding.tie:
        if d.skipped_part_of_a_step or d.ran_further(culprits) or d.mid_epoch(culprits) or d.skips(culprits):
            return (
                None  # it went on inside the loop, or ran as many steps as its peers and skipped one of them
            )
        if (
            d.own is not None
            and not d.ends_epochs
            and (d.in_loop_before or (d.position is not None and d.position[0] == "inside"))
        ):
            return None
        if d.skipped and not d.ends_epochs and d.times_before(d.own):
            return None
        if d.differs in ("shape", "dtype") and d.same_site:
            return None
        if d.ends_epochs:
            sure, why = (
                2,
                f"{it_is} already in the call that ends an epoch, after fewer steps than {its} peers",
            )
        elif d.position is not None and d.position[0] == "beyond":
            line = d.position[1]
            if d.side_work and not told:
                return None
            if not (d.peer_gradient or told or finding.history is None) and not _forward(d):
                return None  # a loop of hand-made calls: an extra call at its end looks the same
            sure, why = (
                1,
                f"{its} call stands at {line}, beyond the lines of the loop that {its} peers are in",
            )
        elif (
            d.peer_gradient
            and not d.own_gradient
            and d.own is not None
            and not d.times_before(d.own)
            and d.position is None
            and not d.side_work
        ):
            sure, why = (
                0,
                f"{its} peers began one more backward pass while {it_is} in a call that the loop never made",
            )
        if told is not None:
            sure, why = (
                max(sure, 1) + (1 if sure else 0),
                (why + f" and {its} own output says that the loop is over")
                if why
                else f"{its} own output says that the loop is over",
            )
            evidence.append(quote(told, f"rank {told.rank}'s output: {told.text}"))
    elif finding.form in ("absent", "unseen") and told is not None:
        sure, why = 1 if finding.form == "unseen" else 2, f"{its} own output says that the loop is over"
        evidence.append(quote(told, f"rank {told.rank}'s output: {told.text}"))
        evidence += [
            quote(
                e,
                f"its buffer held {e.fields.get('expected')} bytes where a peer sent {e.fields.get('received')}: it was in another call",
            )
            for r in culprits
            for e in case.facts.of(r, "gloo_size_mismatch")[:1]
        ]
    elif finding.form == "absent" and culprits:
        where = case.facts.whereabouts.get(culprits[0])
        if where is not None and where.stack and finding.waiting_kind is not None:
            stacks = [k.stack for k in d.history if k.stack]
            found = position_to_loop(
                where.stack, finding.waiting_kind.stack or (stacks[-1] if stacks else ()), stacks
            )
            # A rank that is busy at the loop's last lines is still inside it; one that returned from the epoch is not.
            if (
                found is not None
                and found[0] == "beyond"
                and _returned_from_epoch(finding.waiting_kind.stack, where.stack)
            ):
                sure, why, frame = (
                    1,
                    f"{its} stack stands at {found[1]}, beyond the lines of the loop that {its} peers are in",
                    found[1],
                )
                evidence.append(
                    Evidence(
                        "stack", f"rank {culprits[0]} stood at {found[1]}", culprits[0], Source(where.source)
                    )
                )
    if not why:
        return None
    who = ranks_phrase(culprits)
    return Match(
        "uneven_loader",
        culprits,
        f"{who} left the loop: {why}",
        sure=min(2, sure),
        category="data",
        evidence=evidence,
        frame=frame,
        frame_rank=culprits[0] if culprits else None,
        advice=_batches(who),
    )


def _batches(who: str) -> list[str]:
    return [
        f"Give every rank the same number of batches: compare len(loader), sampler and drop_last of {who} with the others'.",
        "For inputs that are really uneven, wrap the loop in torch.distributed.algorithms.Join, or agree on min(len(loader)) over ranks before the epoch.",
    ]


def _returned_from_epoch(peer: Stack, own: Stack) -> bool:
    """Return whether the peers are inside a function that runs an epoch, and this stack is not."""
    epochs = {(f.name, f.file) for f in peer if is_user(f) and "epoch" in f.name.lower()}
    return bool(epochs) and not any((f.name, f.file) in epochs for f in own)


def _forward(d: Difference) -> bool:
    """Return whether the peers wait in something that a model's forward or backward calls, not a line of the user's."""
    return d.peer is not None and any(
        "/torch/nn/" in f.file or "fsdp" in f.file.lower() for f in d.peer.stack
    )


def one_sided_call(case: Case) -> Match | None:
    """A call that some ranks made and the others did not, inside the loop."""
    finding = case.finding
    if finding.form not in ("different", "shifted", "extra"):
        return None
    d = Difference(case)
    culprits = finding.culprits
    who = ranks_phrase(culprits) if culprits else "one side"
    sure, why = 0, ""
    test = d.rank_test(culprits)
    skips = d.skips(culprits)
    if finding.form == "extra":
        sure, why = (0 if finding.tie else 1), f"{who} made {describe(d.own)}, which the others did not make"
    elif d.skipped and (finding.edit is not None or d.times_before(d.own)):
        sure, why = (
            2,
            f"{who} left out {describe(d.skipped[0])}"
            + (f" and {len(d.skipped) - 1} more" if len(d.skipped) > 1 else "")
            + " and went on",
        )
    elif d.added:
        sure, why = (
            2,
            f"{who} made {describe(d.added[0])} in addition"
            + (f" (and {len(d.added) - 1} more)" if len(d.added) > 1 else ""),
        )
    elif d.differs == "op" and not case.frames_recorded and d.resumes:
        sure, why = (
            1,
            f"{who} made {describe(d.own)}, which nobody had made before, and then the call that the others wait in",
        )
    elif d.own is not None and d.same_site is not True:
        inside = d.position is not None and d.position[0] == "inside"
        if d.differs or d.same_site is False or finding.before:
            made = describe(d.own)
            sure = 2 if inside or test else 1
            why = f"{who} {'is' if len(culprits) < 2 else 'are'} in {made} at {case.frame_of(d.own) or 'an unknown line'}, where the others are in {describe(d.peer)}"
    if not why:
        return None
    evidence = [quote(e, f"rank {e.rank} said that it skipped: {e.text}") for e in skips[-2:]]
    if test is not None:
        sure = max(sure, 1)
        evidence.append(
            quote(test, f"the line itself tests for a rank: {str(test.fields.get('code'))[:160]}")
        )
    if skips:
        sure = 2
    call = d.own.op if d.own is not None else "collective"
    if d.skipped or skips:
        advice = [
            f"Let all ranks skip together: all_reduce the flag that made {who} skip, or run the step with a zero loss.",
            "Every rank must reach each collective of a step, or none.",
        ]
    else:
        advice = [
            f"Call {call} on every rank and gate only the side effect around it (the write, the print), not the collective.",
            "Every rank must reach each collective of a step, or none.",
        ]
    if d.buffers:
        advice.append(
            "The call that differs is DDP's broadcast of buffers: run the same number of forwards on every rank; evaluate on `model.module`."
        )
    return Match(
        "rank_conditional_collective",
        culprits,
        why,
        sure=sure,
        evidence=evidence,
        advice=advice,
        frame=case.frame_of(d.own),
        frame_rank=culprits[0] if culprits else None,
    )


def not_called_but_busy(case: Case) -> Match | None:
    """A majority that seems to lack a call, while a stack shows the one that should make it next at work elsewhere."""
    finding = case.finding
    if finding.form != "extra" or finding.view is None or finding.seq is None:
        return None
    absent = [r for r in finding.view.seen if (finding.view.members[r].enqueued or 0) < finding.seq]
    busy = tuple(
        r
        for r in absent
        if (w := case.facts.whereabouts.get(r)) is not None
        and w.kind == "stack"
        and not w.inside
        and user_frame(w.stack) is not None
    )
    if not busy or len(busy) * 2 > len(finding.view.members):
        return None
    finding.form, finding.culprits, finding.tie = "absent", busy, False
    finding.waiting = tuple(r for r in case.graph.waiting if r not in busy)
    finding.explained = len(finding.waiting)
    finding.own_kind = finding.own_seq = None
    return busy_elsewhere(case)


def busy_elsewhere(case: Case) -> Match | None:
    """A rank that is alive, waits for nobody and never makes its next call."""
    finding = case.finding
    if finding.form != "absent" or not finding.culprits:
        return None
    culprits = finding.culprits
    who = ranks_phrase(culprits)
    evidence, frame, doing = [], None, ""
    for rank in culprits:
        where = case.facts.whereabouts.get(rank)
        if where is not None and not where.inside and user_frame(where.stack) is not None:
            found = user_frame(where.stack)
            frame = frame or found
            doing = doing or f" It is at {found}."
            evidence.append(
                Evidence(
                    "stack",
                    f"rank {rank}'s stack: " + " <- ".join(str(f) for f in where.stack[:4]),
                    rank,
                    Source(where.source),
                )
            )
        evidence += [quote(e) for e in case.facts.of(rank, "dump_observed")[:1]]
        evidence += [quote(e) for e in case.facts.of(rank, "heartbeat_timeout")[:1]]
    seen = [r for r in culprits if case.incident.ranks[r].seen and case.incident.ranks[r].dump_file]
    for rank in seen[:8]:
        evidence.insert(
            0,
            Evidence(
                "dump",
                f"rank {rank}: every call it enqueued is complete, and it has not made the one its peers wait in",
                rank,
                Source(case.incident.ranks[rank].dump_file or ""),
            ),
        )
    return Match(
        "stuck_rank",
        culprits,
        f"{who} is waiting for nobody and has not made its next call"
        if len(culprits) == 1
        else f"{who} are waiting for nobody and have not made their next call",
        sure=2 if frame is not None or (seen and len(seen) == len(culprits)) else 1,
        evidence=evidence,
        frame=frame,
        frame_rank=culprits[0],
        advice=[
            (
                f"See what {who} does at {frame.file}:{frame.line} in {frame.name}: I/O, a lock, a data loader, a download."
                if frame
                else f"Take a stack of {who} now (py-spy dump --pid PID), or run with stacks next time: data loader, lock, I/O, checkpoint or a kernel launch."
            )
            + doing.replace(f" It is at {frame}.", "")
            if frame
            else f"Take a stack of {who} now (py-spy dump --pid PID): data loader, lock, I/O, checkpoint or a kernel launch.",
            "Move work that one rank does alone out of the step, or give that group a longer timeout with the reason.",
        ],
    )
