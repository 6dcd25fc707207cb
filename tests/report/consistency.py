"""The rules by which no report may contradict itself, as functions that return what is wrong.

`python -m tests.report.consistency [N]` holds N simulated incidents (default 300) to them and every captured one,
`benchmarks/score.py --corpus` all of the corpus.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hangscope.api import Report
from hangscope.report.reasons import deciding_facts
from tests.report import rules_of_pictures, rules_of_texts


def outputs_agree(report: Report) -> Iterator[str]:
    """Text, Markdown and page say the same numbers, and "last call" is one thing everywhere."""
    document, verdict = report.document, report.document.verdict
    page = html.unescape(
        re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", report.to_html()))
    )
    page = " ".join(page.split())
    text = " ".join(report.to_text(width=110, verbose=True).split())
    markdown = " ".join(report.to_markdown().replace("\\", "").split())
    goes_on = document.status == "no_hang"
    if verdict is not None and verdict.explains.ranks and verdict.waiting_ranks and not goes_on:
        told = f"{verdict.explains.ranks:,} of {verdict.explains.of:,} blocked"
        for name, shown in (("text", text), ("Markdown", markdown)):
            if told not in shown:
                yield f"{name} does not say {told}"
        wanted = f"accounts for {verdict.explains.ranks:,} of {verdict.explains.of:,} blocked"
        if wanted not in page:
            yield f"the page does not say {wanted}"
    for name, shown in (("text", text), ("Markdown", markdown), ("page", page)):
        for found in re.finditer(r"(?i)\blast call\b(.{0,20})", shown):
            if not re.match(r" (?:(?:on|of) (?:that|any|group)|is pending)", found[1]):
                yield f"{name}: 'last call' of what? {found[0]!r}"
    if verdict is not None and document.status == "hang" and verdict.culprit_ranks:
        for fact in deciding_facts(verdict)[:1]:
            head = " ".join(fact.text.split())[:60]
            if head not in text:
                yield f"text does not lead with {head!r}"


def contradictions(report: Report) -> list[str]:
    """Return what contradicts itself in a report."""
    found = [
        f"{each.__name__}: {told}"
        for each in (*rules_of_pictures.RULES, *rules_of_texts.RULES)
        for told in each(report.document)
    ]
    return found + [f"outputs_agree: {told}" for told in outputs_agree(report)]


def main(count: int) -> int:
    """Print every contradiction of the captured incidents and `count` simulated ones, and how many reports hold."""
    from tests.conftest import FIXTURES, analyze
    from tests.simulator import FAULTS, WAYS, write_incident

    bad = total = 0
    ways = sorted(WAYS)
    jobs = [(path.parent.name, path.parent / "dumps") for path in sorted(FIXTURES.glob("*/truth.json"))]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            fault, seed = list(FAULTS)[number % len(FAULTS)], 5000 + number // len(FAULTS)
            target = Path(folder) / f"{fault}-{seed}"
            write_incident(target, fault, seed, way=ways[number % len(ways)])
            if any(p.is_file() for p in (target / "dumps").rglob("*")):
                jobs.append((target.name, target / "dumps"))
        for name, dumps in jobs:
            total += 1
            found = contradictions(analyze(dumps))
            bad += bool(found)
            for line in found[:4]:
                print(f"{name}: {line}")
    print(f"{total - bad} of {total} reports do not contradict themselves")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
