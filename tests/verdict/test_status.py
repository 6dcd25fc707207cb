"""Whether a job hangs at all: dumps of one that moves, made seconds apart, accuse nobody."""

from __future__ import annotations

from pathlib import Path

from tests.dump_writer import Recorder, job
from tests.small_jobs import due, loop
from tests.text_lines import timeout
from tests.verdicts import blame, judged

SIZE = 8
GROUPS = {"0": ("default_pg", range(SIZE)), **{str(n): ("tp", (2 * n - 2, 2 * n - 1)) for n in range(1, 5)}}


def pairs_of_ranks(waiting: tuple[int, ...]) -> list[Recorder]:
    """Return ranks that meet in pairs, of which the given ones wait for their partners."""
    recorders = job(SIZE, groups=GROUPS)
    for recorder in recorders:
        own = str(recorder.rank // 2 + 1)
        for _ in range(10):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        if recorder.rank in waiting:
            recorder.call("all_reduce", own, line=41, state="started")
    return recorders


def test_where_most_ranks_are_in_no_call_and_no_line_tells_of_trouble_nobody_is_named(tmp_path: Path) -> None:
    assert blame(judged(tmp_path, pairs_of_ranks((1, 4)))) == ("inconclusive", "unknown", ())


def test_a_timeout_tells_that_they_wait_for_more_than_a_moment(tmp_path: Path) -> None:
    report = judged(
        tmp_path,
        pairs_of_ranks((1, 4)),
        rank1=[timeout(1, group="PG ID 1 PG GUID 1(tp) ", seq=11)],
        rank4=[timeout(4, group="PG ID 3 PG GUID 3(tp) ", seq=11)],
    )
    assert blame(report)[::2] == ("hang", (0, 5))


def test_one_who_is_idle_while_all_others_wait_is_named(tmp_path: Path) -> None:
    recorders = loop(2)
    due(recorders[0])
    assert blame(judged(tmp_path, recorders))[::2] == ("hang", (1,))
