"""The HTML report in a real browser: an empty console, nothing from outside, a first screen that fits."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.report.html.render import render_html
from hangscope.report.json import report_data
from tests.report.chromium import Browser, find_chromium
from tests.report.samples import HOSTILE, MARKDOWN, SAMPLES, document

pytestmark = pytest.mark.browser

SIZES = ("hang_8", "hang_512", "hang_16384")
DESKTOP, PHONE = (1280, 800), (390, 844)

#: Every piece of text with its colour, the paper it stands on, and the contrast of the two (WCAG 2.1, 1.4.3).
CONTRAST = """
(() => {
  const parse = (text) => {
    const n = text.match(/[\\d.]+/g).map(Number);
    return n.length < 4 ? [...n, 1] : n;
  };
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const paper = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (at.tagName === "g" && at.querySelector(":scope > rect")) {
        const fill = getComputedStyle(at.querySelector(":scope > rect")).fill;
        if (fill !== "none") return parse(fill);
      }
      const ground = parse(style.backgroundColor);
      if (ground[3] === 1) return ground;
    }
    return [255, 255, 255, 1];
  };
  for (const item of document.querySelectorAll("details")) item.open = true;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("script, style, title, .vh, [hidden]")) continue;
    const style = getComputedStyle(element);
    const ink = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const found = ratio(ink.slice(0, 3), paper(element).slice(0, 3));
    seen += 1;
    if (found < 4.5) bad.push([walker.currentNode.data.trim().slice(0, 40), Math.round(found * 100) / 100]);
  }
  return { seen, bad };
})()
"""

#: The lowest edge of each named element, and how wide the page is against its window.
EDGES = """
(() => {
  const below = (name) => Math.ceil(document.querySelector(name).getBoundingClientRect().bottom);
  return {
    first: below("#first dl"), h1: below("h1"),
    who: below("#who"), where: below("#where"), what: below("#what"),
    page: document.documentElement.scrollWidth, window: document.documentElement.clientWidth,
  };
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = find_chromium()
    if binary is None:
        message = "Chromium is not installed: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with Browser(binary) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    written = {}
    for name in SAMPLES:
        written[name] = folder / f"{name}.html"
        markdown = HOSTILE if name == "hostile" else MARKDOWN
        written[name].write_text(render_html(document(name), markdown=markdown), encoding="utf-8")
    return written


PANEL = "document.querySelector('#panel').hidden ? '' : document.querySelector('#panel').innerText"


def settled(browser: Browser, expression: str) -> bool:
    """Return whether an expression becomes true soon: data is decoded asynchronously."""
    for _ in range(60):
        if browser.evaluate(expression):
            return True
        browser.evaluate("new Promise(done => setTimeout(done, 25))")
    return False


def press(browser: Browser, key: str) -> None:
    event = f"new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}})"
    browser.evaluate(f"(document.activeElement || document.body).dispatchEvent({event})")


def search(browser: Browser, words: str) -> None:
    browser.evaluate(
        f"(() => {{ const q = document.querySelector('#query'); q.value = {words!r};"
        " q.dispatchEvent(new Event('input')); })()"
    )


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_console_is_empty_and_nothing_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str, size: tuple[int, int]
) -> None:
    browser.open(pages[name], width=size[0], height=size[1])
    edges = browser.evaluate(EDGES)
    assert edges["page"] <= edges["window"] <= size[0]
    assert browser.complaints() == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "hostile"])
def test_first_screen_fits(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=DESKTOP[0], height=DESKTOP[1])
    edges = browser.evaluate(EDGES)
    assert edges["first"] <= DESKTOP[1], edges
    browser.open(pages[name], width=PHONE[0], height=PHONE[1])
    edges = browser.evaluate(EDGES)
    assert max(edges["h1"], edges["who"], edges["where"], edges["what"]) <= PHONE[1], edges


