"""The page on a phone: what matters is in sight, and each button is where it belongs."""

from __future__ import annotations

import pytest

from tests.report.shown import Samples

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: How far each button is from the right edge and below the top of its heading, in CSS pixels.
COPY = """
[...document.querySelectorAll('.copy-section')].map((item) => {
  const [own, title] = [item.getBoundingClientRect(), item.previousElementSibling.getBoundingClientRect()];
  const part = item.closest('figure, section').getBoundingClientRect();
  return [Math.abs(part.right - own.right), own.top - title.bottom];
})
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_copy_is_at_the_right_end_of_each_heading(browser: Samples, width: int) -> None:
    browser.show("hang_8", width=width, height=844)
    found = browser.evaluate(COPY)
    assert len(found) > 4 and all(right <= 1 and below < 0 for right, below in found), found


def test_a_label_of_the_first_screen_is_on_one_line(browser: Samples) -> None:
    browser.show("hang_8", width=390, height=844)
    assert browser.evaluate("document.querySelector('#sure dt').getClientRects().length") == 1
    assert browser.evaluate("document.querySelector('#sure dt').scrollWidth <= 64")


def test_the_graph_opens_at_its_start_and_the_map_at_the_first_ring(browser: Samples) -> None:
    browser.show("stuck", width=390, height=844)
    assert browser.evaluate(
        "[...document.querySelectorAll('#waits .scroll')].every((p) => p.scrollLeft === 0)"
    )
    ring = "document.querySelector('.rankmap .ring').getBoundingClientRect()"
    assert browser.evaluate(f"{ring}.left >= 0 && {ring}.right <= 390")
