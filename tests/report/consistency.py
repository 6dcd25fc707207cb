"""The rules by which no report may contradict itself, as functions that return what is wrong.

`python -m tests.report.consistency [N]` holds N simulated incidents (default 300) to them, and every captured one.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from hangscope.api import Report
from hangscope.report.document import Document
from hangscope.report.html.measure import text_width
from hangscope.report.html.page import build_page
from hangscope.report.page_data import WaitPicture
from hangscope.report.reasons import deciding_facts, names

#: Causes that say that programs differ: their rows must part where both sides' calls are known.
DIFFERING = {
    "rank_conditional_collective", "shape_mismatch", "dtype_mismatch", "collective_mismatch",
    "gradient_sync_mismatch", "collective_order_mismatch", "uneven_loader",
}  # fmt: skip
_EMPTY_SLOT = re.compile(
    r"\bNone\b|\bnan\b|(?<!\w)\(\s*\)|\{\}|\bon group\s*(?:[,;)]|$)|\b(?:of|waits for|and|or) ranks?\s*(?:[,;)]|$)|(?<!same )\bseq\s*(?:[,;)]|$)|\bat\s*[,;)]|\s,|\s\.(?:\s|$)|;\s*\."
)


def ranks_of(text: str) -> set[int]:
    found: set[int] = set()
    for span in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        found.update(range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1)))
    return found


def reaching(picture: WaitPicture, roots: set[str]) -> set[str]:
    back = defaultdict(list)
    for edge in picture.edges:
        back[edge.target].append(edge.source)
    seen, work = set(roots), list(roots)
    while work:
        for name in back[work.pop()]:
            if name not in seen:
                seen.add(name)
                work.append(name)
    return seen


def root_is_the_culprit(document: Document) -> Iterator[str]:
    """The root in the wait-for graph is the culprit of the headline, as a node of its own."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None:
        return
    roots = [n for n in picture.nodes if n.root]
    if not roots:
        yield "the wait-for graph has no root"
    named = set(verdict.culprit_ranks)
    hosts = set().union(*(ranks_of(n.ranks) for n in roots if n.kind == "host")) if roots else set()
    if named and hosts != named:
        yield f"the graph's root is {sorted(hosts)}, the headline's {sorted(named)}"
    for node in picture.nodes:
        if node.kind == "host" and ranks_of(node.ranks) & named and ranks_of(node.ranks) - named:
            yield f"{node.label} mixes culprits and others"
    if not named and any(n.culprit for n in picture.nodes):
        yield "a node is a culprit, and nobody is named"


