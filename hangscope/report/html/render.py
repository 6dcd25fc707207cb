"""The HTML report: one self-contained file, safe to open whatever the job wrote into its logs.

Everything shown passes through autoescape. The page carries a Content-Security-Policy that allows its one style and one
script by their hashes and nothing else; data reaches the script only as inert JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import lru_cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from hangscope.model.codec import to_plain
from hangscope.model.rankset import compress
from hangscope.report.html.page import Page
from hangscope.report.html.rows import bar, stalled, states
from hangscope.report.html.tables import causes, glossary, words
from hangscope.report.html.templates import page_environment
from hangscope.report.json import report_data, with_spans
from hangscope.report.reasons import accounts
from hangscope.report.schema.document import Document
from hangscope.report.schema.page import DetailData
from hangscope.report.words import STATE_WORDS, rank_words, some_ranks

#: Above this many ranks the embedded JSON is compressed.
PLAIN_RANKS = 256


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
    """Return a constant style or script without indents and comment lines."""
    lines = (line.strip() for line in environment.get_template(name).render().splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _packed(data: Any) -> str:
    """Return base64 of raw deflate (RFC 1951) of data's JSON, in which long lists of ranks are text."""
    text = json.dumps(with_spans(data), separators=(",", ":"), allow_nan=False)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(text.encode("ascii")) + packer.flush()).decode("ascii")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy that allows this style, this script and images in the page."""
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in (style, script))
    of_style, of_script = (f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    allowed = f"img-src data:; style-src {of_style}; script-src {of_script}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = page_environment()
    environment.globals.update(
        states=STATE_WORDS,
        words=words(),
        glossary=glossary,
        causes=causes,
        accounts=accounts,
        compress=compress,
        bar=bar,
        states_of=states,
        stalled=stalled,
        ranks=lambda found: rank_words(some_ranks(found)),
    )
    return environment
