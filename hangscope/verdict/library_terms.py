"""Puts a verdict into the words of the library that the user wrote in: which call it is, when it is right, what to do."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match
from hangscope.conclusion import Evidence, Source
from hangscope.explain.finding import Different, Extra, Stalled
from hangscope.incident import Frame, Stack
from hangscope.knowledge.callsite import user_frame, user_frames
from hangscope.knowledge.library import Knowledge, Reading, first_difference
from hangscope.knowledge.rule import Rule, Situation

#: Causes whose culprit made a call: only then is there a library call that contains it.
_CALLED = frozenset(
    {
        "rank_conditional_collective", "uneven_loader", "collective_mismatch", "gradient_sync_mismatch", "shape_mismatch",
        "dtype_mismatch", "model_mismatch", "collective_order_mismatch", "early_exit", "crashed_rank", "network_stall", "init_hang",
    }
)  # fmt: skip
_ALONE = frozenset({"rank_conditional_collective", "collective_mismatch"})


def in_library_terms(case: Case, match: Match, knowledge: Knowledge) -> Match:
    """Return the match with its library call, told and advised in that library's own terms."""
    finding = case.finding
    odd = finding.own.kind or (finding.stuck.kind if isinstance(finding, Stalled) else None)
    own = match.stack or case.stack_of(odd, match.culprits)
    peer = case.stack_of(finding.stuck.kind, finding.waiting[:64])
    reading = knowledge.read(own)
    made = isinstance(finding, Different | Extra | Stalled) or bool(match.stack or match.api)
    called = match.cause in _CALLED and made and bool(own)
    api = reading.api if called else None
    frame = match.frame or (user_frame(own) if called else None)
    return replace(
        match,
        api=api,
        why=_why(match, reading) if api else match.why,
        frame=frame,
        frame_rank=match.frame_rank if match.frame is not None else None,
        advice=_advice(case, match, own, peer, reading if api else Reading(), knowledge),
        evidence=[*match.evidence, *_evidence(case, match, own, peer, reading if api else Reading())],
    )


def _why(match: Match, reading: Reading) -> str:
    """Return the reason with the call's own name, where one rank called alone what is everybody's."""
    rule, who = reading.call, ranks_phrase(match.culprits)
    told_alone = match.cause in _ALONE and reading.by_user and bool(match.culprits)
    if rule is None or not told_alone or reading.kind == "step":
        return match.why
    line = f" ({_line(reading.caller)})" if reading.caller is not None else ""
    why = match.why if rule.api in match.why else f"{who} alone called {rule.api}{line}"
    return f"{why}: it {rule.legal}" if rule.legal else why


def _line(frame: Frame) -> str:
    return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line}"


def _advice(
    case: Case, match: Match, own: Stack, peer: Stack, reading: Reading, knowledge: Knowledge
) -> list[str]:
    """Return what to do, in the library's terms where it has any for this cause, else as it was."""
    words = {
        "who": ranks_phrase(match.culprits) if match.culprits else "one rank",
        "api": reading.api or "the call",
        "line": _line(reading.caller) if reading.caller is not None else "that line",
    }
    told: list[str] = []
    if match.cause in _ALONE and reading.call is not None and reading.kind != "step":
        told += _lines(reading.call, words)
    here = _situation(case, match, own, peer)
    fitting = [rule for rule in knowledge.advice if rule.fits(here)]
    site = [rule for rule in fitting if not rule.built_in]
    outermost = sorted((r for r in fitting if r.built_in), key=lambda r: min(_depth(r, own), _depth(r, peer)))
    told += [line for rule in outermost[:1] for line in _lines(rule, words)]
    if told and match.cause in _ALONE:
        told.append("Every rank must reach each collective of a step, or none.")
    asked = [*site, *([reading.call] if reading.call is not None else [])]
    lines = [
        *(line for rule in site for line in _lines(rule, words)),
        *(line for rule in asked for line in _whom(rule)),
        *(told or match.advice),
    ]
    return list(dict.fromkeys(lines))


def _depth(rule: Rule, stack: Stack) -> int:
    """Return how many frames lie outside of the outermost one that a rule is about: the fewest are the library that the user wrote in."""
    return next(
        (i for i, frame in enumerate(reversed(stack)) if any(p.matches(frame) for p in rule.frames)), 1 << 20
    )


def _situation(case: Case, match: Match, own: Stack, peer: Stack) -> Situation:
    """Return what the verdict is about, as rules ask for it."""
    finding = case.finding
    kinds = [kind for kind in (finding.own.kind, finding.stuck.kind) if kind is not None]
    group = finding.stuck.view.group if finding.stuck.view is not None else None
    return Situation(
        match.cause,
        (*own, *peer, *(f for stack in _elsewhere(case, match) for f in stack)),
        tuple(kind.op for kind in kinds if kind.op),
        (group.name, group.desc, group.label) if group is not None else (),
        tuple(event.text for event in case.incident.events),
    )


def _whom(rule: Rule) -> list[str]:
    """Return whom a rule says to ask, and where it says to look."""
    asked = [f"Ask {rule.owner}, who own this."] if rule.owner else []
    return [*asked, *([f"Runbook: {rule.runbook}"] if rule.runbook else [])]


def _elsewhere(case: Case, match: Match) -> list[Stack]:
    """Return the stacks of culprits that stand outside of any call."""
    stacks = (case.statements.whereabouts.get(rank) for rank in match.culprits[:4])
    return [where.stack for where in stacks if where is not None]


def _lines(rule: Rule, words: dict[str, str]) -> list[str]:
    """Return a rule's advice with its link behind the first sentence."""
    lines = []
    for line in rule.advice:
        for key, word in words.items():
            line = line.replace("{" + key + "}", word)
        lines.append(line[:1].upper() + line[1:])
    if lines and rule.docs:
        lines[0] += f" See {rule.docs}"
    return lines


def _evidence(case: Case, match: Match, own: Stack, peer: Stack, reading: Reading) -> list[Evidence]:
    """Return where two sides part inside of a library that the same line of the user's called."""
    if not own or not peer or user_frames(own) != user_frames(peer) or not match.culprits:
        return []
    parted = first_difference(own, peer)
    line = user_frame(own)
    if parted is None or line is None:
        return []
    rank = match.culprits[0]
    record = case.incident.ranks.get(rank)
    source = record.calls_file or record.dump_file if record is not None else None
    text = f"both sides are in the call at {line}; there {ranks_phrase(match.culprits)} went on to {parted[0]}, the others to {parted[1]}"
    return [Evidence("dump" if source else "log", text, rank, Source(source) if source else None)]
