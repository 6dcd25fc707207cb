"""What the first screen says besides the stacks: heading, who, what, why, how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangscope.align.rankset import ranks_phrase
from hangscope.report.reading import (
    LINE_CHARS,
    choice,
    cut,
    is_number,
    items,
    mapping,
    mappings,
    rank_count,
    rank_phrase,
    rank_text,
    text,
    texts,
)
from hangscope.report.sides import call_text

STANCES = (("for", "For the verdict"), ("against", "Against it"), ("missing", "Missing"))
FIRST_CULPRITS = 2
HEADLINE_CHARS, FACT_CHARS, NOTE_CHARS = 210, 160, 110


@dataclass(frozen=True, slots=True)
class Fact:
    """One piece of evidence: what it says, who says so and where that stands."""

    stance: str
    kind: str
    text: str
    rank: str
    source: str


@dataclass(frozen=True, slots=True)
class Sureness:
    """How sure the verdict is, and what that rests on."""

    level: str
    sources: str
    explains: str
    reasons: tuple[str, ...]
    missing: tuple[str, ...]


def headline(view: Mapping[str, Any], verdict: Mapping[str, Any], status: str) -> str:
    """Return the sentence of the heading; that of an inconclusive report says so."""
    defaults = {
        "hang": "The job stopped making progress.",
        "no_hang": "No hang: nothing is pending and no rank is behind.",
        "inconclusive": "Inconclusive: what the job left behind does not tell whether or why it stopped.",
    }
    line = (
        text(view.get("headline"), HEADLINE_CHARS)
        or text(verdict.get("summary"), HEADLINE_CHARS)
        or defaults[status]
    )
    return (
        f"Inconclusive: {line}" if status == "inconclusive" and "inconclusive" not in line.lower() else line
    )


def partial_data(partial: Mapping[str, Any]) -> str:
    """Return what the PARTIAL DATA band says; empty where all ranks were seen."""
    if not partial.get("is_partial"):
        return ""
    missing = rank_text(partial.get("missing_ranks"))
    return text(partial.get("text"), FACT_CHARS) or (
        f"nothing usable of {rank_phrase(missing)}" if missing else "some ranks were not seen"
    )


def who(verdict: Mapping[str, Any], culprits: str, status: str) -> tuple[tuple[str, str], ...]:
    """Return the named ranks, each with its host and device, and how many more there are."""
    named = [mapping(entry) for entry in items(verdict.get("culprits"))]
    if not named and not culprits:
        return (
            (
                "Nobody is accused" if status == "no_hang" else "No rank is named",
                "" if status == "no_hang" else "the evidence singles none out",
            ),
        )
    lines = []
    for entry in named[:FIRST_CULPRITS]:
        parts = [text(entry.get("host"), 60)]
        parts += [
            f"{word} {entry[key]}"
            for key, word in (("device", "device"), ("local_rank", "local rank"), ("pid", "pid"))
            if entry.get(key) is not None
        ]
        lines.append(
            (
                f"rank {text(entry.get('rank'), 12) or '?'}",
                " · ".join(cut(part, 60) for part in parts if part) or "host not known",
            )
        )
    if not named:
        lines.append((rank_phrase(culprits), "hosts not known"))
    elif len(named) > FIRST_CULPRITS:
        rest = [entry["rank"] for entry in named[FIRST_CULPRITS:] if is_number(entry.get("rank"))]
        lines.append((f"and {len(named) - FIRST_CULPRITS} more", cut(ranks_phrase(rest), 80) if rest else ""))
    return tuple(lines)


def waiting(verdict: Mapping[str, Any]) -> str:
    """Return how many ranks wait, and which; empty where none does."""
    ranks = rank_text(verdict.get("waiting_ranks"))
    if not ranks:
        return ""
    count = rank_count(verdict.get("waiting_ranks"))
    return f"{rank_phrase(ranks)} waits for it" if ranks.isdigit() else f"{count:,} ranks wait: {ranks}"


def facts(verdict: Mapping[str, Any]) -> list[Fact]:
    """Return the evidence in its given order."""
    found = []
    for entry in mappings(verdict.get("evidence")):
        source = mapping(entry.get("source"))
        file, line = text(source.get("file"), 200), text(source.get("line"), 12)
        stance = choice(entry.get("stance"), dict(STANCES), "for")
        rank = entry.get("rank")
        found.append(
            Fact(
                stance=stance,
                kind=text(entry.get("kind"), 24),
                text=text(entry.get("text"), LINE_CHARS),
                rank=f"rank {text(rank, 12)}" if rank is not None else "",
                source=f"{file}:{line}" if file and line else file,
            )
        )
    return found


def first_facts(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the first fact for the verdict, and the next one, of another kind if there is one."""
    speaking = [fact for fact in facts if fact.stance == "for"]
    first = speaking[:1]
    second = [f for f in speaking[1:] if f.kind != first[0].kind] + speaking[1:] if first else []
    return tuple(
        Fact(f.stance, f.kind, cut(f.text, FACT_CHARS), f.rank, cut(f.source, 70)) for f in first + second[:1]
    )


