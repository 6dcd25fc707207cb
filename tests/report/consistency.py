"""The rules by which no report may contradict itself, as functions that return what is wrong.

`python -m tests.report.consistency [N]` holds N simulated incidents (default 300) to them and every captured one,
`benchmarks/score.py --corpus` all of the corpus.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from hangscope.api import Report
from hangscope.model.incident import ROOTED_OPS
from hangscope.report.html.drawings import text_width
from hangscope.report.html.page import Page
from hangscope.report.pictures.wait_edges import steps_to
from hangscope.report.reasons import deciding_facts, names
from hangscope.report.schema.document import Document
from hangscope.report.schema.pictures import WaitPicture
from hangscope.report.words import ROLES
from hangscope.verdict import phrasing

#: Causes that say that programs differ: their rows must part where both sides' calls are known.
DIFFERING = {
    "rank_conditional_collective", "shape_mismatch", "dtype_mismatch", "collective_mismatch",
    "gradient_sync_mismatch", "collective_order_mismatch", "uneven_loader",
}  # fmt: skip
_QUOTED = re.compile(r"(?<= is )'[^'\n]{20,}'")  # what a job printed is not ours
_EMPTY_SLOT = re.compile(
    r"(?<!returns )\bNone\b|\bnan\b|(?<!\w)\(\s*\)|\{\}|\bon group\s*(?:[,;)]|$)|\b(?:of|waits for|and|or) ranks?\s*(?:[,;)]|$)|(?<!same )\bseq\s*(?:[,;)]|$)|\bat\s*[,;)]|\s,|\s\.(?:\s|$)|;\s*\."
)


_RAISED = re.compile(r"raised \w+: .*")  # the words of an exception are not ours


Rule = Callable[[Document], Iterator[str]]
DOCUMENT_RULES: list[Rule] = []


def rule(check: Rule) -> Rule:
    """Hold every report to a rule."""
    DOCUMENT_RULES.append(check)
    return check


def ranks_of(text: str) -> set[int]:
    found: set[int] = set()
    for span in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        found.update(range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1)))
    return found


def reaching(picture: WaitPicture, roots: set[str]) -> set[str]:
    return roots | set(steps_to(roots, [(edge.source, edge.target) for edge in picture.edges]))


@rule
def root_is_the_culprit(document: Document) -> Iterator[str]:
    """The root in the wait-for graph is the culprit of the headline, as a node of its own."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None:
        return
    roots = [n for n in picture.nodes if n.root]
    named = set(verdict.culprit_ranks)
    if named and not roots:  # of ranks that were not seen none is known to be one
        yield "the wait-for graph has no root"
    hosts = set().union(*(ranks_of(n.ranks) for n in roots if n.kind == "host")) if roots else set()
    if named and hosts != named:
        yield f"the graph's root is {sorted(hosts)}, the headline's {sorted(named)}"
    for node in picture.nodes:
        if node.kind == "host" and ranks_of(node.ranks) & named and ranks_of(node.ranks) - named:
            yield f"{node.label} mixes culprits and others"
    if not named and any(n.culprit for n in picture.nodes):
        yield "a node is a culprit, and nobody is named"


@rule
def chains_end_at_the_root(document: Document) -> Iterator[str]:
    """Every chain of waiting ends at the root or at a rank that was not seen, whose own waiting nobody draws, or "explains" is smaller."""
    verdict, picture = document.verdict, document.page.waitfor if document.page else None
    if verdict is None or picture is None or not verdict.culprit_ranks or picture.left_out:
        return
    reached = reaching(picture, {n.id for n in picture.nodes if n.root})
    waiting = set(verdict.waiting_ranks)
    led: set[int] = set()
    for node in picture.nodes:
        if node.kind == "host" and node.id in reached:
            led |= ranks_of(node.ranks) & waiting
    unseen = {row.rank for row in document.ranks if row.state == "unseen"}
    beyond = reaching(
        picture, {n.id for n in picture.nodes if n.kind == "host" and ranks_of(n.ranks) & unseen}
    )
    behind = [ranks_of(n.ranks) & waiting for n in picture.nodes if n.kind == "host" and n.id in beyond]
    if len(led.union(*behind)) < verdict.explains.ranks:
        yield f"{len(led)} waiting ranks lead to the root, {verdict.explains.ranks} are said to be explained"
    if verdict.explains.ranks == verdict.explains.of and led != waiting:
        yield f"ranks {sorted(waiting - led)} do not lead to the root that explains all"


@rule
def why_names_the_culprit(document: Document) -> Iterator[str]:
    """Why names the culprit, in a whole sentence."""
    verdict = document.verdict
    if verdict is None:
        return
    facts = deciding_facts(verdict)
    if verdict.culprit_ranks and not any(names(fact, verdict.culprit_ranks) for fact in facts):
        yield f"Why does not name the culprit: {[f.text for f in facts]}"


