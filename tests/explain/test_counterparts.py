"""Sends and receives that only watchdog lines state, with the peers and the order of a counterpart's dump."""

from __future__ import annotations

from pathlib import Path

from hangscope.api import Report
from hangscope.report.schema.pictures import WaitPicture
from tests.dump_writer import Recorder
from tests.text_lines import DEFAULT, judged, short, status, timeout, told

PIPELINES = {
    "0": ("default_pg", range(6)),
    **{str(1 + n): ("pp", (n, n + 2, n + 4)) for n in range(2)},
}


def _pipelines(folder: Path) -> Report:
    """Write the dumps of the first of two pipelines of three stages, and the logs of all: stages 0 and 1 do not exchange a send."""
    for rank in (0, 2, 4):
        recorder = Recorder(rank, PIPELINES).call("all_reduce")
        for number in range(3):
            state = "completed" if number < 2 else "started"
            if rank == 0:
                recorder.send(2, "1", state=state, line=52)
            else:
                recorder.recv(rank - 2, "1", state=state, line=41)
            if rank == 2:
                recorder.send(4, "1", state="completed" if number < 2 else "scheduled", line=53)
        recorder.call("all_reduce", state="scheduled").write(folder)
    lines = []
    for rank in range(6):
        local = rank // 2
        pp = f"PG ID 1 PG GUID {1 + rank % 2}(pp) "
        seq, op, last = ((3, "SEND", 3), (5, "RECV", 6), (3, "RECV", 3))[local]
        # The watchdogs of the groups of one rank report in any order.
        lines += [timeout(rank, group=DEFAULT, seq=2, n=8), status(rank, 2, 2, 1)]
        lines.append(timeout(rank, group=pp, local=local, seq=seq, op=op, n=64))
        lines.append(status(rank, seq, last, seq - 1, group=pp, local=local))
    return told(folder, lines)


def _first(report: Report, rank: int) -> str:
    graph = report.analysis.case.graph
    node = graph.open_calls[rank][0].node
    return f"{node.source} -> {node.destination}" if node in graph.pairs else str(node)


def test_a_stated_send_pairs_with_the_receive_of_another_rank_that_only_a_line_states(tmp_path: Path) -> None:
    report = _pipelines(tmp_path)
    assert [_first(report, rank) for rank in range(6)] == [
        *("0 -> 2", "1 -> 3") * 2,
        *("2 -> 4", "3 -> 5"),
    ]
    verdict = judged(report)
    assert (
        short(report)[:2] == ("network_stall", ())
        and verdict.explains.ranks == len(verdict.waiting_ranks) == 6
    )
    assert verdict.suspect_ranks == (0, 1, 2, 3)


def test_what_a_rank_counts_after_its_stated_receive_is_not_missing(tmp_path: Path) -> None:
    graph = _pipelines(tmp_path).analysis.case.graph
    (later,) = (pair for key, pair in graph.pairs.items() if (key.source, key.destination) == (3, 5))
    assert later.send is not None and later.send.seq == 6


def test_the_two_sides_of_a_pair_are_named_with_their_own_numbers(tmp_path: Path) -> None:
    report = _pipelines(tmp_path)
    verdict = judged(report)
    assert verdict.title == "Sends from ranks 0 and 1 to ranks 2 and 3, posted on both sides, do not complete"
    assert "Rank 0 timed out in send seq 3 on group 1 (pp), rank 2 timed out in recv seq 5" in (
        verdict.explanation.replace("rank 0 timed", "Rank 0 timed")
    )
    assert verdict.location is not None and (verdict.location.rank, verdict.location.line) == (2, 41)
    facts = [item.text for item in verdict.evidence if item.kind in ("dump", "log")]
    assert (
        "rank 0 posted send seq 3 (train.py:52) and rank 2 posted recv seq 5 (train.py:41): one pair, and neither completes"
        in facts
    )


def test_pairs_that_wait_alike_are_one_box(tmp_path: Path) -> None:
    page = _pipelines(tmp_path).document.page
    picture: WaitPicture | None = page.waitfor if page is not None else None
    assert picture is not None
    root, behind = picture.text
    assert root.startswith("Ranks 0-3 were in send/recv 0 -> 2 seq 3/5 and 1 alike on 2 groups (pp); nobody")
    assert behind.startswith(
        "Ranks 4 and 5 were in send/recv 2 -> 4 seq 6/3 and 1 alike on 2 groups (pp), which was"
    )


def test_a_group_of_sends_and_receives_has_the_counts_of_dumps_and_lines(tmp_path: Path) -> None:
    counts = {
        group.name: {row.ranks: (row.enqueued, row.completed) for row in group.frontier}
        for group in _pipelines(tmp_path).document.groups
    }
    assert counts["2"] == {"1,5": (3, 2), "3": (6, 4)}
    assert counts["1"]["2"] == (6, 4)
