"""The HTML report: one self-contained file, safe to open whatever the job wrote into its logs.

Everything shown passes through autoescape. The page carries a Content-Security-Policy that allows its one
style and one script by their hashes and nothing else; data reaches the script only as inert JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from hangscope.report.html.page import build_page, world_size
from hangscope.report.html.templates import page_environment
from hangscope.report.reading import clean

#: Keys of a view that only feed the page; the embedded JSON is the report itself, without them.
VIEW_ONLY = (
    "candidates",
    "confidence_why",
    "coverage",
    "headline",
    "lanes",
    "missing",
    "partial",
    "rankmap",
    "sources",
    "stacks",
    "timeline",
    "waitfor",
)
#: Above this many ranks the embedded JSON is compressed.
PLAIN_RANKS = 256


def render_html(view: Mapping[str, Any], *, markdown: str = "") -> str:
    """Render the report as one HTML page without any outside reference.

    `view` is the JSON report (schema `hangscope.report/1`) plus optional keys for the pictures (`VIEW_ONLY`);
    a picture whose key is absent is left out with a sentence that says so. `markdown` is what the copy button
    copies; without it there is no such button. Returns the page as text; the same view gives the same text.
    """
    cleaned: dict[str, Any] = clean(view)
    report = {key: value for key, value in cleaned.items() if key not in VIEW_ONLY}
    environment = page_environment()
    # As the page includes them, to the last character: the policy allows what has their hashes, and nothing else.
    style, script = (environment.get_template(name).render() for name in ("report.css", "report.js"))
    return environment.get_template("report.html.j2").render(
        page=build_page(cleaned),
        policy=_policy(style, script),
        report=report,
        packed=_packed(report) if world_size(cleaned) > PLAIN_RANKS else "",
        markdown=clean(markdown),
    )


def _packed(report: Mapping[str, Any]) -> str:
    """Return base64 of raw deflate (RFC 1951) of the report's JSON."""
    text = json.dumps(report, separators=(",", ":"), allow_nan=False)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(text.encode("ascii")) + packer.flush()).decode("ascii")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy that allows this style, this script and images in the page."""
    sources = {"style-src": style, "script-src": script}
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for name, text in sources.items()
    }
    allowed = "; ".join(f"{name} 'sha256-{digest}'" for name, digest in hashes.items())
    return f"default-src 'none'; img-src data:; {allowed}; base-uri 'none'; form-action 'none'"
