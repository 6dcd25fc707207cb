"""The HTML report as text: what it holds, what it never lets through, and that it is the same every time."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.report.html.render import VIEW_ONLY, render_html
from hangscope.report.pictures.rankmap_svg import draw_rankmap, indexed_png
from hangscope.report.pictures.timeline_svg import draw_timeline, duration
from hangscope.report.pictures.waitfor_svg import NODE_LIMIT, draw_waitfor
from tests.report.sample_reports import (
    HOSTILE,
    MARKDOWN,
    SAMPLES,
    empty,
    hang_8,
    hang_512,
    hang_16384,
    hostile,
    inconclusive,
    no_hang,
)


class Outline(HTMLParser):
    """Every start tag with its attributes, and the text between tags outside script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[tuple[str, str]] = []
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append((self._inside, data))
        else:
            self.text += data


def data_of(page: str) -> Any:
    """Return the report that a page carries."""
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    assert found
    value = json.loads(found[1])
    return json.loads(zlib.decompress(base64.b64decode(value), -15)) if isinstance(value, str) else value


def heading(page: str) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.S)
    assert found
    return html.unescape(found[1])


@pytest.mark.parametrize("name", SAMPLES)
def test_same_view_gives_same_bytes(name: str) -> None:
    page = render_html(SAMPLES[name](), markdown=MARKDOWN)
    assert page == render_html(SAMPLES[name](), markdown=MARKDOWN)
    page.encode("utf-8")


def test_first_screen_says_who_where_what_why_and_next() -> None:
    text = Outline(render_html(hang_8())).text
    assert text.index("PARTIAL DATA") < text.rindex("Rank 3 alone called all_gather at train.py:87, and six")
    for fact in (
        "gpu07 · device 3",
        "train.py:87",
        "optim.py:44",
        "[64, 32] Float",
        "group 0 (default_pg), 8 ranks",
        "dumps/rank_3",
    ):
        assert fact in text
    assert "explains 6 of 6 waiting ranks" in text
    assert "read: 7 dumps, 8 logs" in text


def test_where_shows_user_frames_before_library_frames() -> None:
    report = hang_8()
    del report["stacks"]
    page = render_html(report)
    first = page[page.index('id="where"') : page.index('id="what"')]
    assert "train.py:87" in first
    assert "optim.py:44" in first
    assert "distributed_c10d" not in first
    assert "run_epoch" not in first, "both sides share this frame"


@pytest.mark.parametrize("report", [inconclusive(), empty()])
def test_inconclusive_says_so_and_asks_for_more(report: dict[str, Any]) -> None:
    page = render_html(report)
    assert heading(page).startswith("Inconclusive")
    assert "Collect next time" in page
    assert "No rank is named" in page


def test_inconclusive_lists_what_to_collect() -> None:
    page = render_html(inconclusive())
    first = page[page.index('id="next"') : page.index("</dl>")]
    assert "py-spy dump" in first
    assert "TORCH_FR_BUFFER_SIZE" in first


def test_no_hang_accuses_nobody() -> None:
    text = Outline(render_html(no_hang())).text
    assert "Nobody is accused" in text
    assert "Culprit" not in text


@pytest.mark.parametrize("name", ["hang_8", "hang_512", "hang_16384", "no_hang"])
def test_embedded_json_is_the_report_without_view_keys(name: str) -> None:
    report = SAMPLES[name]()
    assert data_of(render_html(report)) == {
        key: value for key, value in report.items() if key not in VIEW_ONLY
    }


def test_large_report_is_small() -> None:
    assert len(render_html(hang_16384(), markdown=MARKDOWN).encode()) < 300_000
    assert len(render_html(hang_8(), markdown=MARKDOWN).encode()) < 80_000