@rule
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
    if verdict.waiting_call is not None and not verdict.waiting_call.op:
        return  # that the others are in a call shows no op
    if verdict.cause == "collective_mismatch" and verdict.op in ROOTED_OPS:
        return  # no recorder keeps the root
    named = [
        c for c in diff.classes if c.role == "culprit" and set(ranks_of(c.ranks)) & set(verdict.culprit_ranks)
    ]
    others = [c for c in diff.classes if c.role != "culprit"]
    known = any(row.cells[i].op for row in diff.rows for i, c in enumerate(diff.classes) if c in named)
    if verdict.culprit_ranks and named and others and known and not diff.differences:
        yield f"{verdict.cause}: the columns of the call diff are equal"


@rule
def culprit_has_a_column(document: Document) -> Iterator[str]:
    """A named rank is in the call diff, with or without calls."""
    diff, verdict = (document.page.calls if document.page else None), document.verdict
    if diff is None or verdict is None or not verdict.culprit_ranks:
        return
    shown = set().union(*(ranks_of(c.ranks) for c in diff.classes))
    if not shown & set(verdict.culprit_ranks):
        yield f"ranks {verdict.culprit_ranks} have no column"


@rule
def nothing_overflows(document: Document) -> Iterator[str]:
    """No text is wider than its box."""
    page = Page(document)
    for node in page.waitfor.nodes if page.waitfor else ():
        for text, size, look in ((node.label, 12.5, {"bold": True}), (node.sub, 11.0, {"mono": True})):
            if text_width(text, size, **look) > node.width - 12:
                yield f"{text!r} overflows its node"
    for _, _, name, site, _ in page.order.boxes if page.order else ():
        for text, size, look in ((name, 12.5, {"bold": True}), (site, 11.0, {"mono": True})):
            if page.order and text_width(text, size, **look) > page.order.box_width - 12:
                yield f"{text!r} overflows its box"
    for cell in page.rankmap.cells if page.rankmap else ():
        if page.rankmap and text_width(cell.place, 9.5, mono=True) > page.rankmap.cell_width - 6:
            yield f"{cell.place!r} overflows its cell"


@rule
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
    if document.page:
        texts += [c.standing for c in document.page.calls.classes] if document.page.calls else []
        texts += (
            [
                m.text
                for m in document.page.strip.moments
                if m.kind not in ("end", "watchdog", "dump", "termination")
            ]
            if document.page.strip
            else []
        )
        texts += [line for row in document.page.detail.ranks for line in row.waits]
        texts += [side.title for side in document.page.sides]
        texts += document.page.topology.spread if document.page.topology else ()
    first = Page(document).first
    texts += [text for text in (first.waiting, *first.reasons, *first.steps, *first.what) if text]
    word = document.headline.split(" ")[0]
    if word.isalpha() and word.islower() and word not in phrasing.PROGRAMS:
        yield f"the headline begins small: {document.headline[:60]!r}"
    for text in texts:
        if not text.strip() or (_EMPTY_SLOT.search(_QUOTED.sub("it", _RAISED.sub("", text)))):
            yield f"an empty slot in {text!r}"


@rule
def nothing_is_cut_without_a_count(document: Document) -> Iterator[str]:
    """What a table or a picture does not list is counted."""
    page = Page(document)
    diff, picture = (document.page.calls, document.page.waitfor) if document.page else (None, None)
    if diff is not None and document.world_size:
        columns = (
            sum(c.count for c in diff.classes) + sum(c.count for c in diff.left_out) + diff.ranks_left_out
        )
        seen = {rank for c in (*diff.classes, *diff.left_out) for rank in ranks_of(c.ranks)}
        if columns > document.world_size or len(seen) + diff.ranks_left_out > document.world_size:
            yield f"{columns} ranks have or lack a column, of {document.world_size}"
        behaviours = any(c.first in ranks_of(c.ranks) for c in diff.classes)
        told = any(cell.note == "from the logs" for row in diff.rows for cell in row.cells)
        if behaviours and not told and columns < document.world_size:
            yield f"{document.world_size - columns} ranks are in no column and not counted"
    if picture is not None and picture.left_out == 0:
        drawn = {n.id for n in picture.nodes}
        if any(e.source not in drawn or e.target not in drawn for e in picture.edges):
            yield "an arrow leads to a node that is not drawn"
    for table, whole in (
        (page.ranks, sum(r.count or 1 for r in document.ranks)),
        *((t, len(document.groups)) for t in page.lists if t.title == "Process groups"),
    ):
        listed = len(table.rows) if table is not page.ranks else _ranks_listed(document, len(table.rows))
        if listed < whole and f"{whole - listed:,} more" not in table.left_out:
            yield f"{table.title}: {whole - listed} are neither listed nor counted"
    if page.rankmap is not None and sum(s.count for s in page.rankmap.data.legend) != document.world_size:
        yield "the rank map's states do not add up to the job"
    for fold in page.data.rankmap.folds if page.data.rankmap else ():
        if sum(row.count for row in fold.rows) != document.world_size:
            yield f"the map folded by {fold.by} does not add up to the job"
    if page.stacks is not None and len(page.stacks.rows) + page.stacks.left_out != len(document.stacks) + (
        document.stacks_left_out or 0
    ):
        yield "branches of the stacks are neither listed nor counted"