def chains_end_at_the_root(document: Document) -> Iterator[str]:
    """Every chain of waiting ends at the root, or "explains" is smaller."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None or not verdict.culprit_ranks or picture.left_out:
        return
    reached = reaching(picture, {n.id for n in picture.nodes if n.root})
    waiting = set(verdict.waiting_ranks)
    led: set[int] = set()
    for node in picture.nodes:
        if node.kind == "host" and node.id in reached:
            led |= ranks_of(node.ranks) & waiting
    if len(led) < verdict.explains.ranks:
        yield f"{len(led)} waiting ranks lead to the root, {verdict.explains.ranks} are said to be explained"
    if verdict.explains.ranks == verdict.explains.of and led != waiting:
        yield f"ranks {sorted(waiting - led)} do not lead to the root that explains all"


def why_names_the_culprit(document: Document) -> Iterator[str]:
    """Why names the culprit, in a whole sentence."""
    verdict = document.verdict
    if verdict is None:
        return
    facts = deciding_facts(verdict)
    if verdict.culprit_ranks and not any(names(fact, verdict.culprit_ranks) for fact in facts):
        yield f"Why does not name the culprit: {[f.text for f in facts]}"


def rows_differ_where_they_part(document: Document) -> Iterator[str]:
    """The rows of the call diff differ where it says that they part, and part where the headline says so."""
    diff = document.page.calls if document.page else None
    if diff is None:
        return
    for row in diff.rows:
        marks = {cell.mark for cell in row.cells} - {"same", "unseen", "no_part"}
        if bool(marks) != bool(row.differs):
            yield f"row {[c.mark for c in row.cells]} is {'' if row.differs else 'not '}called a difference"
        shown = {(c.op, c.seq, c.sizes, c.site, c.state) for c in row.cells}
        if row.differs and len(shown) < 2 and not any(c.note for c in row.cells):
            yield f"two equal cells under a difference: {row.cells}"
    verdict = document.verdict
    if verdict is None or verdict.cause not in DIFFERING:
        return
    named = [
        c for c in diff.classes if c.role == "culprit" and set(ranks_of(c.ranks)) & set(verdict.culprit_ranks)
    ]
    others = [c for c in diff.classes if c.role != "culprit"]
    known = any(row.cells[i].op for row in diff.rows for i, c in enumerate(diff.classes) if c in named)
    if verdict.culprit_ranks and named and others and known and not diff.differences:
        yield f"{verdict.cause}: the columns of the call diff are equal"


def culprit_has_a_column(document: Document) -> Iterator[str]:
    """A named rank is in the call diff, with or without calls."""
    diff, verdict = (document.page.calls if document.page else None), document.verdict
    if diff is None or verdict is None or not verdict.culprit_ranks:
        return
    shown = set().union(*(ranks_of(c.ranks) for c in diff.classes))
    if not shown & set(verdict.culprit_ranks):
        yield f"ranks {verdict.culprit_ranks} have no column"


def nothing_overflows(document: Document) -> Iterator[str]:
    """No text is wider than its box."""
    page = build_page(document)
    for node in page.waitfor.nodes if page.waitfor else ():
        for text, size, look in ((node.label, 12.5, {"bold": True}), (node.sub, 11.0, {"mono": True})):
            if text_width(text, size, **look) > node.width - 12:
                yield f"{text!r} overflows its node"


def no_slot_is_empty(document: Document) -> Iterator[str]:
    """No phrase of ours has an empty slot."""
    verdict = document.verdict
    texts = [document.headline, *document.confidence_why, *document.missing]
    if verdict is not None:
        texts += [*verdict.advice, *(a.why for a in verdict.alternatives)]
        texts += [e.text for e in verdict.evidence if e.kind not in ("log", "exit")]
        texts += [f.text for f in deciding_facts(verdict) if f.kind not in ("log", "exit")]
    if document.page and document.page.waitfor:
        texts += [n.label for n in document.page.waitfor.nodes] + list(document.page.waitfor.text)
    for text in texts:
        if not text.strip() or (_EMPTY_SLOT.search(text)):
            yield f"an empty slot in {text!r}"


def outputs_agree(report: Report) -> Iterator[str]:
    """Text, Markdown and page say the same numbers, and "last call" is one thing everywhere."""
    document, verdict = report.document, report.document.verdict
    page = html.unescape(
        re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", report.to_html()))
    )
    page = " ".join(page.split())
    text = " ".join(report.to_text(width=110, verbose=True).split())
    markdown = " ".join(report.to_markdown().replace("\\", "").split())
    if verdict is not None and verdict.explains.of and verdict.waiting_ranks:
        told = f"{verdict.explains.ranks} of {verdict.explains.of}"
        for name, shown in (("text", text), ("Markdown", markdown)):
            if told not in shown:
                yield f"{name} does not say {told}"
        wanted = f"explains {verdict.explains.ranks:,} of {verdict.explains.of:,} waiting"
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


DOCUMENT_RULES: tuple[Callable[[Document], Iterator[str]], ...] = (
    root_is_the_culprit,
    chains_end_at_the_root,
    why_names_the_culprit,
    rows_differ_where_they_part,
    culprit_has_a_column,
    nothing_overflows,
    no_slot_is_empty,
)


def contradictions(report: Report) -> list[str]:
    """Return what contradicts itself in a report."""
    found = [f"{rule.__name__}: {told}" for rule in DOCUMENT_RULES for told in rule(report.document)]
    return found + [f"outputs_agree: {told}" for told in outputs_agree(report)]


def main(count: int) -> int:
    """Print every contradiction of the captured incidents and of `count` simulated ones, and how many reports hold."""
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
