"""Renew the parts of the pages that a command prints: `python docs/refresh.py`.

Without an argument: the report of README.md, the table of docs/causes.md and the columns of docs/table.md. `python docs/refresh.py score` puts the
tables that stand on standard input between the markers `<!-- score -->` and `<!-- /score -->` of docs/score.md, as they
were printed; `collected`, `corpus`, `ablation`, `graded` and `first-looks` (of the same page), `speed`, `exports` and `logs` (of docs/speed.md), `overhead` and `memory` (of docs/capture.md), `briefs` (of docs/brief.md), `similarity` (of docs/history.md),
`fuzz` (of docs/safety.md) and `soak` (of docs/live-safety.md) likewise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hangscope.export.frame  # noqa: E402
from hangscope.knowledge.catalog import CATALOG  # noqa: E402

#: The page of each block.
PAGES = {
    "report": ROOT / "README.md",
    "causes": ROOT / "docs" / "causes.md",
    "columns": ROOT / "docs" / "table.md",
    "score": ROOT / "docs" / "score.md",
    "collected": ROOT / "docs" / "score.md",
    "graded": ROOT / "docs" / "score.md",
    "corpus": ROOT / "docs" / "score.md",
    "ablation": ROOT / "docs" / "score.md",
    "first-looks": ROOT / "docs" / "score.md",
    "speed": ROOT / "docs" / "speed.md",
    "exports": ROOT / "docs" / "speed.md",
    "logs": ROOT / "docs" / "speed.md",
    "fuzz": ROOT / "docs" / "safety.md",
    "growth": ROOT / "docs" / "safety.md",
    "overhead": ROOT / "docs" / "capture.md",
    "memory": ROOT / "docs" / "capture.md",
    "similarity": ROOT / "docs" / "history.md",
    "briefs": ROOT / "docs" / "brief.md",
    "soak": ROOT / "docs" / "live-safety.md",
}
INCIDENT = "rank_conditional_barrier"


def report() -> str:
    """Return the terminal report of one incident as Markdown, 100 columns wide."""
    return printed(hangscope.analyze(ROOT / "fixtures" / INCIDENT / "dumps").to_text(width=100))


def causes() -> str:
    """Return the table of causes as Markdown."""
    rows = (f"| `{entry.cause}` | {entry.means} | {entry.culprit} |" for entry in CATALOG.values())
    return "\n".join(("| cause | what happened | the culprit is |", "| --- | --- | --- |", *rows))


def columns() -> str:
    """Return the columns of the collective-sequence table as Markdown."""
    return tables(hangscope.export.frame.__doc__ or "")


def printed(text: str) -> str:
    """Return what a command printed as Markdown."""
    return f"```text\n{text.strip(chr(10))}\n```"


def tables(text: str) -> str:
    """Return the tables, without what else a command printed."""
    lines = (line if line.startswith("|") else "" for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def put(page: str, block: str, content: str) -> str:
    """Return `page` with the text between the markers of `block` replaced. Raises ValueError where a marker is missing."""
    before, opening, rest = page.partition(f"<!-- {block} -->\n")
    _, closing, after = rest.partition(f"\n<!-- /{block} -->")
    if not opening or not closing:
        raise ValueError(f"the page has no block {block!r}")
    return before + opening + content + closing + after


def renewed() -> dict[Path, str]:
    """Return the pages with the report, the causes and the columns as they are now."""
    made = {"report": report, "causes": causes, "columns": columns}
    return {
        PAGES[name]: put(PAGES[name].read_text(encoding="utf-8"), name, make()) for name, make in made.items()
    }


def main(blocks: list[str]) -> None:
    """Write the pages anew."""
    pages = renewed() if not blocks else {}
    for block in blocks:
        page = PAGES[block]
        pages[page] = put(page.read_text(encoding="utf-8"), block, tables(sys.stdin.read()))
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
