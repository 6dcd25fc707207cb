"""What is chosen on the page, in a real browser: links, search, keys, filters, the map."""

from __future__ import annotations

import json
import time

import pytest

from hangscope.report.schema.document import GroupRef
from tests.report.chromium import PANEL, press, search, settled
from tests.report.rules import ranks_of
from tests.report.samples import document
from tests.report.shown import Samples

pytestmark = pytest.mark.browser


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hang_512"])
def test_a_link_to_a_rank_opens_its_panel_at_once(browser: Samples, name: str) -> None:
    browser.show(name)
    began = time.monotonic()
    verdict = document(name).verdict
    assert verdict is not None
    rank = verdict.in_call[0]
    browser.evaluate(f"location.hash = '#rank={rank}'")
    assert settled(browser, f"({PANEL}).includes('What it is blocked by')")
    assert time.monotonic() - began < 2
    told = browser.evaluate(PANEL)
    assert f"Rank {rank}" in told and "is in all_" in told and ": the root cause" in told
    press(browser, "Escape")
    assert browser.evaluate(PANEL) == "" and browser.evaluate("location.hash") == ""
    browser.evaluate("location.hash = '#rank=99999'")
    assert settled(browser, f"({PANEL}).includes('Nothing is recorded of rank 99999')")
    assert browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hang_8", "hang_2048"])
def test_search_finds_hosts_ranks_groups_calls_and_lines(browser: Samples, name: str) -> None:
    browser.show(name)
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


def test_keys_search_select_and_move(browser: Samples) -> None:
    browser.show("hang_512")
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


def test_enter_opens_the_only_hit_and_back_closes_it(browser: Samples) -> None:
    browser.show("hang_2048")
    search(browser, "dp71 tp3")
    assert settled(browser, "document.querySelectorAll('#found button').length === 1")
    browser.evaluate("document.querySelector('#search').requestSubmit()")
    assert settled(browser, f"({PANEL}).includes('dp71')")
    browser.evaluate("history.back()")
    assert settled(browser, f"({PANEL}) === '' && location.hash === ''")
    assert browser.complaints() == []


@pytest.mark.parametrize("rank", [40, 1185])
def test_a_panel_lists_collectives_of_the_ranks_own_groups_alone(browser: Samples, rank: int) -> None:
    name = "hang_512" if rank < 512 else "hang_2048"
    browser.show(name)
    browser.evaluate(f"location.hash = '#rank={rank}'")
    assert settled(browser, "document.querySelectorAll('#panel table.queue tbody tr').length > 0")
    listed = set(
        json.loads(
            browser.evaluate(
                "JSON.stringify([...document.querySelectorAll('#panel table.queue tbody tr')].map(r => r.children[3].innerText))"
            )
        )
    )
    own = {
        GroupRef(g.name, g.desc).label
        for g in document(name).groups
        if rank in (g.ranks if isinstance(g.ranks, tuple) else ranks_of(g.ranks))
    }
    assert listed and {label for label in listed if not label.endswith(", one per rank")} <= own


@pytest.mark.parametrize("name", ["hang_8"])
def test_n_and_p_go_from_difference_to_difference(browser: Samples, name: str) -> None:
    browser.show(name)
    assert browser.evaluate("document.querySelectorAll('.row[data-diff]').length") > 0
    press(browser, "n")
    assert browser.evaluate("document.querySelector('.row.here').dataset.diff") == "1"
    press(browser, "p")
    assert browser.evaluate("document.querySelector('.row.here').dataset.diff") == "1"


@pytest.mark.parametrize(("name", "culprit"), [("hang_8", 3), ("hang_2048", 1185)])
def test_a_node_and_a_column_can_be_chosen_with_the_keyboard(
    browser: Samples, name: str, culprit: int
) -> None:
    browser.show(name)
    for query in (".node.root", ".head.culprit"):
        browser.evaluate(f"document.querySelector({query!r}).focus()")
        press(browser, "Enter")
        assert settled(browser, f"({PANEL}).includes('Rank {culprit}')"), query
        press(browser, "Escape")


def test_a_group_dims_the_calls_of_others_and_has_a_panel_and_a_link(browser: Samples) -> None:
    browser.show("hang_8")
    label = browser.evaluate("document.querySelector('.chip').dataset.group")
    for dimmed in (True, False):
        browser.evaluate("document.querySelector('.chip').click()")
        assert settled(
            browser, f"(document.querySelectorAll('.row.dimmed').length > 0) === {json.dumps(dimmed)}"
        )
        assert (f"Group {label}" in browser.evaluate(PANEL)) is dimmed
    browser.evaluate(f"location.hash = '#group=' + encodeURIComponent({label!r})")
    assert settled(browser, f"({PANEL}).includes('Last enqueued and completed seq')")
    press(browser, "ArrowRight")
    assert settled(browser, f"!({PANEL}).includes({'Group ' + label!r}) && ({PANEL}).includes('Group ')")
    assert browser.complaints() == []


def test_a_call_has_a_panel_and_a_link_and_arrows_go_to_the_next(browser: Samples) -> None:
    browser.show("hang_8")
    browser.evaluate("document.querySelector('.row.diff').focus()")
    press(browser, "Enter")
    assert settled(browser, f"({PANEL}).includes('Who issued it')")
    told, link = browser.evaluate(PANEL), browser.evaluate("location.hash")
    assert (
        "seq 40" in told and "rank 3: broadcast" in told and "issued and not known to be completed on" in told
    )
    press(browser, "ArrowUp")
    assert settled(browser, f"({PANEL}) !== {told!r}")
    assert browser.evaluate("location.hash") != link
    browser.evaluate(f"location.hash = {link!r}")
    assert settled(browser, f"({PANEL}) === {told!r}")


@pytest.mark.parametrize("name", ["hang_8", "hang_2048"])
def test_filters_dim_what_does_not_match_and_stand_in_the_link(browser: Samples, name: str) -> None:
    browser.show(name)
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
    browser.show(name)
    browser.evaluate(f"location.hash = {link!r}")
    assert settled(browser, "document.querySelector('#filtered').innerText.includes('8 ranks')")
    browser.evaluate("document.querySelector('.bar nav a').click()")
    assert browser.evaluate("document.querySelectorAll('.head.culprit.dimmed').length") == 1
    browser.evaluate("[...document.querySelectorAll('#filtered button')].at(-1).click()")
    assert settled(browser, "document.querySelectorAll('.dimmed').length === 0 && location.hash === ''")
    assert browser.complaints() == []


def test_the_map_folds_by_host_and_by_dimension_without_scripts(browser: Samples) -> None:
    browser.show("hang_8")
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


def test_click_on_the_map_names_the_rank_under_it(browser: Samples) -> None:
    browser.show("hang_2048")
    browser.evaluate("document.querySelector('#rankmap').scrollIntoView({block: 'center'})")
    ring = browser.evaluate(
        "(() => { const box = document.querySelector('#rankmap .ring').getBoundingClientRect();"
        " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **ring)
    assert settled(browser, f"({PANEL}).includes('Rank 1185')")
