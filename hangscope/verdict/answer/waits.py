"""Who timed out in which collective, how many ranks take part in it, and who of them is not shown."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import size_by_elements, world_size
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.printed import Printed
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogStatus, WatchdogTimeout
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.answer.observation import Observation, clock, others_of, who
from hangscope.verdict.answer.wait import Wait, span_of, waits
from hangscope.verdict.status import trouble

_FEW_NUMBERS, _APART = 16, 64  # elements of a call for a number, and how many times as many another has
_FIRST = 5  # collectives of a group that are still its start
_LARGE = 2**31
_POINT_TO_POINT = frozenset({"send", "recv", "coalesced"})
_OF_A_ROOT = {
    "broadcast": "its source", "scatter": "its source", "gather": "its destination", "reduce": "its destination",
}  # fmt: skip


def timeouts(case: Case) -> Observation | None:
    """Read the watchdogs' timeouts, held against the size of their group."""
    told = waits(case)
    if not told:
        return None
    if len(told) > 1:
        return _of_sizes(told) or _several(told)
    wait, world = told[0], world_size(case.statements)
    size = wait.size(world)
    number = ""
    if size and size_by_elements(wait.first):
        number = f", so {size} ranks take part"
    elif size:
        number = f"; the job has {size} ranks"
    shows = f"{wait.who()} timed out after {span_of(wait)} in {wait.call()}{_clock(wait)}{number}{_status(case, wait)}{_place(wait)}"
    if size is not None and len(wait.ranks) == size:
        return _complete(wait, shows, size)
    whole = wait.default or size == world or (size is not None and not wait.group[0] and not wait.local)
    missing = others_of(size, wait.ranks) if whole and not wait.repeats else ()
    if size is None and not wait.local:
        missing = _silent(case, wait) or _gaps(wait)
    if len(missing) == 1 or (missing and size is None):
        return _left_over(case, wait, shows, missing)
    text = _to_compare(wait, missing, size)
    sized = any(e.sized for e in case.statements.all(Excerpt))
    return Observation(
        shows,
        _meaning(wait, size, missing, sized),
        Collect(missing, "log", text),
        missing,
        True,
        False,
        wait.events,
    )


def _silent(case: Case, wait: Wait) -> tuple[int, ...]:
    """Return the ranks whose own output is in this text, and that print no timeout: at most half as many as do."""
    failed = {e.rank for e in trouble(case)}
    speak = case.statements.ranks(Printed) - {*wait.ranks, *failed}
    return tuple(sorted(speak)) if speak and 2 * len(speak) <= len(wait.ranks) else ()


def _gaps(wait: Wait) -> tuple[int, ...]:
    """Return the numbers that are left out among those of the ranks of a whole job: few, between others."""
    left = tuple(sorted(set(range(max(wait.ranks, default=0))) - set(wait.ranks)))
    whole = wait.default or not wait.group[0]
    return left if whole and left and 4 * len(left) <= len(wait.ranks) else ()


def _left_over(case: Case, wait: Wait, shows: str, missing: tuple[int, ...]) -> Observation:
    """Return the answer where few ranks are left that did not time out with all others."""
    last = {r: e for r in missing for e in case.statements.of(r, Printed)}
    printed = {r: e.texts[e.numbers.index(max(e.numbers))] for r, e in last.items() if e.numbers}
    whose = ranks_phrase(missing)
    lead = "They are witnesses" if len(wait.ranks) > 1 else "Who prints this is a witness"
    means = f"{lead}, and {whose} did not report that wait: {agree(missing, 'it', 'they')} may never have made the call, may have died, or may wait in it as well."
    if len(printed) == 1:
        rank, line = next(iter(printed.items()))
        shows += f". The last that rank {rank} printed is '{' '.join(line.split())[:110]}'"
    text = f"a stack of {whose} (py-spy dump), and {agree(missing, 'its', 'their')} log from that moment on"
    return Observation(shows, means, Collect(missing, "stack", text), missing, True, False, wait.events)


def failed(case: Case) -> Observation | None:
    """Read in which call ranks were when NCCL reported an error of a peer to them."""
    told = [e for e in case.statements.all(AsyncError) if e.op]
    if not told or case.statements.all(WatchdogTimeout):
        return None
    e = told[0]
    ranks = sorted({x.rank for x in told if x.rank is not None and (x.op, x.seq) == (e.op, e.seq)})
    seq = f" seq {e.seq}" if e.seq is not None else ""
    shows = f"{e.op}{seq} of {who(ranks)} failed with NCCL's {e.error} error"
    return Observation(shows, "", None, (), True, False, tuple(told))


