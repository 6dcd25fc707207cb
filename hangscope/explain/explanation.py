"""Which finding explains a freeze best: all that dumps and text allow, weighed by what each leaves unexplained."""

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
from hangscope.explain.generate.circles import apart, circular, miscounted, unequal_pair
from hangscope.explain.generate.deviation import deviating
from hangscope.explain.generate.device_lag import device_lag, one_not_begun, pending_call
from hangscope.explain.generate.mismatches import first_mismatch, other_members, other_root
from hangscope.explain.statements.bounds import behind
from hangscope.explain.text.hypotheses import findings
from hangscope.explain.text.partitions import decided
from hangscope.model import incident
from hangscope.model.rankset import counted

#: The share of the waiting ranks that ranks account for whose program parts from that of their role.
PROVEN = 0.95


def explain(aligned: Aligned) -> Explanation:
    """Return the finding that fits best, with its rivals; `Nothing` if nothing is pending and no line shows a root."""
    lagging, of_a_device = device_lag(aligned)
    found = _of_calls(aligned, of_a_device)
    weighed = [*_by_calls(aligned, found, lagging), *_by_text(aligned)]
    placed = [w.finding for w in weighed if w.source is Source.SILENCE and isinstance(w.finding, Different)]
    weighed = _contradicted(weighed, placed)
    if not weighed and (only := the_only_suspect(aligned) or one_not_begun(aligned)) is not None:
        weighed = [Weighed(only, Source.CALLS, 0.0)]
    if not weighed:
        return Explanation(Nothing(), from_text=True, suspects=suspects(aligned, Nothing()))
    weighed.sort(key=lambda w: -w.score)  # of equals the first, which is of the more certain kind
    at_one_line = [finding.culprits for finding in placed if not finding.tie]
    best, source = decided(weighed[0].finding, aligned.stated, *at_one_line[:1]), weighed[0].source
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
    records = [record for record in aligned.incident.ranks.values() if record.calls_file]
    recorded = any(record.absence is not incident.Absence.TOLD for record in records)
    from_text = source is not Source.CALLS or not recorded
    if source is Source.CALLS:
        best = _with_its_lines(aligned, best, from_text)
    aside, suspected = tuple(set_aside), suspects(aligned, best)
    return Explanation(best, from_text, rivals, aside, tuple(weighed), suspected, aligned.contradictions)


def _contradicted(weighed: Sequence[Weighed], placed: Sequence[Finding]) -> list[Weighed]:
    """Return the findings, those that more evidence contradicts with a lower score.

    Lines that show all of a group in one call yield to what shows them at different lines of the program (`placed`): a watchdog
    prints an op and a number, and NCCL's barrier is an all_reduce there, like a bucket of gradients. What the dumps of some ranks
    show yields to what more ranks say of the calls that they were in.
    """
    apart = {rank for finding in placed for rank in finding.culprits}
    said = [_compared(w.finding) for w in weighed if w.source is Source.OWN_WORDS and w.finding.culprits]
    found = []
    for w in weighed:
        call, less = w.finding.stuck.kind, 0.0
        if isinstance(w.finding, Stalled) and call is not None and call.told:
            less = 1.0 if apart.intersection(w.finding.waiting) else 0.0
        elif w.source is Source.CALLS and said and _compared(w.finding) < max(said):
            # That a rank left no dump says nothing against a mismatch that ranks report.
            if isinstance(w.finding, Unseen):
                less = 1.0
            elif isinstance(w.finding, Different):
                less = 2 * price(w.finding, Source.OWN_WORDS)
        found.append(replace(w, score=w.score - less))
    return found


def _compared(finding: Finding) -> int:
    """Return of how many ranks a finding has the calls."""
    return len({*finding.waiting, *(() if isinstance(finding, Unseen) else finding.culprits)})


def _with_its_lines(aligned: Aligned, finding: Finding, from_text: bool) -> Finding:
    """Return a finding by calls with the lines that state them, where no recorder does, and with what both assume."""
    view = finding.stuck.view
    lines = behind(aligned.stated, finding.waiting, finding.culprits) if from_text else []
    assumed = finding.assumed or (view is not None and incident.ASSUMED in view.group.name)
    return replace(finding, assumed=assumed or any(e.rank_assumed for e in lines), events=tuple(lines))


def _of_calls(aligned: Aligned, of_a_device: Lagging | None) -> list[Finding]:
    """Return the roots that the calls show, those of a more certain kind first."""
    mismatch = other_members(aligned) or other_root(aligned) or first_mismatch(aligned)
    deviation = deviating(aligned)
    found = [mismatch] if deviation is None else _proven_by_peers(mismatch, deviation)
    found += [search(aligned) for search in (unequal_pair, miscounted, seen_absent)]
    found += [of_a_device, unseen(aligned), circular(aligned), pending_call(aligned)]
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