def test_policy_names_the_style_and_script_of_the_page() -> None:
    page = render_html(hang_8())
    outline = Outline(page)
    policy = next(
        a["content"]
        for t, a in outline.tags
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy and policy.startswith("default-src 'none'; img-src data:; ")
    assert policy.endswith("base-uri 'none'; form-action 'none'")
    for kind in ("style", "script"):
        text = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        assert text
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_inline_and_nothing_from_outside(name: str) -> None:
    for tag, attributes in Outline(render_html(SAMPLES[name](), markdown=MARKDOWN)).tags:
        assert tag not in ("iframe", "object", "embed", "base", "img")
        for key, value in attributes.items():
            assert key != "style" and not key.startswith("on"), (tag, key)
            if key in ("href", "src", "xlink:href", "action"):
                assert (value or "").startswith(("#", "data:image/png;base64,", "data:,")), (tag, value)


def test_hostile_strings_stay_text() -> None:
    page = render_html(hostile(), markdown=HOSTILE)
    calm = render_html(hang_8(), markdown=MARKDOWN)
    names = [tag for tag, _ in Outline(page).tags]
    assert names.count("script") == 2
    assert set(names) == {tag for tag, _ in Outline(calm).tags}
    assert page.count("alert(1)") > 50, "the strings are shown, not dropped"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]", page)
    assert "{{7*7}}" in Outline(page).text and "[31m" not in page


def test_hostile_json_cannot_close_its_script() -> None:
    page = render_html(
        {
            "schema": "</script><!--<script>",
            "status": "hang",
            "verdict": None,
            "ranks": [{"rank": 0, "host": "\u2028&"}],
        }
    )
    raw = re.search(r'id="report-data">(.*?)</script>', page, re.S)
    assert raw and not re.search("[<>&\u2028]", raw[1])
    assert data_of(page)["schema"] == "</script><!--<script>"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["rank", "ranks", "seq", "frames", "file", "line", "cells", "op", "label"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    key=st.sampled_from(sorted(hang_8())),
    inner=st.none() | st.sampled_from(sorted(hang_8()["verdict"])),
    value=json_values,
)
def test_any_value_of_any_key_gives_a_page(key: str, inner: str | None, value: Any) -> None:
    report = hang_8()
    if inner is None:
        report[key] = value
    else:
        report["verdict"][inner] = value
    assert "</html>" in render_html(report)


@settings(max_examples=150, deadline=None)
@given(
    picture=st.sampled_from(
        ["lanes", "rankmap", "waitfor", "timeline", "coverage", "stacks", "partial", "sources"]
    ),
    data=st.data(),
)
def test_any_value_inside_a_picture_gives_a_page(picture: str, data: st.DataObject) -> None:
    report = hang_8()
    report[picture][data.draw(st.sampled_from(sorted(report[picture])))] = data.draw(json_values)
    assert "</html>" in render_html(report)


@pytest.mark.parametrize("key", sorted(set(hang_8()) - {"schema"}))
def test_null_and_absent_keys_are_shown_as_such(key: str) -> None:
    for report in (hang_8(), hang_512()):
        report[key] = None
        assert "</html>" in render_html(report)
        del report[key]
        assert "</html>" in render_html(report)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("lanes", "could be lined up"),
        ("rankmap", "how many ranks there are"),
        ("waitfor", "nobody is seen to wait"),
        ("timeline", "carries a usable time"),
    ],
)
def test_a_picture_without_data_is_left_out_with_a_reason(key: str, sentence: str) -> None:
    report = hang_8()
    assert sentence not in render_html(report)
    del report[key]
    assert sentence in render_html(report)


def test_partial_band_only_where_data_is_partial() -> None:
    report = hang_8()
    report["partial"] = {"is_partial": False, "text": "", "missing_ranks": ""}
    assert "PARTIAL DATA" not in render_html(report)


def test_markdown_button_needs_markdown() -> None:
    assert 'id="copy"' not in render_html(hang_8())
    assert html.escape(MARKDOWN) in render_html(hang_8(), markdown=MARKDOWN)


def test_png_holds_the_pixels_it_was_given() -> None:
    png = indexed_png([b"\x00\x01\x02", b"\x02\x01\x00"], [(0, 0, 0), (255, 0, 0), (0, 255, 0)])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind], at = body, at + 12 + length
    assert chunks[b"IHDR"] == struct.pack(">IIBBBBB", 3, 2, 8, 3, 0, 0, 0)
    assert zlib.decompress(chunks[b"IDAT"]) == b"\0\x00\x01\x02\0\x02\x01\x00"