def _clock(wait: Wait) -> str:
    """Return from when to when the first of them waited, by its own clock."""
    e = min(wait.events, key=lambda e: e.stamp or 0.0)
    if e.stamp is None or e.ran_ms is None:
        return ""
    return f", from {clock(e.stamp - e.ran_ms / 1000)} to {clock(e.stamp)}"


def _status(case: Case, wait: Wait) -> str:
    """Return how far a waiting rank's own counters are, where they are printed, and how often Ray left the line out."""
    repeats = f"; the line was repeated {wait.repeats} times across the cluster" if wait.repeats else ""
    told = [e for e in case.statements.all(WatchdogStatus) if e.seq == wait.first.seq]
    if not told:
        return repeats
    e = told[0]
    done = "nothing" if e.last_completed < 0 else str(e.last_completed)
    started = f", started {e.last_started}" if e.last_started is not None and e.last_started >= 0 else ""
    flying = e.last_enqueued - max(e.last_completed, 0)
    calls = f", {flying} collectives in flight" if flying > 1 else ""
    whose = "it" if len(wait.ranks) < 2 else who([e.rank] if e.rank is not None else [], "one of them")
    return f"; {whose} had enqueued {e.last_enqueued}{started} and completed {done}{calls}{repeats}"


def _place(wait: Wait) -> str:
    """Return what the number of the collective says of the moment."""
    seq = wait.first.seq
    if seq is not None and seq <= _FIRST:
        return f"; it is only number {seq} of that group, so the job stopped almost at its start"
    if (wait.first.numel_in or 0) > _LARGE:
        return "; its input has more than 2^31 elements, which proves nothing but is worth a look"
    return ""


def _meaning(wait: Wait, size: int | None, missing: Sequence[int], sized: bool) -> str:
    label = (
        " (the number counts within that group)" if wait.local and wait.group[0] and not wait.default else ""
    )
    several = len(wait.ranks) > 1
    victims = f"{'They are witnesses' if several else 'A rank that prints this is a witness'}{label} and not the culprit"
    root = ""
    if (part := _OF_A_ROOT.get(wait.first.op)) and 0 not in wait.ranks:
        root = f" A {wait.first.op} waits for {part}, usually rank 0, which is not shown."
    if wait.first.op in _POINT_TO_POINT:
        return f"{victims}: its partner in the exchange, usually the neighbouring pipeline stage, did not post its half, or the connection did not come up."
    if wait.repeats:
        told = len(wait.ranks) + wait.repeats
        rest = (
            f", so {told} of {size} members reported it and {size - told} did not"
            if size and told < size
            else ""
        )
        return f"{victims}{rest}: who did not come is a member of whom no such line is kept, and Ray's driver does not show which."
    if size is None and _may_be_all(wait):
        unsaid = "" if sized else ": the size of the group is not stated"
        return f"{victims}. If the job has these {len(wait.ranks)} ranks only, nobody is missing and the operation itself did not finish (transport, a GPU, or an earlier kernel); else the rank that did not come is one that is not shown here{unsaid}.{root}"
    if size is None:
        unsaid = ":" if sized else "; the size of the group is not stated, so"
        return f"{victims}{unsaid} the rank that did not come is probably one that is not shown here.{root}"
    left = size - len(wait.ranks)
    if left == 1:
        return f"{victims}: the one other member may never have made the call, may have died, or may wait in it as well; its lines are not here."
    listed = f" ({ranks_phrase(missing)})" if missing else ""
    return f"{victims}: {left} of the {size} members{listed} are not shown, and which of them did not come cannot be told.{root}"


def _may_be_all(wait: Wait) -> bool:
    """Return whether the ranks that waited are numbered from 0 on, as those of a whole job are."""
    ranks = wait.ranks
    return len(ranks) > 1 and ranks == tuple(range(len(ranks))) and (wait.default or not wait.group[0])


def _to_compare(wait: Wait, missing: Sequence[int], size: int | None) -> str:
    seq = f" {wait.first.seq}" if wait.first.seq is not None else ""
    whose = "of all other ranks"
    if missing:
        whose = f"of {ranks_phrase(missing)}"
    elif size and not wait.repeats:
        rest = size - len(wait.ranks)
        whose = "of the one other member" if rest == 1 else f"of the other {rest} members"
    root = _OF_A_ROOT.get(wait.first.op)
    if root and 0 not in wait.ranks:
        return f"the log and the stack of {root} (usually rank 0) first, then the watchdog lines {whose}"
    if size is None and _may_be_all(wait):
        return "how many ranks the job has; of all others the same lines, and if there are none, NCCL_DEBUG=INFO and the flight recorder of these: whether the operation had started on each"
    if wait.repeats:
        return "the files of every worker (/tmp/ray/session_latest/logs/worker-*.err): the one without this timeout"
    return f"the watchdog lines, or flight recorder dumps, {whose}: the one whose last enqueued number is below{seq or ' the others'}, or that printed no timeout"


