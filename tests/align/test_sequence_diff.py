"""Insertions, deletions and repeated patterns in sequences of calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangscope.align.sequence_diff import MAX_CONTEXT, continues, expected, first_edit, left_out, occurrences

CALLS = st.integers(0, 5)
PROGRAMS = st.lists(CALLS, min_size=6, max_size=60)
#: calls that no program above makes, so that an edit of them can only be read in one way
FOREIGN = st.lists(st.integers(100, 103), min_size=1, max_size=6)


@given(PROGRAMS)
def test_equal_programs_have_no_edit(program: list[int]) -> None:
    assert first_edit(program, program) is None


@given(PROGRAMS, FOREIGN, st.data())
def test_a_run_of_foreign_calls_is_an_insertion(
    program: list[int], run: list[int], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(program) - 3))
    edit = first_edit([*program[:index], *run, *program[index:]], program)
    assert edit is not None
    assert (edit.kind, edit.index, edit.length) == ("extra", index, len(run))
    assert edit.confirmed == len(program) - index


@given(PROGRAMS, FOREIGN, st.data())
def test_the_mirror_image_is_a_deletion(program: list[int], run: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(program) - 3))
    edit = first_edit(program, [*program[:index], *run, *program[index:]])
    assert edit is not None
    assert (edit.kind, edit.index, edit.length) == ("missing", index, len(run))


@given(PROGRAMS, st.data())
def test_the_same_call_from_another_line_is_no_edit(program: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(program) - 3))
    own = list(program)
    own[index] = 100
    assert first_edit(own, program) is None


def test_one_call_behind_a_difference_is_no_proof_of_an_edit() -> None:
    assert first_edit([1, 2, 9, 3], [1, 2, 3]) is None
    assert first_edit([1, 2, 9, 3, 4], [1, 2, 3, 4]) is not None


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


def test_other_calls_in_the_place_of_as_many_are_no_edit() -> None:
    """A step of other buckets, and then the loop as before: the next step's likeness to the one before proves no insertion."""
    step = [1, 2, 3, 4]
    assert first_edit([*step, 8, 9, 3, 4, *step], [*step, *step, *step]) is None


def test_what_was_left_out_begins_with_what_the_others_made_there() -> None:
    """1 2 3 is a step, and 9 stands at the end of some of them; the peers went on with 1."""
    history = [1, 2, 3, 1, 2, 3, 9, 1, 2, 3]
    assert [history[place] for place in left_out(history, 3)] == [9, 1, 2]
    assert [history[place] for place in left_out(history, 3, due=1)] == [1, 2]
    assert left_out(history, 3, due=8) == []