@pytest.mark.parametrize("name", [*SIZES, "stacks_1024", "no_hang", "empty"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_both_themes(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    browser.open(pages[name], dark=dark)
    found = browser.evaluate(CONTRAST)
    assert found["seen"] > 30
    assert found["bad"] == []
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark


def test_contrast_check_sees_pale_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_8"])
    browser.evaluate("document.querySelector('h1').attributeStyleMap.set('color', '#bbbbbb')")
    assert len(browser.evaluate(CONTRAST)["bad"]) == 1


def test_policy_stops_what_is_not_ours(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_8"])
    browser.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x'; })()"
    )
    assert browser.evaluate("window.ran === undefined")
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_hostile_strings_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.evaluate("document.querySelectorAll('img, iframe, script:not([type])').length") == 1
    assert browser.evaluate("document.querySelector('h1').textContent").startswith(
        "</script><script>alert(1)"
    )
    browser.evaluate("document.querySelector('.head').click()")
    assert settled(browser, f"({PANEL}).includes('<img src=x onerror')")
    search(browser, "alert")
    assert settled(browser, "document.querySelectorAll('#found button').length > 0")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("name", SIZES)
def test_a_link_to_a_rank_opens_its_panel_at_once(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    began = time.monotonic()
    verdict = document(name).verdict
    assert verdict is not None
    rank = verdict.in_call[0]
    browser.evaluate(f"location.hash = '#rank={rank}'")
    assert settled(browser, f"({PANEL}).includes('Its way to the root')")
    assert time.monotonic() - began < 2
    told = browser.evaluate(PANEL)
    assert f"Rank {rank}" in told and "is in all_" in told and ": the root" in told
    press(browser, "Escape")
    assert browser.evaluate(PANEL) == "" and browser.evaluate("location.hash") == ""
    browser.evaluate("location.hash = '#rank=99999'")
    assert settled(browser, f"({PANEL}).includes('Nothing is recorded of rank 99999')")
    assert browser.complaints() == []


@pytest.mark.parametrize("name", SIZES)
def test_search_finds_hosts_ranks_groups_calls_and_lines(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    verdict = document(name).verdict
    assert verdict is not None
    culprit = verdict.culprit_ranks[0]
    for words, wanted in (
        (str(culprit), f"rank {culprit}"),
        ("broadcast", f"rank {culprit}"),
        ("log_metrics", f"rank {culprit}"),
        ("dp3", "dp3 (DATA)"),
        ("nowhere", "nothing matches"),
    ):
        search(browser, words)
        assert settled(browser, f"document.querySelector('#found').innerText.includes({wanted!r})"), words
    assert browser.complaints() == []


def test_keys_search_select_and_move(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_512"])
    press(browser, "/")
    assert browser.evaluate("document.activeElement.id") == "query"
    for words, wanted in (
        ("gpu0025", "rank 200"),
        ("201", "rank 201"),
        ("broadcast", "rank 201"),
        ("dp7 tp", "rank 56"),
        ("nowhere", "nothing matches"),
    ):
        search(browser, words)
        assert settled(browser, f"document.querySelector('#found').innerText.includes({wanted!r})"), words
    search(browser, "201")
    assert settled(browser, "document.querySelectorAll('#found button').length > 0")
    browser.evaluate(
        "document.querySelector('#found button').click(); document.querySelector('#query').blur()"
    )
    assert settled(browser, "location.hash === '#rank=201'")
    press(browser, "ArrowRight")
    assert settled(browser, "location.hash === '#rank=202'")


@pytest.mark.parametrize("name", SIZES)
def test_n_and_p_go_from_difference_to_difference(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    assert browser.evaluate("document.querySelectorAll('.row[data-diff]').length") > 0
    press(browser, "n")
    assert browser.evaluate("document.querySelector('.row.here').dataset.diff") == "1"
    press(browser, "p")
    assert browser.evaluate("document.querySelector('.row.here').dataset.diff") == "1"


@pytest.mark.parametrize(("name", "culprit"), zip(SIZES, (3, 201, 9473), strict=True))
def test_a_node_and_a_column_can_be_chosen_with_the_keyboard(
    browser: Browser, pages: dict[str, Path], name: str, culprit: int
) -> None:
    browser.open(pages[name])
    for query in (".node.root", ".head.culprit"):
        browser.evaluate(f"document.querySelector({query!r}).focus()")
        press(browser, "Enter")
        assert settled(browser, f"({PANEL}).includes('Rank {culprit}')"), query
        press(browser, "Escape")


def test_a_group_dims_the_calls_of_others_and_has_a_panel_and_a_link(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["hang_8"])
    label = browser.evaluate("document.querySelector('.chip').dataset.group")
    for dimmed in (True, False):
        browser.evaluate("document.querySelector('.chip').click()")
        assert settled(
            browser, f"(document.querySelectorAll('.row.dimmed').length > 0) === {json.dumps(dimmed)}"
        )
        assert (f"Group {label}" in browser.evaluate(PANEL)) is dimmed
    browser.evaluate(f"location.hash = '#group=' + encodeURIComponent({label!r})")
    assert settled(browser, f"({PANEL}).includes('How far its ranks came')")
    press(browser, "ArrowRight")
    assert settled(browser, f"!({PANEL}).includes({'Group ' + label!r}) && ({PANEL}).includes('Group ')")
    assert browser.complaints() == []


def test_a_call_has_a_panel_and_a_link_and_arrows_go_to_the_next(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["hang_8"])
    browser.evaluate("document.querySelector('.row.diff').focus()")
    press(browser, "Enter")
    assert settled(browser, f"({PANEL}).includes('Who made it')")
    told, link = browser.evaluate(PANEL), browser.evaluate("location.hash")
    assert "seq 40" in told and "rank 3: broadcast" in told and "made and not seen to complete on" in told
    press(browser, "ArrowUp")
    assert settled(browser, f"({PANEL}) !== {told!r}")
    assert browser.evaluate("location.hash") != link
    browser.evaluate(f"location.hash = {link!r}")
    assert settled(browser, f"({PANEL}) === {told!r}")


@pytest.mark.parametrize("name", ["hang_8", "hang_16384"])
def test_filters_dim_what_does_not_match_and_stand_in_the_link(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name])
    browser.evaluate("document.querySelector('#filter').dispatchEvent(new Event('focusin'))")
    last = document(name).world_size // 8 - 1
    assert settled(
        browser,
        f"document.querySelector('#filter select[name=host]').options.length === {last + 2}"
        " && document.querySelector('#filter select[name=state]').options.length === 3",
    )
    for field, value in (("host", f"gpu{last:04d}"), ("state", "waiting")):
        browser.evaluate(
            f"(() => {{ const s = document.querySelector('#filter select[name={field}]'); s.value = {value!r};"
            " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )
    first = last * 8
    assert settled(
        browser, f"document.querySelector('#filtered').innerText.includes('8 ranks: {first}-{first + 7}')"
    )
    link = browser.evaluate("location.hash")
    assert f"host=gpu{last:04d}" in link and "state=waiting" in link
    assert browser.evaluate("document.querySelectorAll('.head.culprit.dimmed').length") == 1
    browser.open(pages[name])
    browser.evaluate(f"location.hash = {link!r}")
    assert settled(browser, "document.querySelector('#filtered').innerText.includes('8 ranks')")
    browser.evaluate("document.querySelector('.bar nav a').click()")
    assert browser.evaluate("document.querySelectorAll('.head.culprit.dimmed').length") == 1
    browser.evaluate("[...document.querySelectorAll('#filtered button')].at(-1).click()")
    assert settled(browser, "document.querySelectorAll('.dimmed').length === 0 && location.hash === ''")
    assert browser.complaints() == []


def test_the_map_folds_by_host_and_by_dimension_without_scripts(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["hang_8"])
    shown = (
        "[...document.querySelectorAll('.folded-map')].filter(t => t.checkVisibility()).map(t => t.className)"
    )
    assert browser.evaluate(shown) == []
    for fold, row in (("host", "gpu0000"), ("dp", "dp0"), ("tp", "tp3")):
        browser.evaluate(f"document.querySelector('#by-{fold}').checked = true")
        assert browser.evaluate(shown) == [f"folded-map of-{fold}"]
        culprit = browser.evaluate(f"document.querySelector('.of-{fold} tr.culprit').innerText")
        assert culprit.startswith(row) and "1 culprit" in culprit
        assert not browser.evaluate("document.querySelector('#rankmap').checkVisibility()")


@pytest.mark.parametrize("name", SIZES)
def test_a_page_opens_within_a_second(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])  # once, so that the browser itself is warm
    browser.open(pages[name])
    took = browser.evaluate(
        "Math.max(performance.getEntriesByType('navigation')[0].loadEventEnd,"
        " ...performance.getEntriesByType('paint').map(p => p.startTime))"
    )
    assert 0 < took < 1000, took


def test_the_stacks_of_a_thousand_ranks_open_the_one_that_stands_alone(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["stacks_1024"])
    browser.evaluate("document.querySelector('.tree .culprit').click()")
    assert settled(browser, f"({PANEL}).includes('Rank 700') && ({PANEL}).includes('train.py:7 in load')")


def test_click_on_the_map_names_the_rank_under_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_16384"])
    browser.evaluate("document.querySelector('#rankmap').scrollIntoView({block: 'center'})")
    ring = browser.evaluate(
        "(() => { const box = document.querySelector('#rankmap .ring').getBoundingClientRect();"
        " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **ring)
    assert settled(browser, f"({PANEL}).includes('Rank 9473')")


@pytest.mark.parametrize("name", SIZES)
def test_download_is_the_json_report(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, name: str
) -> None:
    browser.open(pages[name])
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.evaluate("document.querySelector('#download').click()")
    target = tmp_path / "hangscope-report.json"
    for _ in range(100):
        if target.exists():
            break
        browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert json.loads(target.read_text()) == json.loads(json.dumps(report_data(document(name))))


@pytest.mark.parametrize("name", ["hang_8", "hang_512", "stuck"])
def test_text_of_the_drawings_stays_in_its_boxes(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    spilt = browser.evaluate(
        "[...document.querySelectorAll('.node, .order .box')].flatMap(g => [...g.querySelectorAll('text')]"
        ".filter(t => t.getBoundingClientRect().width > g.querySelector('rect').getBoundingClientRect().width - 2))"
        ".map(t => t.textContent)"
    )
    assert spilt == []


@pytest.mark.parametrize("name", SIZES)
def test_the_call_diff_is_one_column_on_a_phone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=PHONE[0], height=PHONE[1])
    lefts = browser.evaluate(
        "[...new Set([...document.querySelectorAll('.row.diff .c')].filter(c => c.checkVisibility())"
        ".map(c => Math.round(c.getBoundingClientRect().left)))]"
    )
    assert len(lefts) == 1
    for places in ("#where .side", ".stacks > details"):
        lefts = browser.evaluate(
            f"[...new Set([...document.querySelectorAll({places!r})].map(s => s.getBoundingClientRect().left))]"
        )
        assert len(lefts) == 1, places
    assert browser.evaluate(
        "[...document.querySelectorAll('.row.diff .whose')].some(w => w.checkVisibility())"
    )


@pytest.mark.parametrize("name", SIZES)
def test_page_works_without_scripts(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], scripts=False)
    root = browser.call("DOM.getDocument", depth=1)["root"]["nodeId"]

    def shown(selector: str) -> bool:
        node = browser.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        try:
            return browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"] > 0
        except RuntimeError:
            return False

    there = ("h1", "#who", "#where", "#what", "#next", "#calls .row.diff", "#rankmap", "#waits svg")
    assert all(map(shown, there))
    assert not any(map(shown, ("#copy", "#download", "#search", "#panel"))), (
        "a control that needs scripts must not show"
    )


@pytest.mark.parametrize("name", SIZES)
def test_print_shows_what_explains_on_few_sheets(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    assert browser.evaluate("document.querySelectorAll('#coverage details[open]').length") == 0


def test_pictures_have_titles_and_words_beside_them(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_512"])
    assert browser.evaluate(
        "[...document.querySelectorAll('figure svg[role=img]')].every(s =>"
        " document.getElementById(s.getAttribute('aria-labelledby')).textContent.length > 10)"
    )
    assert browser.evaluate(
        "[...document.querySelectorAll('svg:not([role=img])')].every(s => s.ariaHidden === 'true')"
    )
