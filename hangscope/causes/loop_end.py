"""The rule about loops that end at different steps on different ranks."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Absent, Different, Unseen
from hangscope.incident import Frame
from hangscope.ingest.torch_logs.store import JoinExhausted
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding = case.finding
    d = Difference(case)
    culprits = finding.culprits
    exhausted = case.statements.all(JoinExhausted)
    told = d.loop_over(culprits) if culprits else None
    its, it_is, it = ("its", "it is", "it") if len(culprits) < 2 else ("their", "they are", "they")
    strength, why = 0, ""
    evidence: list[Evidence] = []
    frame: Frame | None = case.frame_of(d.own)
    if exhausted:
        strength, why = 2, f"{it} ran out of inputs"
        evidence = [quote(e) for e in exhausted[:2]]
        culprits = tuple(sorted({e.rank for e in exhausted if e.rank is not None})) or culprits
    elif (
        isinstance(finding, Different)
        and (counted := d.uneven(culprits)) is not None
        and not d.skips(culprits)
    ):
        line, theirs = counted
        number = "fewer" if (line.total or 0) < (theirs.total or 0) else "more"
        strength, why = 2, f"its output counts {line.total} steps, {number} than the others' {theirs.total}"
        evidence = [quote(line), quote(theirs)]
    elif isinstance(finding, Different) and finding.change.edit is not None:
        return None  # its calls match again behind the edit: it went on inside the loop
    elif (
        isinstance(finding, Different)
        and not finding.tie
        and d.peer_ends_epochs
        and not d.ran_further(culprits)
        and not d.skips(culprits)
    ):
        who = ranks_phrase(culprits)
        return Match(
            "uneven_loader",
            culprits,
            f"{who} began one more step while {its} peers are already in the call behind the loop: {it} {'has' if len(culprits) < 2 else 'have'} more batches",
            strength=1,  # a rank that leaves out the call behind the loop and begins the next epoch leaves the same record
            frame=frame,
            frame_rank=culprits[0] if culprits else None,
            advice=_batches(who),
        )
    elif isinstance(finding, Different) and not finding.tie:
        if d.stays_inside or (d.own is not None and d.history[-1:] == [d.own]):
            return None  # the call that all have just made, once more: one too many before shifted it
        if (
            d.own is not None
            and not d.ends_epochs
            and told is None
            and (d.in_loop_before or (d.position is not None and d.position[0] == "inside"))
        ):
            return None
        if d.skipped and not d.ends_epochs and d.times_before(d.own):
            return None
        if d.differs in ("shape", "dtype") and d.same_site:
            return None
        if d.ends_epochs:
            strength, why = (
                2,
                f"{it_is} already in the call that ends an epoch, after fewer steps than {its} peers",
            )
        elif d.position is not None and d.position[0] == "beyond":
            where = d.position[1]
            if culprits == (0,) and told is None:
                return None  # what rank 0 alone does behind a step (a print, a sample, a checkpoint) is rather its own call
            if not (d.peer_gradient or told or finding.stuck.history is None) and not _forward(d):
                return None  # a loop of hand-made calls: an extra call at its end looks the same
            strength, why = (
                1,
                f"{its} call stands at {where}, beyond the lines of the loop that {its} peers are in",
            )
        elif (
            d.peer_gradient
            and not d.own_gradient
            and d.own is not None
            and not d.times_before(d.own)
            and d.position is None
        ):
            strength, why = (
                0,
                f"{its} peers began one more backward pass while {it_is} in a call that the loop never made",
            )
        if told is not None:
            strength, why = (
                max(strength, 1) + (1 if strength else 0),
                (why + f" and {its} own output says that the loop is over")
                if why
                else f"{its} own output says that the loop is over",
            )
            evidence.append(quote(told, f"rank {told.rank}'s output: {told.text}"))
    elif isinstance(finding, Absent | Unseen) and told is not None:
        strength, why = (
            1 if isinstance(finding, Unseen) else 2,
            f"{its} own output says that the loop is over",
        )
        evidence.append(quote(told, f"rank {told.rank}'s output: {told.text}"))
        evidence += [
            quote(
                e,
                f"its buffer held {e.expected} bytes where a peer sent {e.received}: it was in another call",
            )
            for r in culprits
            for e in case.statements.of(r, GlooSizeMismatch)[:1]
        ]
    if not why:
        return None
    who = ranks_phrase(culprits)
    return Match(
        "uneven_loader",
        culprits,
        f"{who} left the loop: {why}",
        strength=min(2, strength),
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


def _forward(d: Difference) -> bool:
    """Return whether the peers wait in something that a model's forward or backward calls, not a line of the user's."""
    return d.peer is not None and any(
        "/torch/nn/" in f.file or "fsdp" in f.file.lower() for f in d.peer.stack
    )