@pytest.mark.parametrize("world_size", [1, 8, 64, 65, 512, 4096, 16384])
def test_rank_map_places_every_rank_once(world_size: int) -> None:
    drawn = draw_rankmap(
        {
            "world_size": world_size,
            "per_host": 8,
            "hosts": [],
            "states": [[0, world_size - 1], [1, 1]],
            "legend": [
                {"state": 0, "label": "waiting", "role": "waiting"},
                {"state": 1, "label": "odd", "role": "culprit"},
            ],
            "culprits": [world_size - 1],
        }
    )
    assert drawn is not None
    assert sum(row.count for row in drawn.states) == world_size
    assert drawn.width <= 1160
    if world_size <= 64:
        assert [cell.rank for cell in drawn.cells] == list(range(world_size))
        assert len({(cell.x, cell.y) for cell in drawn.cells}) == world_size
        assert [cell.rank for cell in drawn.cells if cell.culprit] == [world_size - 1]
    else:
        assert drawn.image.startswith("data:image/png;base64,")
        assert len(drawn.rings) == 1
        x, y = drawn.rings[0]
        assert 0 < x < drawn.width and 0 < y < drawn.height


def test_rank_map_reads_plain_and_run_length_states_alike() -> None:
    base = {
        "world_size": 6,
        "per_host": 2,
        "hosts": ["a", "b", "c"],
        "legend": [{"state": 0, "label": "w", "role": "waiting"}, {"state": 1, "label": "i", "role": "idle"}],
        "culprits": [],
    }
    assert draw_rankmap({**base, "states": [0, 0, 0, 1, 1, 1]}) == draw_rankmap(
        {**base, "states": [[0, 3], [1, 3]]}
    )


def test_wait_for_graph_runs_left_to_right_and_survives_cycles() -> None:
    nodes = [
        {
            "id": str(n),
            "kind": "host",
            "label": str(n),
            "ranks": str(n),
            "count": 1,
            "root": n > 1,
            "cycle": n > 1,
        }
        for n in range(4)
    ]
    edges = [{"from": a, "to": b, "assumed": False} for a, b in ("01", "12", "23", "32", "02")]
    drawn = draw_waitfor({"nodes": nodes, "edges": edges, "text": []})
    assert drawn is not None
    places = {node.label: node.x for node in drawn.nodes}
    assert places["0"] < places["1"] < places["2"] < places["3"]
    assert len(drawn.edges) == 5
    assert sum(edge.cycle for edge in drawn.edges) == 2


def test_wait_for_graph_keeps_roots_when_it_must_drop_nodes() -> None:
    nodes = [{"id": str(n), "label": str(n), "root": n == 99} for n in range(100)]
    drawn = draw_waitfor({"nodes": nodes, "edges": [], "text": []})
    assert drawn is not None
    assert len(drawn.nodes) == NODE_LIMIT and drawn.left_out == 100 - NODE_LIMIT
    assert any(node.root for node in drawn.nodes)


def test_timeline_orders_events_and_keeps_labels_inside() -> None:
    drawn = draw_timeline(hang_8()["timeline"])
    assert drawn is not None
    assert drawn.logarithmic and not drawn.offset_known
    assert [mark.x for mark in drawn.marks] == sorted(mark.x for mark in drawn.marks)
    assert all(0 <= mark.x <= drawn.width for mark in drawn.marks)
    assert "first stall" in [tick.text for tick in drawn.ticks]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0"),
        (-41.5, "-41.5 ms"),
        (999.4, "+999 ms"),
        (12_000, "+12 s"),
        (600_950, "+10 min 1 s"),
        (119_900, "+2 min"),
        (7_200_000, "+2 h"),
        (7_199_999, "+2 h"),
    ],
)
def test_duration_reads_as_people_write_it(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_no_hang_of_a_slow_rank_names_it() -> None:
    report = hang_8()
    report["status"] = "no_hang"
    report["verdict"]["cause"] = "slow_rank"
    page = render_html(report)
    first = page[page.index('id="first"') : page.index("</header>")]
    assert "slow_rank" in first and "gpu07" in first and "dumps and logs agree" in first
