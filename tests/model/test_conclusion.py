"""What became of ranks in a collective, in words."""

from __future__ import annotations

from hangscope.model.conclusion import WaitEnds


def test_each_state_names_its_ranks() -> None:
    ends = WaitEnds(timed_out=(0, 1), failed=(2,))
    assert ends.clause([0, 1, 2, 3]) == "ranks 0 and 1 timed out, rank 2 failed and rank 3 is blocked"
    assert ends.clause([3, 4]) == "ranks 3 and 4 are blocked"
    assert ends.state([0, 3]) == "timed out or blocked"
    assert ends.state([0, 2, 3]) == "timed out, failed or blocked"


def test_only_some_ranks_are_kept() -> None:
    assert WaitEnds((0, 1), (2,)).among([1]) == WaitEnds((1,))
