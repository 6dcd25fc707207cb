"""What stands below the pictures, as rows of text: candidates, inputs, windows, groups, warnings, ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangscope.report.reading import LINE_CHARS, is_number, items, mapping, mappings, rank_text, text


@dataclass(frozen=True, slots=True)
class Row:
    """One table row: its cells as text, and a word that a style may hang on."""

    cells: tuple[str, ...]
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read and what became of it."""

    summary: str
    inputs: tuple[Row, ...]
    windows: tuple[Row, ...]
    groups: tuple[Row, ...]
    warnings: tuple[str, ...]


def candidates(view: Mapping[str, Any], verdict: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the candidates that were set aside: ranks, cause, why."""
    entries = items(view.get("candidates")) or items(verdict.get("candidates"))
    return tuple(
        Row(
            (
                rank_text(entry.get("ranks")),
                text(entry.get("cause"), 60),
                text(entry.get("why_set_aside"), LINE_CHARS),
            )
        )
        for entry in mappings(entries)
    )


def coverage(view: Mapping[str, Any]) -> Coverage:
    """Return what became of the inputs, those that were not used first."""
    counted = mapping(view.get("coverage"))
    names = (("files", "files"), ("used", "used"), ("set_aside", "set aside"), ("ignored", "ignored"))
    counts = [f"{counted[key]:,} {name}" for key, name in names if is_number(counted.get(key))]
    inputs = []
    for entry in mappings(view.get("inputs")):
        count = entry.get("count") or entry.get("files_count")
        file = text(entry.get("file") or entry.get("files"), 200)
        status = text(entry.get("status"), 40)
        rank = rank_text(entry.get("ranks")) or text(entry.get("rank"), 12)
        label = f"{file} ({count:,} files)" if is_number(count) and count > 1 else file
        inputs.append(
            Row(
                (label, text(entry.get("kind"), 40), rank, status, text(entry.get("reason"), 300)),
                "" if status == "used" else "dropped",
            )
        )
    return Coverage(
        summary=", ".join(counts),
        inputs=tuple(sorted(inputs, key=lambda row: row.mark != "dropped")[:400]),
        windows=tuple(
            Row(
                (
                    rank_text(w.get("ranks")),
                    text(w.get("group"), 60),
                    text(w.get("from_seq"), 20),
                    text(w.get("to_seq"), 20),
                )
            )
            for w in mappings(counted.get("windows"))[:200]
        ),
        groups=tuple(
            Row(
                (
                    text(group.get("name"), 60) or "(unnamed)",
                    text(group.get("desc"), 60),
                    text(group.get("role"), 20),
                    rank_text(group.get("ranks")),
                    text(group.get("frontier"), 160),
                )
            )
            for group in mappings(view.get("groups"))[:200]
        ),
        warnings=tuple(_warning(entry) for entry in items(view.get("warnings"))[:200]),
    )


def _warning(entry: object) -> str:
    warning = mapping(entry)
    if not warning:
        return text(entry, LINE_CHARS)
    file = text(warning.get("file"), 200)
    message = text(warning.get("message") or warning.get("reason"), LINE_CHARS)
    hint = text(warning.get("hint"), 200)
    return (
        (f"{file}: " if file else "")
        + (message or text(warning, LINE_CHARS))
        + (f" ({hint})" if hint else "")
    )


def rank_rows(ranks: Sequence[Any]) -> tuple[Row, ...]:
    """Return one row per entry of `ranks`: rank, host, state, absence, last call, files."""
    return tuple(
        Row(
            (
                rank_text(entry.get("ranks")) or text(entry.get("rank"), 12),
                text(entry.get("host"), 60),
                text(entry.get("state"), 60),
                text(entry.get("absence"), 80),
                text(entry.get("last_call"), 120),
                text(entry.get("files"), 200),
            )
        )
        for entry in mappings(ranks)
    )
