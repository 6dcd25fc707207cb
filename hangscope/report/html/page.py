"""The HTML report: one self-contained file, safe to open whatever the job wrote into its logs.

Everything shown passes through autoescape. The page carries a Content-Security-Policy that allows its one style and one
script by their hashes and nothing else; data reaches the script only as inert JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from hangscope.model.codec import to_plain
from hangscope.model.rankset import compress
from hangscope.report.html import tables
from hangscope.report.html.drawings import OrderDrawing, WaitFor, way_to_root
from hangscope.report.html.first_screen import FirstScreen
from hangscope.report.html.map_svg import RANK_LIMIT, RankMap
from hangscope.report.html.templates import own_environment
from hangscope.report.json import report_data, with_spans
from hangscope.report.reasons import accounts, next_steps, outlier_lines, says
from hangscope.report.schema.document import Document
from hangscope.report.schema.page import DetailData, Orders, PageData
from hangscope.report.schema.pictures import TopologyData
from hangscope.report.words import STATE_WORDS, STATUS_WORDS, rank_words, some_ranks

#: Above this many ranks the embedded JSON is compressed.
PLAIN_RANKS = 256
_STANCES = (("for", "For the verdict"), ("against", "Against it"), ("missing", "Missing"))


class Page:
    """A document with its first screen, its drawings and its tables."""

    def __init__(self, document: Document) -> None:
        verdict, data = document.found, document.page or PageData()
        self.document, self.data = document, data
        self.status_word = STATUS_WORDS.get(document.status, document.status)
        self.first = FirstScreen(document, data)
        self.calls = tables.diff_list(data.calls) if data.calls is not None else None
        self.rankmap = None
        if data.rankmap is not None and data.rankmap.world_size <= RANK_LIMIT:
            self.rankmap = RankMap(data.rankmap, data.topology.labels if data.topology is not None else ())
        self.mesh = _mesh(data.topology)
        self.waitfor = WaitFor(data.waitfor) if data.waitfor is not None else None
        way = way_to_root(data.waitfor) if data.waitfor is not None else None
        self.way_to_root = WaitFor(way) if way is not None else None
        parts = data.story.parts if data.story is not None else ()
        self.order = next((OrderDrawing(part) for part in parts if isinstance(part, Orders)), None)
        self.stacks = tables.stack_rows(document)
        # What is missing and is among the steps is not listed again.
        steps = next_steps(document)
        facts = [f for f in verdict.evidence if not says(steps, f.text)]
        by_stance = [(stance, title, [f for f in facts if f.stance == stance]) for stance, title in _STANCES]
        self.evidence = [row for row in by_stance if row[2]]
        self.outliers = outlier_lines(document)
        self.coverage = tables.coverage(document)
        lists = (tables.groups(document), tables.windows(document), tables.inputs(document))
        self.lists = [table for table in lists if table.rows]
        self.ranks = tables.ranks(document)
        self.filters = _filters(document, data.detail.hosts)
        self.suspects = frozenset(verdict.suspect_ranks)
        self.culprits = frozenset(verdict.culprit_ranks)


def _filters(document: Document, hosts: Sequence[str]) -> list[tuple[str, str]]:
    found = {
        "in": ("group", {group.name + group.desc for group in document.groups}),
        "state": ("state", {rank.state for rank in document.ranks}),
        "host": ("host", set(hosts) or {rank.host for rank in document.ranks if rank.host}),
    }
    return [(name, word) for name, (word, values) in found.items() if len(values) > 1]


def _mesh(topology: TopologyData | None) -> str:
    """Return how a rank's place in the mesh follows from its number, for the script: `dp:64:8,tp:8:1`; empty if it does not."""
    dimensions = topology.dimensions if topology is not None else ()
    if any(d.stride is None for d in dimensions):
        return ""
    return ",".join(f"{d.name}:{d.size}:{d.stride}" for d in dimensions)


def render_html(document: Document, *, markdown: str = "") -> str:
    """Render the report as one HTML page without any outside reference.

    `markdown` is what the copy button copies; without it there is no such button. Returns the page as text; the same
    document gives the same text.
    """
    environment = _environment()
    style, script = (_without_indents(environment, name) for name in ("report.css", "report.js"))
    report = report_data(document)
    detail = to_plain(document.page.detail if document.page is not None else DetailData())
    return environment.get_template("report.html.j2").render(
        page=Page(document),
        # Not escaped, alone on the page: two constant files of this project, rendered without any variable, so that
        # nothing of a job can be in them. To the last character, too: the policy allows what has their hashes, and
        # nothing else.
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        report=_packed(report) if document.world_size > PLAIN_RANKS else report,
        detail=_packed(detail),
        markdown=markdown,
    )


def _without_indents(environment: Environment, name: str) -> str:
    lines = (line.strip() for line in environment.get_template(name).render().splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _packed(data: Any) -> str:
    """Return base64 of raw deflate (RFC 1951) of data's JSON, in which long lists of ranks are text."""
    text = json.dumps(with_spans(data), separators=(",", ":"), allow_nan=False)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(text.encode("ascii")) + packer.flush()).decode("ascii")


def _policy(style: str, script: str) -> str:
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in (style, script))
    of_style, of_script = (f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    allowed = f"img-src data:; style-src {of_style}; script-src {of_script}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = own_environment()
    shared = (
        tables.glossary,
        tables.causes,
        accounts,
        compress,
        tables.bar,
        tables.states_of,
        tables.stalled,
    )
    environment.globals.update({function.__name__: function for function in shared})
    environment.globals.update(states=STATE_WORDS, words=tables.words())
    environment.globals["ranks"] = lambda found: rank_words(some_ranks(found))
    return environment
