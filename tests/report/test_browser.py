"""The HTML report in a real browser: an empty console, nothing from outside, a first screen that fits."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangscope.report.html.page import render_html
from hangscope.report.json import report_data
from hangscope.report.schema.document import SeenBefore
from tests.report.chromium import PANEL, search, settled
from tests.report.samples import SAMPLES, document
from tests.report.shown import Samples

pytestmark = [pytest.mark.browser, pytest.mark.slow]


DESKTOP, PHONE = (1280, 800), (390, 844)
#: The package brings axe-core's file (`pip install --no-deps axe-playwright-python`, as .ci/run does); AXE_CORE names another one.
PACKAGE = find_spec("axe_playwright_python")
AXE = Path(os.environ.get("AXE_CORE") or Path((PACKAGE and PACKAGE.origin) or "x").with_name("axe.min.js"))


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
  const bottom = (slot) => slot ? Math.ceil(slot.getBoundingClientRect().bottom) : 0;  // a slot may be left out
  const below = (name) => bottom(document.querySelector(name));
  return {
    first: below("#first dl"), h1: below("h1"),
    who: below("#who"), where: below("#where"), what: below("#what"),
    page: document.documentElement.scrollWidth, window: document.documentElement.clientWidth,
  };
})()
"""


@pytest.mark.parametrize("name", SAMPLES)
def test_first_screen_fits_the_console_is_empty_and_nothing_scrolls_sideways(
    browser: Samples, name: str
) -> None:
    for width, height in (DESKTOP, PHONE):
        browser.show(name, width=width, height=height)
        edges = browser.evaluate(EDGES)
        assert edges["page"] <= edges["window"] <= width
        assert browser.complaints() == []
        if name != "hostile":
            parts = ("first",) if width == DESKTOP[0] else ("h1", "who", "where", "what")
            assert max(edges[part] for part in parts) <= height, edges


def test_a_page_says_what_was_seen_before_on_the_first_screen(browser: Samples, tmp_path: Path) -> None:
    seen = SeenBefore(3, "2026-11-12", "2026-11-20", "job-8812", note="<b>fixed</b> by draining gpu07")
    page = tmp_path / "seen.html"
    page.write_text(render_html(replace(document("hang_8"), seen_before=seen)), encoding="utf-8")
    browser.open(page, width=DESKTOP[0], height=DESKTOP[1])
    text = browser.evaluate("document.querySelector('#next .seen').textContent")
    assert (
        text == f"Seen 3 times before, first on 2026-11-12, last on 2026-11-20 (job-8812). Note: {seen.note}."
    )
    assert browser.evaluate(EDGES)["first"] <= DESKTOP[1]
    assert browser.complaints() == []


@pytest.mark.parametrize("name", ["hang_512", "stacks_1024", "no_hang", "empty"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_both_themes(browser: Samples, name: str, dark: bool) -> None:
    browser.show(name, dark=dark)
    found = browser.evaluate(CONTRAST)
    assert found["seen"] > 30
    assert found["bad"] == []
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark


def test_contrast_check_sees_pale_text(browser: Samples) -> None:
    browser.show("hang_8")
    browser.evaluate("document.querySelector('h1').attributeStyleMap.set('color', '#bbbbbb')")
    assert len(browser.evaluate(CONTRAST)["bad"]) == 1


def test_policy_stops_what_is_not_ours(browser: Samples) -> None:
    browser.show("hang_8")
    browser.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x'; })()"
    )
    assert browser.evaluate("window.ran === undefined")
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_hostile_strings_stay_text(browser: Samples) -> None:
    browser.show("hostile")
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


def test_a_page_opens_within_a_second(browser: Samples) -> None:
    for _ in range(2):  # once, so that the browser itself is warm
        browser.show("hang_2048")
    took = browser.evaluate(
        "Math.max(performance.getEntriesByType('navigation')[0].loadEventEnd,"
        " ...performance.getEntriesByType('paint').map(p => p.startTime))"
    )
    assert 0 < took < 1000, took


def test_the_stacks_of_a_thousand_ranks_open_the_one_that_stands_alone(browser: Samples) -> None:
    browser.show("stacks_1024")
    browser.evaluate("document.querySelector('.tree .culprit').click()")
    assert settled(browser, f"({PANEL}).includes('Rank 700') && ({PANEL}).includes('train.py:7 in load')")


@pytest.mark.parametrize("name", ["hang_512"])
def test_download_is_the_json_report(browser: Samples, tmp_path: Path, name: str) -> None:
    browser.show(name)
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.evaluate("document.querySelector('#download').click()")
    target = tmp_path / "hangscope-report.json"
    for _ in range(100):
        if target.exists():
            break
        browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert json.loads(target.read_text()) == json.loads(json.dumps(report_data(document(name))))


@pytest.mark.parametrize("name", ["hang_8", "hang_512", "stuck"])
def test_text_of_the_drawings_stays_in_its_boxes(browser: Samples, name: str) -> None:
    browser.show(name)
    spilt = browser.evaluate(
        "[...document.querySelectorAll('.node, .order .box')].flatMap(g => [...g.querySelectorAll('text')]"
        ".filter(t => t.getBoundingClientRect().width > g.querySelector('rect').getBoundingClientRect().width - 2))"
        ".map(t => t.textContent)"
    )
    assert spilt == []


@pytest.mark.parametrize("name", ["hang_8", "hang_512"])
def test_the_call_diff_is_one_column_on_a_phone(browser: Samples, name: str) -> None:
    browser.show(name, width=PHONE[0], height=PHONE[1])
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


@pytest.mark.parametrize("name", ["hang_512"])
def test_page_works_without_scripts(browser: Samples, name: str) -> None:
    browser.show(name, scripts=False)
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


@pytest.mark.parametrize("name", ["hang_8", "hang_2048"])
def test_print_shows_what_explains_on_few_sheets(browser: Samples, name: str) -> None:
    browser.show(name)
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    assert browser.evaluate("document.querySelectorAll('#coverage details[open]').length") == 0


def test_pictures_have_titles_and_words_beside_them(browser: Samples) -> None:
    browser.show("hang_512")
    assert browser.evaluate(
        "[...document.querySelectorAll('figure svg[role=img]')].every(s =>"
        " document.getElementById(s.getAttribute('aria-labelledby')).textContent.length > 10)"
    )
    assert browser.evaluate(
        "[...document.querySelectorAll('svg:not([role=img], [role=group])')].every(s => s.ariaHidden === 'true')"
    )


@pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not installed: pip install --no-deps axe-playwright-python"
)
@pytest.mark.parametrize(
    ("name", "width"),
    [("hang_8", 1280), ("hang_512", 390), ("stuck", 390), ("no_hang", 1280), ("unclear", 390)],
)
def test_axe_finds_no_fault(browser: Samples, name: str, width: int) -> None:
    browser.show(name, width=width)
    browser.call("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    found = browser.evaluate(
        "axe.run().then(r => [r.passes.length, r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 90)).join(' | '))])"
    )
    assert found[0] > 10 and found[1] == []
