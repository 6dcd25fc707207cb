"""The whole page as plain data: the report dict read defensively, cut to fit and laid out for the templates.

Whatever the report does not hold becomes a sentence that says so, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hangscope.report.html.coverage import Coverage, Row, candidates, coverage, rank_rows
from hangscope.report.html.first_screen import (
    FACT_CHARS,
    STANCES,
    Fact,
    Sureness,
    facts,
    first_facts,
    headline,
    partial_data,
    sureness,
    waiting,
    what,
    who,
)
from hangscope.report.pictures.lanes import Lanes, draw_lanes
from hangscope.report.pictures.rankmap_svg import RankMap, draw_rankmap
from hangscope.report.pictures.timeline_svg import Timeline, draw_timeline
from hangscope.report.pictures.waitfor_svg import WaitFor, draw_waitfor
from hangscope.report.reading import (
    LINE_CHARS,
    choice,
    cut,
    is_number,
    items,
    mapping,
    mappings,
    rank_count,
    rank_text,
    text,
    texts,
)
from hangscope.report.sides import Side, sides

STATUS_WORDS = {"hang": "Hang", "no_hang": "No hang", "inconclusive": "Inconclusive"}
STATIC_RANKS = 64
# A headline above this length is set smaller.
LONG_HEADLINE = 120


@dataclass(frozen=True, slots=True)
class Page:
    """All that the templates show."""

    status: str
    status_word: str
    headline: str
    headline_long: bool
    cause: str
    category: str
    fingerprint: str
    partial: str
    who: tuple[tuple[str, str], ...]
    waiting: str
    sides: tuple[Side, ...]
    what: tuple[str, ...]
    what_op: str
    why: tuple[Fact, ...]
    sure: Sureness
    next_title: str
    next_steps: tuple[str, ...]
    next_more: int
    lanes: Lanes | None
    rankmap: RankMap | None
    waitfor: WaitFor | None
    timeline: Timeline | None
    candidates: tuple[Row, ...]
    alternatives: tuple[Row, ...]
    evidence: tuple[tuple[str, tuple[Fact, ...]], ...]
    advice: tuple[str, ...]
    missing: tuple[str, ...]
    coverage: Coverage
    ranks: tuple[Row, ...]
    rank_count: int
    world_size: int
    tool_version: str
    schema: str


def build_page(view: Mapping[str, Any]) -> Page:
    """Return the page of one cleaned report dict with its optional view keys."""
    verdict = mapping(view.get("verdict"))
    status = choice(view.get("status"), STATUS_WORDS, "inconclusive")
    culprits = rank_text(verdict.get("culprit_ranks"))
    missing = texts(view.get("missing"), LINE_CHARS)
    advice = texts(verdict.get("advice"), LINE_CHARS)
    found = facts(verdict)
    steps = [*missing, *(a for a in advice if a not in missing)] if status == "inconclusive" else advice
    ranks = items(view.get("ranks"))
    heading = headline(view, verdict, status)
    return Page(
        status=status,
        status_word=STATUS_WORDS[status],
        headline=heading,
        headline_long=len(heading) > LONG_HEADLINE,
        cause=text(verdict.get("cause"), 60),
        category=text(verdict.get("category"), 40),
        fingerprint=text(verdict.get("fingerprint"), 80),
        partial=partial_data(mapping(view.get("partial"))),
        who=who(verdict, culprits, status),
        waiting=waiting(verdict),
        sides=sides(view, verdict, culprits),
        what=what(view, verdict),
        what_op=text(verdict.get("op"), 60),
        why=first_facts(found),
        sure=sureness(view, verdict, missing),
        next_title="Collect next time" if status == "inconclusive" else "Do next",
        next_steps=tuple(cut(step, FACT_CHARS) for step in steps[:3]),
        next_more=max(0, len(steps) - 3),
        lanes=draw_lanes(mapping(view.get("lanes"))),
        rankmap=draw_rankmap(mapping(view.get("rankmap"))),
        waitfor=draw_waitfor(mapping(view.get("waitfor"))),
        timeline=draw_timeline(mapping(view.get("timeline"))),
        candidates=candidates(view, verdict),
        alternatives=tuple(
            Row((text(entry.get("cause"), 60), text(entry.get("why"), LINE_CHARS)))
            for entry in mappings(verdict.get("alternatives"))
        ),
        evidence=tuple(
            (title, chosen)
            for stance, title in STANCES
            if (chosen := tuple(fact for fact in found if fact.stance == stance))
        ),
        advice=tuple(cut(step, LINE_CHARS) for step in advice),
        missing=tuple(cut(item, LINE_CHARS) for item in missing),
        coverage=coverage(view),
        ranks=rank_rows(ranks) if len(ranks) <= STATIC_RANKS else (),
        rank_count=len(ranks),
        world_size=world_size(view),
        tool_version=text(view.get("tool_version"), 60) or "unknown",
        schema=text(view.get("schema"), 60),
    )


def world_size(view: Mapping[str, Any]) -> int:
    """Return how many ranks the report speaks of, as far as it tells; 0 where it does not."""
    sizes = [
        view.get("world_size"),
        mapping(view.get("rankmap")).get("world_size"),
        len(items(view.get("ranks"))),
    ]
    sizes += [rank_count(mapping(group).get("ranks")) for group in items(view.get("groups"))]
    return max((size for size in sizes if is_number(size)), default=0)
