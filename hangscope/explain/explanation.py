"""Which finding explains a freeze best: all that the dumps allow, weighed by what each leaves unexplained.

Order of suspicion at a root: calls that cannot match; a pair of unequal sizes; a seen member that is absent; a device
that lags; a member that left no dump; a circular wait; a call that all joined and none completes. What was not chosen is
kept with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Absent,
    Candidate,
    Different,
    Explanation,
    Finding,
    Lagging,
    Miscounted,
    Nothing,
    Source,
    Stalled,
    Unpaired,
    Unseen,
    Weighed,
    price,
)
from hangscope.explain.generate.absence import seen_absent, suspects, the_only_suspect, unseen
from hangscope.explain.generate.agreement import disagreement
from hangscope.explain.generate.circles import apart, circular
from hangscope.explain.generate.deviation import deviating
from hangscope.explain.generate.device_lag import device_lag, one_not_begun, pending_call
from hangscope.explain.generate.mismatches import first_mismatch
from hangscope.explain.generate.pairs import unequal_pair
from hangscope.explain.generate.unrecorded import miscounted
from hangscope.explain.statements.bounds import behind
from hangscope.explain.text.hypotheses import findings
from hangscope.explain.text.partitions import decided
from hangscope.model import incident
from hangscope.model.rankset import counted

PROVEN = (
    0.95  # the share of the waiting ranks that ranks account for whose program parts from that of their role
)


def explain(aligned: Aligned) -> Explanation:
    """Return the finding that fits best, with its rivals; `Nothing` if nothing is pending and no line shows a root."""
    lagging, of_a_device = device_lag(aligned)
    found = _of_calls(aligned, of_a_device)
    weighed = _of_more_ranks(_by_places([*_by_calls(aligned, found, lagging), *_by_text(aligned)]))
    if not weighed and (only := the_only_suspect(aligned) or one_not_begun(aligned)) is not None:
        weighed = [Weighed(only, Source.CALLS, 0.0)]
    if not weighed:
        return Explanation(Nothing(), from_text=True, suspects=suspects(aligned, Nothing()))
    weighed.sort(key=lambda w: -w.score)  # of equals the first, which is of the more certain kind
    placed = [
        w.finding.culprits
        for w in weighed
        if w.source is Source.SILENCE and isinstance(w.finding, Different) and not w.finding.tie
    ]
    best, source = decided(weighed[0].finding, aligned.stated, *placed[:1]), weighed[0].source
    alike = [w.finding for w in weighed if w.source is source]
    set_aside = [candidate for finding in alike for candidate in finding.set_aside]
    for finding in alike:
        if set(finding.culprits) - set(best.culprits):
            why = f"accounts for {counted(finding.explained, 'blocked rank')}, "
            fewer = finding.explained < best.explained
            why += f"the verdict for {best.explained}" if fewer else "but on weaker evidence than the verdict"
            set_aside.append(Candidate(finding.culprits, finding.name, why))
    died = {death.rank for death in aligned.stated.deaths}
    # Ranks that stopped, ended or lag by what was seen of themselves, and not by what others wait for.
    own = (f for f in found if died.issuperset(f.culprits) or not isinstance(f, Unseen))
    rivals = tuple(f for f in own if f is not best and isinstance(f, Absent | Lagging | Unseen))
    if isinstance(best, Miscounted):
        rivals = ()  # who has not come waits in a send or receive that no recorder keeps
    recorded = any(
        r.calls_file and r.absence is not incident.Absence.TOLD for r in aligned.incident.ranks.values()
    )
    from_text = source is not Source.CALLS or not recorded
    if source is Source.CALLS:
        best = _with_its_lines(aligned, best, from_text)
    suspected = suspects(aligned, best)
    return Explanation(
        best, from_text, rivals, tuple(set_aside), tuple(weighed), suspected, aligned.contradictions
    )


def _by_places(weighed: list[Weighed]) -> list[Weighed]:
    """Return the findings, that all of a group are in one call after what shows them at different lines of the program.

    A watchdog prints an op and a number: NCCL's barrier is an all_reduce there, like a bucket of gradients.
    """
    apart = {
        r
        for w in weighed
        if w.source is Source.SILENCE and isinstance(w.finding, Different)
        for r in w.finding.culprits
    }
    return [
        replace(w, score=w.score - 1)
        if isinstance(w.finding, Stalled)
        and w.finding.stuck.kind is not None
        and w.finding.stuck.kind.told  # only lines, and no recorder, state that call
        and apart.intersection(w.finding.waiting)
        else w
        for w in weighed
    ]


def _of_more_ranks(weighed: list[Weighed]) -> list[Weighed]:
    """Return the findings, those by the dumps of some ranks after what more ranks say of the calls that they were in."""
    said = max(
        (_compared(w) for w in weighed if w.source is Source.OWN_WORDS and w.finding.culprits), default=0
    )
    less = 2 * price(Different(), Source.OWN_WORDS)
    return [
        # That a rank left no dump says nothing against a mismatch that ranks report.
        replace(w, score=w.score - (1 if isinstance(w.finding, Unseen) else less))
        if w.source is Source.CALLS and isinstance(w.finding, Different | Unseen) and _compared(w) < said
        else w
        for w in weighed
    ]


def _compared(weighed: Weighed) -> int:
    """Return of how many ranks a finding has the calls."""
    finding = weighed.finding
    return len({*finding.waiting, *(() if isinstance(finding, Unseen) else finding.culprits)})


def _with_its_lines(aligned: Aligned, finding: Finding, from_text: bool) -> Finding:
    """Return a finding by calls with the lines that state them, where no recorder does, and with what both assume."""
    view = finding.stuck.view
    lines = behind(aligned.stated, finding.waiting, finding.culprits) if from_text else []
    assumed = finding.assumed or (view is not None and incident.ASSUMED in view.group.name)
    return replace(finding, assumed=assumed or any(e.rank_assumed for e in lines), events=tuple(lines))


def _of_calls(aligned: Aligned, of_a_device: Lagging | None) -> list[Finding]:
    """Return the roots that the calls show, those of a more certain kind first."""
    mismatch, deviation = disagreement(aligned) or first_mismatch(aligned), deviating(aligned)
    found: list[Finding | None] = [
        mismatch,
        unequal_pair(aligned),
        miscounted(aligned),
        seen_absent(aligned),
        of_a_device,
        unseen(aligned),
        circular(aligned),
        pending_call(aligned),
    ]
    if deviation is not None:
        found[:1] = _proven_by_peers(mismatch, deviation)
    few = apart(aligned) if not any(found) else None
    return [finding for finding in (*found, few) if finding is not None]


def _proven_by_peers(mismatch: Different | None, deviation: Different | Unpaired) -> list[Finding | None]:
    """Return both findings, the more certain one first; as one where they name the same ranks, and only the group's collectives show what differs."""
    change = deviation.change
    shown = change.skipped or change.added or change.swapped
    if not shown and mismatch is not None and mismatch.culprits == deviation.culprits:
        return [replace(mismatch, change=replace(mismatch.change, votes=change.votes))]
    return [deviation, mismatch] if change.votes else [mismatch, deviation]


