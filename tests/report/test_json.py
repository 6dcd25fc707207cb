"""Long lists of ranks inside a page's data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.report.json import MARK, with_spans, without_spans

_DATA: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(min_codepoint=32)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=15)
@given(_DATA, st.sets(st.integers(0, 5000), min_size=65))
def test_what_was_shortened_comes_back(data: Any, ranks: set[int]) -> None:
    whole = {"data": data, "ranks": sorted(ranks), "reversed": sorted(ranks, reverse=True)}
    assert without_spans(with_spans(whole)) == whole


def test_many_ranks_take_few_characters() -> None:
    short = with_spans({"ranks": [*range(9473), *range(9474, 16384)]})
    assert short == {"ranks": MARK + "0-9472,9474-16383"}


@pytest.mark.parametrize("text", ["0-999999999", "1,x", "", "-5", "0-9" * 20, ",".join(["0-900000"] * 20)])
def test_marked_text_of_another_form_or_without_end_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="ranks"):
        without_spans([MARK + text])
