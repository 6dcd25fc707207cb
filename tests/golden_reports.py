"""The reports that are kept as golden files, and what of them is not compared."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import FIXTURES, analyze

FOLDER = Path(__file__).parent / "golden"

#: every captured incident
INCIDENTS = tuple(sorted(p.parent.name for p in FIXTURES.glob("*/truth.json")))
#: those of them whose text, Markdown and page are kept too: together they show every section
PAGES = (
    "healthy",
    "mesh_killed_rank",
    "mesh_opposite_order",
    "raising_rank_torchrun",
    "rank_conditional_barrier",
    "stuck_loader",
)

_DATA = re.compile(r'(<script type="application/json"[^>]*>).*?(</script>)', re.DOTALL)
_HASHES = re.compile(r"'sha256-[A-Za-z0-9+/=]+'")
_STYLE = re.compile(r"(<style[^>]*>).*?(</style>)", re.DOTALL)
_SCRIPT = re.compile(r"(<script>).*?(</script>)", re.DOTALL)
_VERSION = re.compile(
    r'("tool_version": ")[^"]*|(<sub>hangscope )[^<]*|(content="hangscope )[^"]*|(hangscope )\d+\.\d+\.\d+\S*'
)


def render(incident: str) -> dict[str, str]:
    """Return every golden file of an incident: its name and its scrubbed text."""
    report = analyze(FIXTURES / incident / "dumps")
    data = {f"{incident}.json": scrub(report.to_json())}
    if incident not in PAGES:
        return data
    return {
        **data,
        f"{incident}.txt": report.to_text(width=100),
        f"{incident}.md": scrub(report.to_markdown()),
        f"{incident}.html": scrub_page(report.to_html()),
    }


def scrub(text: str) -> str:
    """Return a report without the version of the tool."""
    return _VERSION.sub(lambda m: next(g for g in m.groups() if g) + "VERSION", text)


def scrub_page(page: str) -> str:
    """Return a page without embedded data, hashes, constant style and script: what is left is its structure and its words."""
    page = _DATA.sub(r"\1DATA\2", page)
    page = _STYLE.sub(r"\1STYLE\2", page)
    page = _SCRIPT.sub(r"\1SCRIPT\2", page)
    return scrub(_HASHES.sub("'HASH'", page))
