"""What a call's frames say of who made it."""

from __future__ import annotations

import pytest

from hangscope.incident import Frame
from hangscope.knowledge.callsite import position_to_loop


@pytest.mark.parametrize(("line", "peers", "where"), [(31, 29, "beyond"), (14, 29, "before"), (31, 40, None)])
def test_a_line_that_the_peers_are_past_is_not_behind_their_loop(
    line: int, peers: int, where: str | None
) -> None:
    """Lines that several calls before came from (a constructor's, say) need not be of the loop that the peers are in."""

    def at(number: int) -> tuple[Frame, ...]:
        return (Frame("main", "/workspace/train/train.py", number),)

    found = position_to_loop(at(line), at(peers), [at(29)] * 3)
    assert (found[0] if found is not None else None) == where
