"""All that the templates show, laid out from a document."""

from __future__ import annotations

from hangscope.report.html import tables
from hangscope.report.html.drawings import OrderDrawing
from hangscope.report.html.first_screen import FirstScreen, next_steps
from hangscope.report.html.map_svg import RANK_LIMIT, RankMap
from hangscope.report.html.rows import diff_list, stack_rows
from hangscope.report.html.waits_svg import WaitFor, way_to_root
from hangscope.report.reasons import outlier_lines
from hangscope.report.schema.document import Document
from hangscope.report.schema.page import PageData
from hangscope.report.schema.pictures import TopologyData
from hangscope.report.schema.stories import Orders
from hangscope.report.words import STATUS_WORDS

_STANCES = (("for", "For the verdict"), ("against", "Against it"), ("missing", "Missing"))


class Page:
    """A document with its first screen, its drawings and its tables."""

    def __init__(self, document: Document) -> None:
        verdict, data = document.verdict, document.page or PageData()
        self.document, self.data = document, data
        self.status_word = STATUS_WORDS.get(document.status, document.status)
        self.first = FirstScreen(document, data)
        self.calls = diff_list(data.calls) if data.calls is not None else None
        self.rankmap = None
        if data.rankmap is not None and data.rankmap.world_size <= RANK_LIMIT:
            self.rankmap = RankMap(data.rankmap, data.topology.labels if data.topology is not None else ())
        self.mesh = _mesh(data.topology)
        self.waitfor = WaitFor(data.waitfor) if data.waitfor is not None else None
        way = way_to_root(data.waitfor) if data.waitfor is not None else None
        self.way_to_root = WaitFor(way) if way is not None else None
        parts = data.story.parts if data.story is not None else ()
        self.order = next((OrderDrawing(part) for part in parts if isinstance(part, Orders)), None)
        self.stacks = stack_rows(document)
        # What is missing and is among the steps is not listed again.
        steps = next_steps(document)
        facts = [f for f in (verdict.evidence if verdict is not None else ()) if f.text not in steps]
        by_stance = [(stance, title, [f for f in facts if f.stance == stance]) for stance, title in _STANCES]
        self.evidence = [row for row in by_stance if row[2]]
        self.outliers = outlier_lines(document)
        self.coverage = tables.coverage(document)
        lists = (tables.groups(document), tables.windows(document), tables.inputs(document))
        self.lists = [table for table in lists if table.rows]
        self.ranks = tables.ranks(document)
        self.suspects = frozenset(verdict.suspect_ranks if verdict is not None else ())
        self.culprits = frozenset(verdict.culprit_ranks if verdict is not None else ())


def _mesh(topology: TopologyData | None) -> str:
    """Return how a rank's place in the mesh follows from its number, for the script: `dp:64:8,tp:8:1`; empty if it does not."""
    dimensions = topology.dimensions if topology is not None else ()
    if any(d.stride is None for d in dimensions):
        return ""
    return ",".join(f"{d.name}:{d.size}:{d.stride}" for d in dimensions)