def _ranks_listed(document: Document, rows: int) -> int:
    found = sorted(document.ranks, key=lambda r: r.state != "culprit")
    return sum(r.count or 1 for r in found[:rows])


@rule
def states_agree(document: Document) -> Iterator[str]:
    """A rank is the same everywhere: in the map, in its panel, in the columns and in the sentence of the verdict."""
    page, verdict = document.page, document.verdict
    if page is None or page.rankmap is None:
        return
    roles = [ROLES[state] for state, count in page.rankmap.states for _ in range(count)]
    named = set(verdict.culprit_ranks) if verdict is not None else set()
    if {rank for rank, role in enumerate(roles) if role == "culprit"} != {r for r in named if r < len(roles)}:
        yield "the map's culprits are others than the verdict's"
    for row in page.detail.ranks:
        wrong = [rank for rank in ranks_of(row.ranks) if rank < len(roles) and roles[rank] != row.state]
        if wrong:
            yield f"rank {wrong[0]} is {row.state} in its panel and {roles[wrong[0]]} on the map"
    for column in page.calls.classes if page.calls else ():
        wrong = [rank for rank in ranks_of(column.ranks) if rank < len(roles) and roles[rank] != column.role]
        if wrong:
            yield f"rank {wrong[0]} is {column.role} in its column and {roles[wrong[0]]} on the map"


@rule
def nothing_is_told_too_often(document: Document) -> Iterator[str]:
    """No advice stands on the first screen twice, and a job that has ended is given none for a living one."""
    first = Page(document).first
    told = [*first.steps, *first.more_steps]
    for line in {line for line in told if told.count(line) > 1}:
        yield f"told twice: {line!r}"
    ended = (
        document.page is not None and document.page.strip is not None and document.page.strip.life == "ended"
    )
    for step in (*first.steps, *first.more_steps) if ended else ():
        if re.search(r"(?i)\b(take|get) (?:a |the )?(?:stack|dump)s?\b.*\bnow\b", step):
            yield f"advice for a living job of one that has ended: {step!r}"
    if ended and first.commands:
        yield "commands for a living job of one that has ended"


@rule
def the_ledger_agrees(document: Document) -> Iterator[str]:
    """The first explanation that was weighed is the verdict, and what it explains is not said to be unexplained."""
    verdict, weighed = document.verdict, document.hypotheses
    if verdict is None or not weighed:
        return
    best = weighed[0]
    if best.cause != verdict.cause or set(best.ranks) != set(verdict.culprit_ranks):
        yield f"the ledger begins with {best.cause} of {best.ranks}"
    if verdict.explains.of and verdict.explains.ranks == verdict.explains.of:
        for line in best.contradicts:
            if "does not account for" in line:
                yield f"it accounts for {verdict.explains.ranks} of {verdict.explains.of}, and {line}"


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


@rule
def possible_and_excluded_are_apart(document: Document) -> Iterator[str]:
    """Nothing is both possible and ruled out; at high nothing else remains possible, and no rival repeats the verdict."""
    verdict = document.verdict
    if verdict is None:
        return
    possible = {(h.cause, h.ranks) for h in document.hypotheses[1:]}
    if both := possible & {(r.cause, r.ranks) for r in document.ruled_out}:
        yield f"possible and ruled out: {both}"
    if verdict.confidence == "high" and (possible or verdict.alternatives):
        yield f"high, and {possible} remains possible"
    if any(a.cause == verdict.cause for a in verdict.alternatives):
        yield "an alternative repeats the verdict's cause"
    finer = verdict.cause.endswith("_mismatch") or verdict.cause in DIFFERING
    coarse = "collective_mismatch"
    if finer and verdict.cause != coarse and coarse in {a.cause for a in verdict.alternatives}:
        yield "collective_mismatch is an alternative to a finer cause"
    for excluded in document.ruled_out:
        if excluded.ranks == verdict.culprit_ranks and "does not account for" in excluded.because:
            yield f"{excluded.cause} of the same ranks accounts for fewer"
        if not excluded.because.strip():
            yield f"{excluded.cause} is ruled out by nothing"


