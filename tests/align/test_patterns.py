"""Repeated patterns in sequences of calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangscope.align.program import MAX_CONTEXT, continues, expected, left_out, occurrences

CALLS = st.integers(0, 5)
PROGRAMS = st.lists(CALLS, min_size=6, max_size=60)


@given(PROGRAMS)
def test_occurrences_are_where_the_end_stood_before(history: list[int]) -> None:
    found = occurrences(history)
    for length, place in found:
        assert 0 < length <= MAX_CONTEXT and 0 < place < len(history)
        assert history[place - length : place] == history[-length:]
    contexts = [context for context, _ in found]
    assert contexts == sorted(contexts, reverse=True)


@given(st.lists(CALLS, min_size=2, max_size=8, unique=True), st.integers(3, 6), st.data())
def test_a_loop_goes_on_as_it_did(body: list[int], rounds: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(body) - 1))
    history = body * rounds + body[:cut]
    ahead = [*body[cut:], *body]
    assert [history[place] for place in expected(history, len(ahead))] == ahead
    assert continues(history, ahead[0]) is True
    assert continues(history, 100) is False


def test_without_a_repetition_nothing_is_foretold() -> None:
    assert expected([1, 2, 3], 2) == [] and continues([1, 2, 3], 4) is None and continues([], 1) is None


def test_what_was_left_out_begins_with_what_the_others_made_there() -> None:
    """1 2 3 is a step, and 9 ends some of them; the peers went on with 1."""
    history = [1, 2, 3, 1, 2, 3, 9, 1, 2, 3]
    assert [history[place] for place in left_out(history, 3)] == [9, 1, 2]
    assert [history[place] for place in left_out(history, 3, due=1)] == [1, 2]
    assert left_out(history, 3, due=8) == []
