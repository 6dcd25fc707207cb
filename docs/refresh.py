"""Renew the parts of README.md that a command prints: `python docs/refresh.py`.

Without an argument: the report and the table of causes. `python docs/refresh.py score` puts the tables that stand on
standard input between the markers `<!-- score -->` and `<!-- /score -->`, as they were printed; `speed` likewise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hangscope  # noqa: E402
from hangscope.causes.catalog import CATALOG  # noqa: E402

README = ROOT / "README.md"
INCIDENT = "rank_conditional_barrier"


def report() -> str:
    """Return the terminal report of one incident as Markdown, 100 columns wide."""
    return printed(hangscope.analyze(ROOT / "fixtures" / INCIDENT / "dumps").to_text(width=100))


def causes() -> str:
    """Return the table of causes as Markdown."""
    rows = (f"| `{entry.cause}` | {entry.means} | {entry.culprit} |" for entry in CATALOG.values())
    return "\n".join(("| cause | what happened | the culprit is |", "| --- | --- | --- |", *rows))


def printed(text: str) -> str:
    """Return what a command printed as Markdown."""
    return f"```text\n{text.strip(chr(10))}\n```"


def tables(text: str) -> str:
    """Return the tables, without what else a command printed."""
    lines = (line if line.startswith("|") else "" for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def put(readme: str, block: str, content: str) -> str:
    """Return `readme` with the text between the markers of `block` replaced. Raises ValueError where a marker is missing."""
    before, opening, rest = readme.partition(f"<!-- {block} -->\n")
    _, closing, after = rest.partition(f"\n<!-- /{block} -->")
    if not opening or not closing:
        raise ValueError(f"README.md has no block {block!r}")
    return before + opening + content + closing + after


def renewed(readme: str) -> str:
    """Return `readme` with the report and the causes as they are now."""
    return put(put(readme, "report", report()), "causes", causes())


def main(blocks: list[str]) -> None:
    """Write README.md anew."""
    readme = README.read_text(encoding="utf-8")
    if not blocks:
        readme = renewed(readme)
    for block in blocks:
        readme = put(readme, block, tables(sys.stdin.read()))
    README.write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
