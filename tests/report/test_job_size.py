"""One size of the job in all parts of a report: that which an input states, else at least the number of ranks seen."""

from __future__ import annotations

from pathlib import Path

from tests.report.test_pictures import map_of
from tests.verdicts import judged

_TIMED_OUT = "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600004 milliseconds before timing out."
_LINES = [_TIMED_OUT.format(rank) for rank in (0, 1)]


def test_a_stated_size_is_that_of_every_part(tmp_path: Path) -> None:
    report = judged(tmp_path, paste=["It hangs on 8 GPUs.", "", *_LINES])
    document = report.document
    assert document.world_size == 8 and document.world_size_known
    assert document.partial.text.endswith("of 2 of 8 ranks") and document.partial.missing_ranks == "0-7"
    assert [row.rank for row in document.ranks] == list(range(8)) and document.ranks[7].state == "unseen"
    assert map_of(report).world_size == 8 and sum(row.count for row in map_of(report).legend) == 8
    assert document.groups[0].ranks == tuple(range(8)) and document.groups[0].members_known
    assert "at least" not in report.to_html().split('id="pictures"')[0]


def test_without_a_stated_size_the_ranks_seen_are_no_size(tmp_path: Path) -> None:
    report = judged(tmp_path, paste=["It hangs.", "", *_LINES])
    document = report.document
    assert document.world_size == 2 and not document.world_size_known
    assert not document.groups[0].members_known and "at least 2 ranks" in report.to_html()
    assert "group 0, 2 ranks" not in report.to_html()
