"""Puts a verdict into the words of the library that the user wrote in: which call it is, when it is right, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.causes.case import Case, Match, at, who
from hangscope.explain.finding import Different, Extra, Stalled
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import first_difference, user_frame, user_frames
from hangscope.knowledge.library import Reading
from hangscope.knowledge.rule import Rule, Situation
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Frame, Stack
from hangscope.model.rankset import ranks_phrase
from hangscope.verdict.phrasing import sentence_case

_OF_ALL = frozenset({"model_mismatch"})  # causes whose line is that of every rank
_ALONE = frozenset({"rank_conditional_collective", "collective_mismatch"})


def in_library_terms(case: Case, match: Match) -> Match:
    """Return the match with its library call, described and advised in that library's own terms."""
    finding = case.finding
    own_kind = finding.own.kind or (finding.stuck.kind if isinstance(finding, Stalled) else None)
    own = match.stack or case.stack_of(own_kind, match.culprits)
    peer = case.stack_of(finding.stuck.kind, finding.waiting[:64])
    # Only a culprit that issued a collective has a library call that contains it.
    called = isinstance(finding, Different | Extra | Stalled) or bool(match.stack or match.api)
    reading = case.knowledge.read(own if called else ())
    # One rank alone made a call that all should make.
    alone = reading.call if match.cause in _ALONE and reading.kind != "step" else None
    places = case.statements.whereabouts
    if any(places[r].stack[:1] == own[:1] for r in places.keys() - set(match.culprits) if own):
        alone = None  # others are in it as well
    why = match.why
    if alone is not None and reading.by_user and match.culprits:
        if alone.api not in why:
            why = f"{ranks_phrase(match.culprits)} alone called {alone.api}{at(reading.caller)}"
        why += f"; {alone.api} {alone.legal}" if alone.legal else ""
    frame = match.frame or (user_frame(own) if called else None) or _reported_frame(case, match)
    whose = match.frame_rank if match.frame is not None else None
    steps, facts = _advice(case, match, (own, peer), reading, alone), _parted(case, match, own, peer)
    found = replace(match, api=reading.api, why=why, frame=frame, frame_rank=whose, advice=steps)
    return replace(found, evidence=[*match.evidence, *facts])


def _reported_frame(case: Case, match: Match) -> Frame | None:
    """Return the user's line at which a stack or traceback shows a culprit, or any rank if all are at one line."""
    ranks = match.culprits or (*case.statements.ranks(RankException),)
    places = case.statements.whereabouts
    stacks = [places[rank].stack for rank in ranks[:4] if rank in places and places[rank].inside]
    stacks += [e.frames for rank in ranks[:4] for e in case.statements.of(rank, RankException)]
    shown = next(filter(None, map(user_frame, stacks)), None)
    return shown if match.culprits or match.cause in _OF_ALL else None


def _advice(
    case: Case, match: Match, stacks: tuple[Stack, Stack], reading: Reading, alone: Rule | None
) -> list[str]:
    """Return what to do, in the library's terms where it has any for this cause, else as it was; a site's own words first."""
    line = at(reading.caller).strip(" ()") or "that line"
    words = {"{who}": who(match.culprits, "one rank"), "{api}": reading.api or "the call", "{line}": line}
    situation = _situation(case, match, stacks)
    fitting = [rule for rule in case.knowledge.advice if rule.fits(situation)]
    site = [rule for rule in fitting if not rule.built_in]
    general = (rule for rule in fitting if rule.built_in)
    nearest = min(general, key=lambda rule: min(_depth(rule, stack) for stack in stacks), default=None)
    lines = _lines(filter(None, (alone, nearest)), words)
    owned = [*site, *filter(None, [reading.call])]
    owners = [f"Ask {rule.owner}, who own this." for rule in owned if rule.owner]
    owners += [f"Runbook: {rule.runbook}" for rule in owned if rule.runbook]
    return list(dict.fromkeys([*_lines(site, words), *owners, *(lines or match.advice)]))


def _depth(rule: Rule, stack: Stack) -> int:
    """Return how many frames are outside the outermost one that a rule names; the library that the user called directly has the fewest."""
    places = (place for place, frame in enumerate(reversed(stack)) if rule.applies_to(frame))
    return next(places, 1 << 20)


def _situation(case: Case, match: Match, stacks: tuple[Stack, Stack]) -> Situation:
    """Return what the verdict is about, as rules ask for it."""
    finding, group = case.finding, case.finding.stuck.group
    frames, log = (frame for stack in stacks for frame in stack), (e.text for e in case.incident.events)
    ops = (kind.op for kind in (finding.own.kind, finding.stuck.kind) if kind is not None and kind.op)
    names = (group.name, group.desc, group.label) if group is not None else ()
    return Situation(match.cause, frames=tuple(frames), op=tuple(ops), group=names, log=tuple(log))


def _lines(rules: Iterable[Rule], words: dict[str, str]) -> list[str]:
    """Return the advice of rules, each with its link after the first sentence."""
    lines = []
    for rule in rules:
        for place, line in enumerate(rule.advice):
            for key, word in words.items():
                line = line.replace(key, word)
            link = f" See {rule.docs}" if rule.docs and not place else ""
            lines.append(sentence_case(line) + link)
    return lines


def _parted(case: Case, match: Match, own: Stack, peer: Stack) -> list[Evidence]:
    """Return where two sides part inside of a library that the same line of the user's called."""
    line, parted = user_frame(own), first_difference(own, peer)
    if line is None or parted is None or user_frames(own) != user_frames(peer) or not match.culprits:
        return []
    text = f"all ranks are in the call at {line}; from there {ranks_phrase(match.culprits)} went on to {parted[0]}, the others to {parted[1]}"
    rank = match.culprits[0]
    recorded = rank in case.incident.ranks and case.incident.ranks[rank].calls_file
    return [case.recorded(rank, text) if recorded else Evidence("log", text, rank)]
