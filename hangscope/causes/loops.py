"""Rules about loops that end earlier on some ranks: by their collective, their own output, or the numbers of steps that they print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Absent, Different, Unseen
from hangscope.ingest.job_logs.activity import Held
from hangscope.ingest.job_logs.progress import LoopLength, Progress
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.incident import Event
from hangscope.model.rankset import agree

_OVER = "exited the training loop early, according to its own output"
_SAVES = frozenset({"checkpoint", "weights"})


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding, d = case.finding, Difference(case)
    culprits, over = finding.culprits, d.steps.loop_over
    if isinstance(finding, Different):
        return None if d.steps.skips else _by_its_call(d)
    held = any(case.statements.of(rank, Held) for rank in culprits)  # what it does since then is known
    if not isinstance(finding, Absent | Unseen) or over is None or held:
        return None
    others = [e for r in culprits for e in case.statements.of(r, GlooSizeMismatch)[:1]]
    return _left(culprits, 1 if isinstance(finding, Unseen) else 2, _OVER, [over, *others])


def _left(culprits: Sequence[int], strength: int, what: str, evidence: Iterable[Event] = ()) -> Match:
    return answer("uneven_loader", culprits, f"{who(culprits)} {what}", strength=strength, evidence=evidence)


def _by_its_call(d: Difference) -> Match | None:
    """Return what the culprits' step count or collective shows, where nothing shows that they went on inside the loop."""
    finding, culprits, over = d.finding, d.finding.culprits, d.steps.loop_over
    if finding.change.realigned or finding.tie:
        return None  # its collectives match again after the edit
    if d.steps.shorter is not None and not d.steps.skips:
        steps, most, line = d.steps.shorter
        what = f"{agree(culprits, 'has', 'have')} {steps} steps in the loop, the others {most}"
        return _left(culprits, 2, what, [line])
    if d.ends_epochs:
        # A step that it skipped leaves the same collectives: only its own output shows which it was.
        are = agree(culprits, "is", "are")
        what = f"{are} already in the collective that ends an epoch, after fewer steps"
        strength = 2 if over is not None or d.steps.behind else int(len(d.steps.own) == len(culprits))
        return _left(culprits, strength, what, filter(None, [over]))
    if d.stays_inside:
        return None
    if over is not None:
        return _left(culprits, 1, _OVER, [over])
    # What rank 0 alone does after a step (a print, a sample, a checkpoint) is rather its own collective.
    if d.inside or d.beyond is None or culprits == (0,):
        return None
    of_a_model = any("/torch/nn/" in f.file or "fsdp" in f.file.lower() for f in d.peer.stack)
    if not (d.peer_gradient or of_a_model or d.peer.is_p2p) and finding.stuck.before:
        return None  # a loop of collectives by hand, not of a model's passes: an extra one at its end looks the same
    # Which of two ranks ran a step too many is not known. In the loop's own function, the handler of an exception or an
    # extra collective of one rank looks the same, and some ranks write a checkpoint at the end of a step as well.
    view = finding.stuck.view
    even = view is not None and len(view.members) == 2 * len(culprits)
    saves = d.case.knowledge.read(d.own_stack).kind in _SAVES
    # On a group that nobody has used before, one rank may issue anything.
    unheard_of = len(culprits) == 1 and finding.change.elsewhere and finding.own.seq == 1
    sure = not even and not saves and not unheard_of and (len(culprits) > 1 or d.out_of_their_function)
    what = f"exited the training loop early{at(d.beyond)}; the others are still in it"
    return _left(culprits, int(sure), what if sure else f"probably {what}")


def unequal_loops(case: Case) -> Match | None:
    """Ranks print how many steps their loops have, and one has the fewest: the others wait for it once it is through."""
    said: list[LoopLength | Progress] = [*case.statements.all(LoopLength), *case.statements.all(Progress)]
    # reversed, so that who prints a length of its own is not judged by a bar
    lengths = {e.rank: (e.total, e) for e in reversed(said) if e.rank is not None and e.total is not None}
    least = min((total for total, _ in lengths.values()), default=0)
    short = [rank for rank, (total, _) in lengths.items() if total == least]
    dumped = any(record.dump_file for record in case.incident.ranks.values())
    if dumped or len(short) != 1 or len(lengths) < 2 or case.finding.culprits not in ((), tuple(short)):
        return None
    others = {rank: total for rank, (total, _) in lengths.items() if rank not in short}
    last = max(
        (e for e in case.statements.all(Progress) if e.step is not None),
        key=lambda e: e.step or 0,
        default=None,
    )
    if last is None or last.step not in (least - 1, least):
        return None
    rest = " to ".join(map(str, sorted({min(others.values()), max(others.values())})))
    why = f"{who(short)} has {least} steps in its loop, the others {rest}; the output stops at step {last.step}, where {who(short)} is through"
    return answer("uneven_loader", short, why, evidence=[*(e for _, e in lengths.values()), last][:6])