def sureness(view: Mapping[str, Any], verdict: Mapping[str, Any], missing: Sequence[str]) -> Sureness:
    """Return the confidence, what it rests on and what is missing, short enough for the first screen."""
    words = {"dump": ("dump", "dumps"), "log": ("log", "logs"), "stack": ("stack", "stacks")}
    sources = mapping(view.get("sources"))
    counted = [
        f"{n:,} {words[kind][n != 1]}" for kind in words if is_number(n := sources.get(kind)) and n > 0
    ]
    explains = mapping(verdict.get("explains"))
    return Sureness(
        level=choice(verdict.get("confidence"), ("high", "medium", "low"), ""),
        sources=f"read: {', '.join(counted)}" if counted else "",
        explains=(
            f"explains {explains['ranks']:,} of {explains['of']:,} waiting ranks"
            if is_number(explains.get("ranks")) and is_number(explains.get("of"))
            else ""
        ),
        reasons=tuple(line for line in texts(view.get("confidence_why"), NOTE_CHARS)[:2]),
        missing=tuple(cut(line, NOTE_CHARS) for line in missing[:2]),
    )


def what(view: Mapping[str, Any], verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the waiting ranks are stuck in (without its op), then what the culprit enqueued instead."""
    if not verdict:
        return ()
    stuck, culprit = mapping(verdict.get("waiting_call")), mapping(verdict.get("culprit_call"))
    seq = verdict.get("seq")
    parts = [f"seq {text(seq, 20)}" if seq is not None else "seq not known"]
    shape = " ".join(
        filter(None, (_sizes(stuck.get("sizes")), text(stuck.get("dtypes"), 40)))
    ) or _lane_sizes(view)
    parts.append(shape)
    group = mapping(verdict.get("group"))
    if group:
        name, desc = text(group.get("name"), 50) or "(unnamed)", text(group.get("desc"), 50)
        label = f"group {name} ({desc})" if desc and desc != name else f"group {name}"
        members = rank_count(group.get("ranks"))
        parts.append(f"{label}, {members:,} ranks" if members else label)
    lines = [" · ".join(part for part in parts if part)]
    if culprit and (culprit.get("op") != verdict.get("op") or culprit.get("seq") != seq):
        instead = "instead" if culprit.get("seq") == seq else "last"
        lines.append(f"the culprit enqueued {call_text(culprit)} {instead}")
    return tuple(lines)


def _sizes(value: object) -> str:
    if isinstance(value, list):
        return cut(
            " ".join(
                f"[{', '.join(map(str, size))}]" if isinstance(size, list) else str(size) for size in value
            ),
            60,
        )
    return text(value, 60)


def _lane_sizes(view: Mapping[str, Any]) -> str:
    """Return the sizes that a waiting class shows in the divergence column."""
    lanes = mapping(view.get("lanes"))
    for row in mappings(lanes.get("rows")):
        for cell in mappings(row.get("cells")):
            if (
                row.get("role") == "waiting"
                and cell.get("seq") == lanes.get("divergence_seq")
                and cell.get("sizes")
            ):
                return text(cell["sizes"], 60)
    return ""