def _by_calls(aligned: Aligned, found: Sequence[Finding], lagging: frozenset[int]) -> list[Weighed]:
    if aligned.stated.deaths and any(isinstance(f, Unseen) for f in found):
        # The peers of a rank that died abort their communicators, which completes collectives of some and not of others.
        found = [f for f in found if not isinstance(f, Lagging)]

    def share(f: Finding) -> float:
        # A dump that is older than its peers' shows a lag of its own making: a rank that merely lags is no victim.
        part = len(f.reached - lagging) / max(1, len(set(f.waiting) - lagging))
        # What peers of the same role prove needs no count: a short buffer hides which rank waits for which.
        return max(part, PROVEN) if f.change.votes > 1 else part

    return [Weighed(f, Source.CALLS, share(f) - price(f, Source.CALLS)) for f in found]


def _by_text(aligned: Aligned) -> list[Weighed]:
    """Return what text states, compared with the calls that are pending."""
    replay, weighed = aligned.replay, []
    for finding, source in findings(aligned.incident, aligned.stated):
        culprits = frozenset(finding.culprits)
        if source is Source.SILENCE and culprits and culprits <= replay.waiting:
            records = (aligned.incident.ranks[r] for r in culprits)
            by_lines = all(r.absence is incident.Absence.TOLD for r in records)
            if not by_lines or not isinstance(finding, Different) or finding.tie:
                continue  # it printed no error, and its dump shows it in a call all the same
        left = replay.stuck(culprits) - culprits if culprits else frozenset()
        share = 1 - len(left) / max(1, len(replay.waiting - culprits))
        weighed.append(Weighed(finding, source, share - price(finding, source)))
    return weighed
