"""All that the templates show, laid out from a document."""

from __future__ import annotations

from hangscope.model.conclusion import Evidence
from hangscope.model.dataclass import dataclass
from hangscope.report.html import first_screen as first
from hangscope.report.html import tables
from hangscope.report.html.diff_rows import DiffList, diff_list
from hangscope.report.html.fold_rows import Fold, fold_rows
from hangscope.report.html.map_svg import RankMap, draw_rankmap
from hangscope.report.html.order_svg import OrderDrawing, draw_order
from hangscope.report.html.stack_rows import StackRows, stack_rows
from hangscope.report.html.time_svg import Timeline, draw_timeline
from hangscope.report.html.waits_svg import WaitFor, draw_waitfor, way_to_root
from hangscope.report.reasons import commands, deciding_facts, outlier_lines
from hangscope.report.schema.document import Document, OutlierLine
from hangscope.report.schema.page import PageData
from hangscope.report.schema.pictures import TopologyData
from hangscope.report.schema.stories import KnownStory, OrderStory
from hangscope.report.words import LINE_CHARS, STATUS_WORDS, below_title, cut, some_ranks
from hangscope.verdict.claims import accounts_for

_STEPS = 3
#: What a page without an analysis shows: nothing but its words.
_NOTHING = PageData()


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """The first screen in words."""

    title: str
    headline: str
    explanation: str
    long: bool
    suspects: str
    partial: str
    who: tuple[tuple[str, str], ...]
    waiting: str
    places: tuple[first.Place, ...]
    what: tuple[str, ...]
    why: tuple[tuple[str, str, bool], ...]
    sources: str
    accounts: str
    reasons: tuple[str, ...]
    missing: tuple[str, ...]
    next_title: str
    steps: tuple[str, ...]
    more_steps: tuple[str, ...]
    commands: tuple[str, ...]
    moments: tuple[tuple[str, str, str, str], ...]
    timeline: Timeline | None
    cost: str


@dataclass(frozen=True, slots=True)
class Page:
    """The document with its first screen, its drawings and its tables."""

    document: Document
    data: PageData
    status_word: str
    first: FirstScreen
    calls: DiffList | None
    rankmap: RankMap | None
    folds: tuple[Fold, ...]
    mesh: str
    waitfor: WaitFor | None
    way_to_root: WaitFor | None
    order: OrderDrawing | None
    stacks: StackRows | None
    story_kind: str
    evidence: tuple[tuple[str, str, tuple[Evidence, ...]], ...]
    outliers: tuple[OutlierLine, ...]
    coverage: str
    lists: tuple[tables.Table, ...]
    ranks: tables.Table
    suspects: frozenset[int]
    culprits: frozenset[int]


def build_page(document: Document) -> Page:
    """Return the page of a document."""
    data = document.page or _NOTHING
    verdict = document.verdict
    calls = diff_list(data.calls) if data.calls is not None else None
    story = data.story
    way = way_to_root(data.waitfor) if data.waitfor is not None else None
    # What is missing and is among the steps is not listed again.
    listed = {*document.missing, *(verdict.advice if verdict is not None else ())} & set(_steps(document))
    return Page(
        document=document,
        data=data,
        status_word=STATUS_WORDS.get(document.status, document.status),
        first=_first_screen(document, data),
        calls=calls,
        rankmap=draw_rankmap(data.rankmap, data.topology) if data.rankmap is not None else None,
        folds=fold_rows(data.rankmap),
        mesh=_mesh(data.topology),
        waitfor=draw_waitfor(data.waitfor) if data.waitfor is not None else None,
        way_to_root=draw_waitfor(way) if way is not None else None,
        order=draw_order(story) if isinstance(story, OrderStory) else None,
        stacks=stack_rows(document),
        story_kind=type(story).__name__.removesuffix("Story").lower() if story is not None else "",
        evidence=tuple(
            (stance, title, chosen)
            for stance, title in first.STANCES
            if (
                chosen := tuple(
                    f
                    for f in (verdict.evidence if verdict else ())
                    if f.stance == stance and f.text not in listed
                )
            )
        ),
        outliers=tuple(outlier_lines(document)),
        coverage=tables.coverage(document),
        lists=tuple(
            table
            for table in (tables.groups(document), tables.windows(document), tables.inputs(document))
            if table.rows
        ),
        ranks=tables.ranks(document),
        suspects=frozenset(verdict.suspect_ranks if verdict is not None else ()),
        culprits=frozenset(verdict.culprit_ranks if verdict is not None else ()),
    )


def _mesh(topology: TopologyData | None) -> str:
    """Return how a rank's place in the mesh follows from its number, for the script: `dp:64:8,tp:8:1`; empty if it does not."""
    dimensions = topology.dimensions if topology is not None else ()
    if any(d.stride is None for d in dimensions):
        return ""
    return ",".join(f"{d.name}:{d.size}:{d.stride}" for d in dimensions)


def _steps(document: Document) -> list[str]:
    """Return what to do next; for an inconclusive report, what to collect comes first."""
    advice = list(document.verdict.advice) if document.verdict is not None else []
    if document.status != "inconclusive":
        return advice
    return [*document.missing, *(a for a in advice if a not in document.missing)]


def _first_screen(document: Document, data: PageData) -> FirstScreen:
    verdict = document.verdict
    undecided = document.status == "inconclusive"
    steps = _steps(document)
    heading = first.headline(document)
    facts = deciding_facts(verdict) if verdict is not None else ()
    why = first.shown_facts(facts)
    if undecided and not why and isinstance(data.story, KnownStory):
        why = tuple((cut(line, first.FACT_CHARS), "", False) for line in data.story.awaited[:2])
    return FirstScreen(
        title=f"{STATUS_WORDS[document.status]}: {document.title}" if verdict is not None else heading,
        headline=heading,
        explanation=below_title(document.title, verdict.explanation) if verdict is not None else "",
        suspects=some_ranks(verdict.suspect_ranks) if verdict is not None else "",
        long=len(heading) > first.LONG_HEADLINE,
        partial=cut(document.partial.text, first.FACT_CHARS) if document.partial.is_partial else "",
        who=first.who(verdict, document.status),
        waiting=first.waiting(verdict, document.status),
        places=first.places(data.sides, verdict),
        what=first.what(verdict),
        why=why,
        sources=first.sources(document),
        accounts=accounts_for(verdict.explains.ranks, verdict.explains.of) if verdict is not None else "",
        reasons=first.sure_reasons(document),
        missing=tuple(cut(line, first.NOTE_CHARS) for line in document.missing[:2] if line not in steps),
        next_title="Collect next time" if undecided else "Do next",
        steps=tuple(cut(step, LINE_CHARS) for step in steps[:_STEPS]),
        more_steps=tuple(cut(step, LINE_CHARS) for step in steps[_STEPS:]),
        commands=commands(document),
        moments=first.moments(data.strip),
        timeline=draw_timeline(data.strip),
        cost=first.cost(data.strip),
    )
