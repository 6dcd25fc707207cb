"""The HTML report in a real browser: an empty console, nothing from outside, a first screen that fits."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangscope.report.html.render import VIEW_ONLY, render_html
from tests.report.chromium import Browser, find_chromium
from tests.report.sample_reports import HOSTILE, MARKDOWN, SAMPLES

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
    for name, sample in SAMPLES.items():
        written[name] = folder / f"{name}.html"
        markdown = HOSTILE if name == "hostile" else MARKDOWN
        written[name].write_text(render_html(sample(), markdown=markdown), encoding="utf-8")
    return written


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


@pytest.mark.parametrize("name", SAMPLES)
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
    browser.evaluate("document.querySelector('#rank').value = 3")
    browser.evaluate("document.querySelector('#lookup').requestSubmit()")
    browser.evaluate("new Promise(done => setTimeout(done, 100))")
    assert "<img src=x onerror" in browser.evaluate("document.querySelector('#detail').textContent")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("name", SIZES)
def test_rank_detail_is_decoded_on_demand(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    browser.evaluate("document.querySelector('#rank').value = 5")
    browser.evaluate("document.querySelector('#lookup').requestSubmit()")
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    assert "all_reduce" in browser.evaluate("document.querySelector('#detail').textContent")
    browser.evaluate("document.querySelector('#rank').value = 99999")
    browser.evaluate("document.querySelector('#lookup').requestSubmit()")
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    assert (
        browser.evaluate("document.querySelector('#answer').textContent")
        == "nothing is recorded of rank 99999"
    )
    assert browser.complaints() == []


def test_click_on_the_map_names_the_rank_under_it(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_16384"])
    browser.evaluate("document.querySelector('#rankmap').scrollIntoView({block: 'center'})")
    ring = browser.evaluate(
        "(() => { const box = document.querySelector('#rankmap .ring').getBoundingClientRect();"
        " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **ring)
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    assert browser.evaluate("document.querySelector('#rank').value") == "9473"
    assert "node1184" in browser.evaluate("document.querySelector('#detail').textContent")


@pytest.mark.parametrize("name", ["hang_8", "hang_16384"])
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
    report: dict[str, Any] = SAMPLES[name]()
    assert json.loads(target.read_text()) == {
        key: value for key, value in report.items() if key not in VIEW_ONLY
    }
    assert browser.complaints() == []


def test_copy_gives_the_markdown(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_8"])
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.call("Page.bringToFront")
    browser.evaluate("document.querySelector('#copy').click()")
    browser.evaluate("new Promise(done => setTimeout(done, 200))")
    assert browser.evaluate("document.querySelector('#copy').textContent") == "Copied"
    assert browser.evaluate("navigator.clipboard.readText()") == MARKDOWN


def test_keyboard_reaches_every_control_with_a_visible_ring(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_8"])
    wanted = browser.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    reached = set()
    for _ in range(wanted + 2):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        at = browser.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return null;"
            " const s = getComputedStyle(e), all = [...document.querySelectorAll('*')];"
            " return [all.indexOf(e), s.outlineStyle, parseFloat(s.outlineWidth)]; })()"
        )
        if at is not None:
            assert at[1] == "solid" and at[2] >= 2
            reached.add(at[0])
    assert len(reached) >= wanted


@pytest.mark.parametrize("name", SIZES)
def test_page_works_without_scripts(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], scripts=False)
    document = browser.call("DOM.getDocument", depth=1)["root"]["nodeId"]

    def shown(selector: str) -> bool:
        node = browser.call("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
        try:
            return browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"] > 0
        except RuntimeError:
            return False

    assert all(
        map(
            shown,
            ("h1", "#who", "#where", "#what", "#next", "#lanes table", "#map svg", "#waits svg", "#time svg"),
        )
    )
    assert not any(map(shown, ("#copy", "#download", "#lookup"))), (
        "a control that needs scripts must not show"
    )


@pytest.mark.parametrize("name", SIZES)
def test_print_opens_everything(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], print_media=True, width=800, height=1100)
    hidden = browser.evaluate(
        "[...document.querySelectorAll('details > :not(summary)')].filter(e => !e.checkVisibility()"
        " || e.getBoundingClientRect().height === 0).length"
    )
    assert hidden == 0
    browser.open(pages[name])
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 60
    assert browser.evaluate("document.querySelectorAll('details[open]').length") < browser.evaluate(
        "document.querySelectorAll('details').length"
    ), "what was folded is folded again after printing"


def test_pictures_have_titles_and_words_beside_them(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hang_512"])
    assert browser.evaluate(
        "[...document.querySelectorAll('figure svg[role=img]')].every(s =>"
        " document.getElementById(s.getAttribute('aria-labelledby')).textContent.length > 10)"
    )
    assert browser.evaluate(
        "[...document.querySelectorAll('figure')].every(f => f.querySelector('table, ul.plain'))"
    )
    assert browser.evaluate(
        "[...document.querySelectorAll('svg:not([role=img])')].every(s => s.ariaHidden === 'true')"
    )
