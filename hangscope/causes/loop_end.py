"""The rule about loops that end at different steps on different ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case, Match, answer, at, who
from hangscope.causes.difference import Difference
from hangscope.explain.finding import Absent, Different, Unseen
from hangscope.ingest.torch_logs.store import JoinExhausted
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Event
from hangscope.model.rankset import agree

_SAVES = frozenset({"checkpoint", "weights"})
_OVER = "exited the training loop early, according to its own output"


def left_the_loop(case: Case) -> Match | None:
    """A rank left the loop while its peers began one more step."""
    finding, d = case.finding, Difference(case)
    culprits, over = finding.culprits, d.steps.loop_over
    if exhausted := case.statements.all(JoinExhausted):  # who names no number speaks of others
        own = {e.rank for e in exhausted if e.rank is not None and e.group_rank is not None}
        return _left(sorted(own) or culprits, 2, "ran out of inputs", exhausted[:2])
    if isinstance(finding, Different):
        return None if d.steps.skips else _by_its_call(d)
    if not isinstance(finding, Absent | Unseen) or over is None:
        return None
    others = [e for r in culprits for e in case.statements.of(r, GlooSizeMismatch)[:1]]
    return _left(culprits, 1 if isinstance(finding, Unseen) else 2, _OVER, [over, *others])


def _left(
    culprits: Sequence[int], strength: int, what: str, evidence: Iterable[Evidence | Event] = ()
) -> Match:
    return answer(
        "uneven_loader",
        culprits,
        f"{who(culprits)} {what}",
        f"Give every rank the same number of batches: compare len(loader), sampler and drop_last of {who(culprits)} with those of the others.",
        "For inputs that are uneven on purpose, wrap the loop in torch.distributed.algorithms.Join, or agree on min(len(loader)) over ranks before the epoch.",
        strength=strength,
        evidence=evidence,
    )


def _by_its_call(d: Difference) -> Match | None:
    """Return what the culprits' count of steps or their call tells, where nothing shows that they went on inside the loop."""
    finding, culprits, told = d.finding, d.finding.culprits, d.steps.loop_over
    if finding.change.realigned or finding.tie:
        return None  # its calls match again behind the edit
    if d.ends_epochs:
        # A step that it skipped leaves the same calls: only its own output tells of one.
        what = (
            f"{agree(culprits, 'is', 'are')} already in the collective that ends an epoch, after fewer steps"
        )
        return _left(culprits, 2 if len(d.steps.own) == len(culprits) else 0, what, filter(None, [told]))
    if d.stays_inside:
        return None
    if told is not None:
        return _left(culprits, 1, _OVER, filter(None, [told]))
    # What rank 0 alone does behind a step (a print, a sample, a checkpoint) is rather its own call.
    if d.of_the_loop or d.beyond is None or culprits == (0,):
        return None
    of_a_model = any("/torch/nn/" in f.file or "fsdp" in f.file.lower() for f in d.peer.stack)
    if not (d.peer_gradient or of_a_model or d.peer.is_p2p) and finding.stuck.before:
        return None  # a loop of calls made by hand, not in a model's forward or backward: an extra one at its end looks the same
    # Who of two made a step too many is not told.
    view = finding.stuck.view
    even = view is not None and len(view.members) == 2 * len(culprits)
    # In the loop's own function, the handler of an exception or an extra call of one rank looks the same.
    # A checkpoint is written at the end of a step as well, and by some ranks where a condition lets them.
    saves = d.case.knowledge.read(d.own_stack).kind in _SAVES
    sure = int(not even and not saves and (len(culprits) > 1 or d.out_of_their_function))
    where = f"{at(d.beyond)}; the others are still in it"
    return _left(culprits, sure, f"exited the training loop early{where}")
