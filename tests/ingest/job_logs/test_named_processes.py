"""Numbers beside words for ranks and processes, in whatever form."""

from __future__ import annotations

import pytest

from hangscope.ingest.lines.rank_words import Named, named_processes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20:15:02 [rank5] pid 78808 writing __5_0.distcp", Named(1, (5,), (), (78808,))),
        ("(PID:52806, Device:6, RankID:6) ERR02200", Named(1, (6,), (), (52806,))),
        ("[rank: 3] Child process with PID 61243 terminated", Named(1, (), (3,), (61243,))),
        ("---------Begin global rank 1 STDERR---------", Named(1, (1,), (), (), titled=True)),
        ("Received (local rank 2) pid=812", Named(1, (), (2,), (812,))),
    ],
)
def test_a_line_names_processes(text: str, expected: Named) -> None:
    assert named_processes([(1, text)]) == (expected,)


@pytest.mark.parametrize("text", ["rankings of 3 teams", "tp rank 1 is done", "node_rank=1", "stupid=44"])
def test_other_numbers_are_no_process(text: str) -> None:
    assert named_processes([(1, text)]) == ()