def _complete(wait: Wait, shows: str, size: int) -> Observation:
    means = f"These are all {size} members of the group, each in the same collective, so none is missing: the operation itself did not finish (transport, a GPU, or an earlier kernel on the stream). Nobody can be blamed by this."
    text = "NCCL_DEBUG=INFO and the flight recorder of every rank: whether its kernel had started; then a bandwidth test between the GPUs"
    return Observation(shows, means, Collect(wait.ranks, "dump", text), (), True, False, wait.events)


def _of_sizes(told: Sequence[Wait]) -> Observation | None:
    """Read timeouts in one collective of different sizes: who passes another one than most."""
    if len({(w.first.op, w.first.seq, w.group) for w in told}) > 1 or told[0].first.numel_in is None:
        return None
    few, most = told[-1], told[0]
    seq = f" seq {most.first.seq}" if most.first.seq is not None else ""
    sizes = "; ".join(f"{w.who()} with {w.first.numel_in} elements" for w in told[:4])
    shows = f"one collective, {most.first.op}{seq}, timed out with different sizes: {sizes}"
    events = tuple(e for w in told for e in w.events)
    odd = len(few.ranks) < len(most.ranks)
    suspects = few.ranks if odd else tuple(sorted({r for w in told for r in w.ranks}))
    means = f"Only the size differs, so the ranks do not disagree on the call but on what they put in{f': {few.who()} is the one' if len(few.ranks) == 1 and odd else ''}."
    numbers = sorted(w.first.numel_in or 1 for w in told)
    if numbers[0] <= _FEW_NUMBERS and numbers[-1] >= _APART * numbers[0]:
        means = f"{numbers[0]} element{'s' if numbers[0] > 1 else ''} against {numbers[-1]} are not one call with another shape but two: a number (a count, a loss, a metric, a flag) against gradients or activations. The programs parted before this call{f', and {few.who()} is the one elsewhere' if odd else ''}."
        text = f"what {who(suspects)} printed last, and which line of the program makes the smaller call: the end of a loop, an evaluation, a log step"
        return Observation(shows, means, Collect(suspects, "log", text), suspects, True, odd, events)
    text = f"the shapes of that step on {ranks_phrase(suspects)} and one other rank: a last or shorter batch, a variable length, a branch"
    return Observation(shows, means, Collect(suspects, "log", text), suspects, True, odd, events)


def _several(told: Sequence[Wait]) -> Observation:
    """Read timeouts in several collectives: of one group they show where the ranks' programs part, or who is behind."""
    shown = "; ".join(f"{w.who()} timed out after {span_of(w)} in {w.call()}" for w in told[:3])
    more = f"; {len(told) - 3} more such waits" if len(told) > 3 else ""
    names = {w.group for w in told}
    ranks = tuple(sorted({r for w in told for r in w.ranks}))
    apart = [w for w in told[1:] if set(w.ranks).isdisjoint(told[0].ranks)]
    events = tuple(e for w in told for e in w.events)
    if len(names) > 1 or not apart:
        means = "They are collectives of different groups or moments, so one wait may be the consequence of another: the first to time out is nearest to the root cause."
        text = "the earliest timeout of every rank, with its group: follow which rank waits for which, back to the first one without a timeout"
        return Observation(shown + more, means, Collect((), "log", text), (), True, False, events)
    low, high = (pick(told, key=lambda w: w.first.seq or 0) for pick in (min, max))
    gap = (high.first.seq or 0) - (low.first.seq or 0)
    unnamed = ("", "") in names
    maybe = (
        "If this is one group (the lines do not name the group; different groups with their own counters are possible)"
        if unnamed
        else "In one group"
    )
    ahead = f"{high.who()} is {gap} collectives ahead and " if gap else ""
    means = f"{maybe}{',' if unnamed else ''} {ahead}the ranks run different collectives{'' if gap else ' at one number'}: a mismatch. Their sequences parted earlier, and which side left the plan cannot be told."
    text = f"the code that {who(ranks, 'these ranks')} run there (a branch on the rank or the data); a rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL stops at the first collective that differs"
    suspects = ranks if len(ranks) <= 8 else ()
    return Observation(shown + more, means, Collect(ranks, "dump", text), suspects, True, False, events)
