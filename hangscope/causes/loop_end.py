"""The rule about loops that end at different steps on different ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Absent, Different, Unseen
from hangscope.ingest.torch_logs.store import JoinExhausted
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.incident import Event
from hangscope.model.rankset import agree

_SAVES = frozenset({"checkpoint", "weights"})
_OVER = "exited the training loop early, according to its own output"


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding, d = case.finding, Difference(case)
    culprits, over = finding.culprits, d.steps.loop_over
    if exhausted := case.statements.all(JoinExhausted):  # a line without a number is about the others
        own = {e.rank for e in exhausted if e.rank is not None and e.group_rank is not None}
        return _left(sorted(own) or culprits, 2, "ran out of inputs", exhausted[:2])
    if isinstance(finding, Different):
        return None if d.steps.skips else _by_its_call(d)
    if not isinstance(finding, Absent | Unseen) or over is None:
        return None
    others = [e for r in culprits for e in case.statements.of(r, GlooSizeMismatch)[:1]]
    return _left(culprits, 1 if isinstance(finding, Unseen) else 2, _OVER, [over, *others])


def _left(culprits: Sequence[int], strength: int, what: str, evidence: Iterable[Event] = ()) -> Match:
    return answer("uneven_loader", culprits, f"{who(culprits)} {what}", strength=strength, evidence=evidence)


def _by_its_call(d: Difference) -> Match | None:
    """Return what the culprits' step count or collective shows, where nothing shows that they went on inside the loop."""
    finding, culprits, over = d.finding, d.finding.culprits, d.steps.loop_over
    if finding.change.edit is not None or finding.tie:
        return None  # its collectives match again after the edit
    if d.ends_epochs:
        # A step that it skipped leaves the same collectives: only its own output shows which it was.
        what = (
            f"{agree(culprits, 'is', 'are')} already in the collective that ends an epoch, after fewer steps"
        )
        return _left(culprits, 2 if len(d.steps.own) == len(culprits) else 0, what, filter(None, [over]))
    if d.stays_inside:
        return None
    if over is not None:
        return _left(culprits, 1, _OVER, [over])
    # What rank 0 alone does after a step (a print, a sample, a checkpoint) is rather its own collective.
    if d.inside or d.beyond is None or culprits == (0,):
        return None
    of_a_model = any("/torch/nn/" in f.file or "fsdp" in f.file.lower() for f in d.peer.stack)
    if not (d.peer_gradient or of_a_model or finding.stuck.history is None):
        return None  # a loop of collectives by hand, not of a model's passes: an extra one at its end looks the same
    # Which of two ranks ran a step too many is not known. In the loop's own function, the handler of an exception or an
    # extra collective of one rank looks the same, and some ranks write a checkpoint at the end of a step as well.
    view = finding.stuck.view
    even = view is not None and len(view.members) == 2 * len(culprits)
    saves = d.case.knowledge.read(d.own_stack).kind in _SAVES
    sure = not even and not saves and (len(culprits) > 1 or d.out_of_their_function)
    return _left(
        culprits, int(sure), f"exited the training loop early{at(d.beyond)}; the others are still in it"
    )
