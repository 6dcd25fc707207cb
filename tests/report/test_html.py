"""The HTML report as text: what it holds, what it never lets through, and that it is the same every time."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import struct
import zlib
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from hangscope.report.html.drawings import WaitFor, fitted, text_width, way_to_root
from hangscope.report.html.map_svg import RankMap, indexed_png
from hangscope.report.html.page import render_html
from hangscope.report.json import report_data, without_spans
from hangscope.report.schema.document import Document, InputPart, Partial
from hangscope.report.schema.pictures import RankMapData, WaitEdge, WaitNode, WaitPicture
from tests.report.samples import HOSTILE, MARKDOWN, SAMPLES, SIZES, document

LARGEST = {"hang_8": 135_000, "hang_512": 250_000, "hang_2048": 250_000}


class Outline(HTMLParser):
    """Every start tag with its attributes, and the text between tags outside script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data


@cache
def page_of(name: str) -> str:
    return render_html(document(name), markdown=HOSTILE if name == "hostile" else MARKDOWN)


def data_of(page: str, name: str = "report-data") -> Any:
    """Return the data that a page carries."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    assert found
    value = json.loads(found[1])
    return (
        without_spans(json.loads(zlib.decompress(base64.b64decode(value), -15)))
        if isinstance(value, str)
        else value
    )


def heading(page: str) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.S)
    assert found
    return html.unescape(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_same_document_gives_same_bytes(name: str) -> None:
    page = page_of(name)
    assert page == page_of.__wrapped__(name)
    page.encode("utf-8")


def test_first_screen_says_who_where_what_why_and_next() -> None:
    page = page_of("hang_8")
    text = " ".join(Outline(page[page.index('<header id="first"') : page.index("</header>")]).text.split())
    for fact in (
        "rank 3",
        "gpu0000 · device 3",
        "train.py:93",
        "in log_metrics",
        "all_reduce",
        "seq 40",
        "group dp3",
    ):
        assert fact in text, fact
    verdict = document("hang_8").verdict
    assert verdict is not None and verdict.explains.of == 15
    assert f"accounts for {verdict.explains.ranks} of 15 blocked ranks" in text
    assert text.index("Why") < text.index("Do next")


def test_where_shows_user_frames_before_library_frames() -> None:
    page = page_of("hang_8")
    first = page[page.index('id="where"') : page.index('id="what"')]
    assert "train.py:93" in first and "train.py:87" in first
    assert "distributed_c10d" not in first
    assert "train.py:140" not in first, "both sides share this frame"


@pytest.mark.parametrize("name", ["empty"])
def test_inconclusive_says_so_and_asks_for_more(name: str) -> None:
    page = page_of(name)
    assert heading(page).startswith("Inconclusive")
    assert "Collect next time" in page and "No rank is named" in page and "raise deadline=" in page


def test_no_hang_accuses_nobody() -> None:
    text = Outline(page_of("no_hang")).text
    assert "No rank is at fault" in text and "culprit" not in text.lower()


@pytest.mark.parametrize("name", ["hang_8", "hang_512", "no_hang"])
def test_embedded_json_is_the_report(name: str) -> None:
    assert data_of(page_of(name)) == json.loads(json.dumps(report_data(document(name))))


@pytest.mark.parametrize("name", SIZES)
def test_a_page_keeps_to_its_size(name: str) -> None:
    assert len(page_of(name).encode()) < LARGEST[name]


def test_panel_data_holds_every_rank_and_the_way_to_the_root() -> None:
    detail = data_of(page_of("hang_512"), "detail-data")
    assert len(detail["ranks"]) == 512
    assert detail["ranks"][201]["waits"] == ["rank 201: the root cause"]
    way = detail["ranks"][5]["waits"]
    assert way[0].startswith("rank 5 is in all_gather seq 41") and way[-1] == "rank 201: the root cause"
    queue = detail["queues"][detail["ranks"][201]["queue"]]
    assert "broadcast" in queue[-1] and "pending" in queue[-1] and "train.py:93" in queue[-1][-1]


def test_policy_names_the_style_and_script_of_the_page() -> None:
    page = page_of("hang_8")
    policy = next(
        a["content"]
        for t, a in Outline(page).tags
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
    for tag, attributes in Outline(page_of(name)).tags:
        assert tag not in ("iframe", "object", "embed", "base", "img")
        for key, value in attributes.items():
            assert key != "style" and not key.startswith("on"), (tag, key)
            if key in ("href", "src", "xlink:href", "action"):
                assert (value or "").startswith(("#", "data:image/png;base64,", "data:,")), (tag, value)


def test_hostile_strings_stay_text() -> None:
    page = page_of("hostile")
    names = [tag for tag, _ in Outline(page).tags]
    assert names.count("script") == 4, "one of ours, three of data"
    assert set(names) <= {
        tag for name in SAMPLES if name != "hostile" for tag, _ in Outline(page_of(name)).tags
    }
    assert Outline(page).text.count("alert(1)") > 50, "the strings are shown, not dropped"
    assert "{{7*7}}" in Outline(page).text


def test_hostile_json_cannot_close_its_script() -> None:
    page = page_of("hostile")
    for name in ("report-data", "detail-data", "markdown-data"):
        raw = re.search(rf'id="{name}">(.*?)</script>', page, re.S)
        assert raw and not re.search("[<>&]", raw[1])


def test_a_picture_without_data_is_left_out_with_a_reason() -> None:
    bare = replace(document("hang_8"), page=None)
    page = render_html(bare)
    assert "no dump or log records any" in page and "no rank is seen to wait for another" in page
    assert 'id="calls"' not in page and 'href="#waits"' not in page


def test_partial_band_only_where_data_is_partial() -> None:
    whole = replace(document("hang_8"), partial=Partial(False, "dumps of all 16 ranks"))
    assert "PARTIAL DATA" not in render_html(whole)
    assert "PARTIAL DATA" in render_html(
        replace(whole, partial=Partial(True, "dumps of 15 of 16 ranks", "3"))
    )


def test_markdown_button_needs_markdown() -> None:
    assert 'id="copy"' not in render_html(document("hang_8"))
    found = re.search(r'id="markdown-data">(.*?)</script>', page_of("hang_8"), re.S)
    assert found and json.loads(found[1]) == MARKDOWN


def with_inputs(count: int, status: str) -> Document:
    rows = tuple(
        InputPart(file=f"logs/rank{i}.txt", kind="log", rank=i, status=status, reason="x")
        for i in range(count)
    )
    return replace(document("hang_8"), inputs=rows)


def test_512_files_are_rows_or_a_count() -> None:
    used, failed = render_html(with_inputs(512, "used")), render_html(with_inputs(512, "failed"))
    assert "512 files, logs/rank0.txt and others" in used
    assert "472 more files were not used" in failed


def test_all_groups_are_rows_or_a_count_and_the_culprits_is_there() -> None:
    page = page_of("hang_512")
    listed = page[page.index("Process groups") :]
    assert listed.index("dp1") < listed.index("tp0"), "the verdict's group comes first"
    assert "32 more groups" in page and len(document("hang_512").groups) == 72


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
    drawn = RankMap(RankMapData(world_size, 8, (), ((0, world_size - 1), (1, 1)), (), (world_size - 1,)))
    assert drawn.width <= 1160
    if world_size <= 64:
        assert [cell.rank for cell in drawn.cells] == list(range(world_size))
        assert len({(cell.x, cell.y) for cell in drawn.cells}) == world_size
        assert [cell.rank for cell in drawn.cells if cell.culprit] == [world_size - 1]
    else:
        assert drawn.image.startswith("data:image/png;base64,")
        x, y = drawn.rings[0]
        assert 0 < x < drawn.width and 0 < y < drawn.height


def test_wait_for_graph_runs_left_to_right_and_survives_cycles() -> None:
    nodes = tuple(WaitNode(str(n), "host", str(n), "", str(n), 1, root=n > 1, cycle=n > 1) for n in range(4))
    edges = tuple(WaitEdge(a, b) for a, b in ("01", "12", "23", "32", "02"))
    drawn = WaitFor(WaitPicture(nodes, edges, ()))
    places = {node.label: node.x for node in drawn.nodes}
    assert places["0"] < places["1"] < places["2"] < places["3"]
    assert len(drawn.edges) == 5 and sum(edge["cycle"] for edge in drawn.edges) == 2


def test_the_wait_for_graph_opens_on_the_way_from_the_most_blocked_ranks_to_the_root() -> None:
    nodes = (
        WaitNode("root", "host", "Rank 0", "", "0", 1, root=True, culprit=True),
        WaitNode("call", "call", "all_reduce seq 4", "", "1-8", 8),
        WaitNode("most", "host", "Ranks 1-8", "", "1-8", 8),
        *(WaitNode(f"few{n}", "host", f"Rank {n}", "", str(n), 1) for n in range(9, 12)),
    )
    edges = (WaitEdge("call", "root"), *(WaitEdge(node.id, "call") for node in nodes[2:]))
    way = way_to_root(WaitPicture(nodes, edges, ()))
    assert way is not None and {node.id for node in way.nodes} == {"root", "call", "most"}
    assert len(way.edges) == 2 and way_to_root(WaitPicture(nodes[:4], edges[:3], ())) is None


@pytest.mark.parametrize("label", ["rank 3", "all_reduce_coalesced seq 1234567", "W" * 80, "模" * 40])
def test_a_label_fits_its_box(label: str) -> None:
    drawn = WaitFor(WaitPicture((WaitNode("a", "call", label, "group x", "3", 1),), (), ()))
    assert text_width(drawn.nodes[0].label, 12.5, bold=True) <= drawn.nodes[0].width
    assert fitted(label, 10_000, 12) == label[:200] + ("" if len(label) <= 200 else "…")


def test_the_stacks_of_a_thousand_ranks_are_one_tree_on_the_page_and_in_the_json() -> None:
    report = report_data(document("stacks_1024"))
    told = [(b["depth"], b["ranks"], b["count"], b["frames"][-1]["name"]) for b in report["stacks"]]
    assert told == [
        (0, "0-1023", 1024, "main"),
        (1, "700", 1, "load"),
        (1, "0-699,701-1023", 1023, "all_reduce"),
    ]
    text = Outline(page_of("stacks_1024")).text
    tree = " ".join(text[text.index("Where all ranks are") :].split())
    assert "rank 700train.py:7 in load" in tree and "ranks 0-699,701-1023 1,023train.py:12 in step" in tree
    assert "Where all ranks are" not in Outline(page_of("hang_8")).text


def test_branches_that_are_not_listed_are_counted() -> None:
    many = document("stacks_1024")
    listed = replace(many, stacks=many.stacks[:1] + many.stacks[1:2] * 80, stacks_left_out=5)
    assert "26 more branches are in the JSON report." in Outline(render_html(listed)).text
