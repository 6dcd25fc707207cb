"""The rule about loops that end at different steps on different ranks."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.causes.difference import Difference
from hangscope.conclusion import Evidence
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Absent, Different, Unseen
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.store import JoinExhausted
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch


@dataclass(frozen=True, slots=True)
class Reading:
    """Why the culprits left the loop, and how sure that is (0 to 2)."""

    strength: int
    why: str
    evidence: tuple[Evidence, ...] = ()


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding, d = case.finding, Difference(case)
    culprits = finding.culprits
    exhausted = case.statements.all(JoinExhausted)
    if exhausted:
        own = {
            e.rank for e in exhausted if e.rank is not None and e.group_rank is not None
        }  # the others name no number
        culprits = tuple(sorted(own)) or culprits
        it = "it" if len(culprits) < 2 else "they"
        return _left(
            case, d, culprits, Reading(2, f"{it} ran out of inputs", tuple(map(quote, exhausted[:2])))
        )
    told = d.steps.loop_over(culprits) if culprits else None
    if isinstance(finding, Different):
        counted = _counted(d, culprits)
        if counted is not None:
            return _left(case, d, culprits, counted)
        if finding.change.edit is not None or finding.tie:
            return None  # its calls match again behind the edit: it went on inside the loop
        if d.peer_ends_epochs and not d.steps.ran_further(culprits) and not d.steps.skips(culprits):
            return _has_more(case, d, culprits)
        behind = None if _inside(d, told) else _behind_the_loop(d, culprits, told)
        return _left(case, d, culprits, behind) if behind is not None else None
    if isinstance(finding, Absent | Unseen) and told is not None:
        return _left(case, d, culprits, _said_so(case, culprits, told))
    return None


def _left(case: Case, d: Difference, culprits: tuple[int, ...], reading: Reading) -> Match:
    who = ranks_phrase(culprits)
    return Match(
        "uneven_loader",
        culprits,
        f"{who} left the loop: {reading.why}",
        strength=min(2, reading.strength),
        category="data",
        evidence=list(reading.evidence),
        frame=case.frame_of(d.own),
        advice=_batches(who),
    )


def _has_more(case: Case, d: Difference, culprits: tuple[int, ...]) -> Match:
    """Return the answer where the culprits began one more step, and their peers are behind the loop."""
    who = ranks_phrase(culprits)
    its, has = ("its", "it has") if len(culprits) < 2 else ("their", "they have")
    return Match(
        "uneven_loader",
        culprits,
        f"{who} began one more step while {its} peers are already in the call behind the loop: {has} more batches",
        strength=0,  # a rank that leaves out the call behind the loop and begins the next epoch leaves the same record
        frame=case.frame_of(d.own),
        advice=_batches(who),
    )


def _counted(d: Difference, culprits: tuple[int, ...]) -> Reading | None:
    """Return what the output of the culprits and of those who wait counts, where the totals differ."""
    counted = d.steps.uneven(culprits)
    if counted is None or d.steps.skips(culprits):
        return None
    line, theirs = counted
    number = "fewer" if (line.total or 0) < (theirs.total or 0) else "more"
    why = f"its output counts {line.total} steps, {number} than the others' {theirs.total}"
    return Reading(2, why, (quote(line), quote(theirs)))


def _inside(d: Difference, told: Progress | None) -> bool:
    """Return whether the culprit's call is of the loop, so that it went on in it."""
    if d.stays_inside or (d.own is not None and d.history[-1:] == [d.own]):
        return True  # the call that all have just made, once more: one too many before shifted it
    inside = d.in_loop_before or (d.position is not None and d.position[0] == "inside")
    if d.own is not None and not d.ends_epochs and told is None and inside:
        return True
    return d.differs in ("shape", "dtype") and bool(d.same_site) and not d.another_call


def _behind_the_loop(d: Difference, culprits: tuple[int, ...], told: Progress | None) -> Reading | None:
    """Return what places the culprits' call behind the loop that their peers are in."""
    its, it_is = ("its", "it is") if len(culprits) < 2 else ("their", "they are")
    strength, why = 0, ""
    if d.ends_epochs:
        strength = 2 if d.steps.heard(culprits) else 0  # a step that was skipped leaves the same calls
        why = f"{it_is} already in the call that ends an epoch, after fewer steps than {its} peers"
    elif d.position is not None and d.position[0] == "beyond":
        if culprits == (0,) and told is None:
            return None  # what rank 0 alone does behind a step (a print, a sample, a checkpoint) is rather its own call
        handmade = not (d.peer_gradient or told or d.finding.stuck.history is None) and not _forward(d)
        if handmade and not d.left_between_rounds:
            return None  # a loop of hand-made calls: an extra call at its end looks the same
        # In the loop's own function, the handler of an exception or an extra call of one rank looks the same.
        strength = int(len(culprits) > 1 or d.out_of_their_function)
        why = f"{its} call stands at {d.position[1]}, beyond the lines of the loop that {its} peers are in"
    if told is None:
        return Reading(strength, why) if why else None
    says = f"{its} own output says that the loop is over"
    line = quote(told, f"rank {told.rank}'s output: {told.text}")
    return Reading(max(strength, 1) + bool(why), f"{why} and {says}" if why else says, (line,))


def _said_so(case: Case, culprits: tuple[int, ...], told: Progress) -> Reading:
    """Return the culprits' own word that their loop is over, where they were not seen in another call."""
    others = [
        quote(e, f"its buffer held {e.expected} bytes where a peer sent {e.received}: it was in another call")
        for rank in culprits
        for e in case.statements.of(rank, GlooSizeMismatch)[:1]
    ]
    its = "its" if len(culprits) < 2 else "their"
    line = quote(told, f"rank {told.rank}'s output: {told.text}")
    strength = 1 if isinstance(case.finding, Unseen) else 2
    return Reading(strength, f"{its} own output says that the loop is over", (line, *others))


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