@rule
def lengths_hold(document: Document) -> Iterator[str]:
    """Title, summary and explanation keep to their lengths, in whole words and sentences."""
    verdict = document.verdict
    limits = [(document.headline, 240)]
    if verdict is not None:
        limits += [(verdict.title, 80), (verdict.summary, 240), (verdict.explanation, 900)]
        if verdict.title.endswith("…"):
            yield f"the title breaks off: {verdict.title!r}"
        if not verdict.explanation.endswith((".", "…", "!", "?", ".)")):
            yield f"the explanation ends in the middle: {verdict.explanation[-40:]!r}"
    for text, most in limits:
        if not 0 < len(text) <= most:
            yield f"{len(text)} characters of at most {most}: {text!r}"


@rule
def confidence_and_its_reasons_agree(document: Document) -> Iterator[str]:
    """The reasons never claim more than the level, nor a full account beside ranks that would stay blocked."""
    verdict, why = document.verdict, " ".join(document.confidence_why)
    if verdict is None:
        return
    if verdict.confidence == "low" and "identifies the cause" in why:
        yield "low, and the evidence identifies the cause"
    if "does not account for" in why and verdict.explains.ranks == verdict.explains.of:
        yield f"accounts for all {verdict.explains.of} blocked ranks, and not for some of them"


@rule
def the_timeline_runs_forward(document: Document) -> Iterator[str]:
    """Moments are in order, to within the second that a log counts, and quote messages and not the prefixes of lines."""
    strip = document.page.strip if document.page else None
    for earlier, later in pairwise(strip.moments if strip else ()):
        if int(earlier.at) // 10**9 > int(later.at) // 10**9:
            yield f"{later.kind} after {earlier.kind}, and earlier by the clock"
    for moment in strip.moments if strip else ():
        if re.match(r"(?:rank \d+: )?\[rank\d+\]:\[", moment.text):
            yield f"the timeline quotes a prefix: {moment.text!r}"


@rule
def all_ranks_are_claimed_of_a_stated_size(document: Document) -> Iterator[str]:
    """Where no input states the number of ranks, nothing is said of all of them."""
    if "world size unknown" in document.partial.text:
        for text in _own_texts(document):
            if found := re.search(
                r"(?i)\b(?:every member|all (?:members|ranks) (?:joined|entered)|\d+ of \d+ ranks left)", text
            ):
                yield f"{found[0]!r} of an unknown number of ranks: {text!r}"


#: What no report may say: broken agreement, empty slots, words in a private sense, two statements that exclude each other.
NEVER = re.compile(
    r"fits? as well|no other cause fits|accounts for 0 of|explains:? \d|nconclusive: Inconclusive|\b[Mm]end(?:ed)? |"
    r"\b[Rr]anks \d[\d,:-]*(?:[,-]\d+)+ (?:was|is|has|does|waits) |\b[Rr]ank \d+ (?:were|are|have|do|wait) |waited for its peers|"
    r"\b0 (?:ranks|elements)\b(?! of)|\b(?:address|port|host) \?|whom\b|\bguilty\b|\binnocent\b|\bacquit|what was left|"
    r"\bno bug of the job|would decide|\bwaits behind\b|\bleft the loop\b|\bopen calls?\b|\bstands at\b|\bin a circle\b|\bodd one\b|"
    r"\ba guess\b|leads? to it\b|was not recorded|another an |while the others called (?:a|an unrecorded) collective|"
    r"text of 0 of|root cause is among rank \d|\bin a call\b|independent evidence agrees|[Cc]hain of waits|[Nn]ext: no |\bnone of rank\b(?! \d)"
)


def _own_texts(document: Document) -> list[str]:
    """Return the sentences of a report, without quoted lines."""
    verdict = document.verdict
    texts = [document.headline, *document.confidence_why, *document.missing, document.partial.text]
    texts += [f for h in document.hypotheses[1:] for f in (*h.fits, *h.contradicts, h.would_decide)]
    if document.page is not None and document.page.waitfor is not None:
        texts += document.page.waitfor.text
    if verdict is None:
        return texts
    quoted = {e.text for e in verdict.evidence if e.kind in ("log", "exit", "stack")}
    own = [e.text for e in verdict.evidence if e.text not in quoted]
    whys = [a.why for a in verdict.alternatives]
    return [
        *texts,
        verdict.title,
        verdict.summary,
        *verdict.advice,
        *own,
        *whys,
        *(c.text for c in verdict.collect),
    ]


@rule
def no_listed_phrase_appears(document: Document) -> Iterator[str]:
    """No sentence of ours holds a phrase that no report may hold."""
    for text in _own_texts(document):
        if found := NEVER.search(text):
            yield f"{found[0]!r} in {text!r}"


def contradictions(report: Report) -> list[str]:
    """Return what contradicts itself in a report."""
    found = [f"{each.__name__}: {told}" for each in DOCUMENT_RULES for told in each(report.document)]
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
