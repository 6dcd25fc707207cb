"""What the pictures show of incidents whose answer is known: the data, not the drawing."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from hangscope.api import Report
from hangscope.report import quotes
from hangscope.report.html.drawings import draw_timeline
from hangscope.report.html.page import Page
from hangscope.report.schema.document import Document
from hangscope.report.schema.page import Endings, Lines, Orders, PageData, Story
from hangscope.report.schema.pictures import CallDiff, Moment, RankMapData, StripData
from hangscope.report.subject import Subject
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import Recorder, write_all
from tests.report.samples import SIZES, document
from tests.simulator import write_incident
from tests.small_jobs import due, loop
from tests.text_lines import told
from tests.verdicts import judged

T = TypeVar("T")


def simulated(folder: Path, fault: str, seed: int = 7100) -> Report:
    write_incident(folder, fault, seed, way="full")
    return analyze(folder / "dumps")


def page_of(report: Report | Document) -> PageData:
    page = (report if isinstance(report, Document) else report.document).page
    assert page is not None
    return page


def diff_of(report: Report) -> CallDiff:
    calls = page_of(report).calls
    assert calls is not None
    return calls


def map_of(report: Report | Document) -> RankMapData:
    found = page_of(report).rankmap
    assert found is not None
    return found


def part_of(story: Story, kind: type[T]) -> T:
    return next(part for part in story.parts if isinstance(part, kind))


@pytest.mark.slow
def test_a_missing_send_is_seen_beside_ranks_of_the_same_stage(tmp_path: Path) -> None:
    report = simulated(tmp_path, "lost_half")
    diff = diff_of(report)
    assert report.verdict is not None and report.verdict.culprit_ranks == (8,)
    assert [c.role for c in diff.classes] == ["waiting", "culprit"] and diff.classes[0].first == 9
    assert diff.differences == 1
    parted = [row for row in diff.rows if row.differs]
    assert [c.mark for c in parted[0].cells] == ["same", "left_out"] and parted[0].cells[
        0
    ].op == "send to 1 (rank 9)"


def test_who_left_a_stalled_call_stands_beside_who_is_in_it(tmp_path: Path) -> None:
    report = simulated(tmp_path, "gpu_stall")
    diff = diff_of(report)
    assert report.verdict is not None and report.verdict.culprit_ranks == ()
    assert "and none completes" not in report.verdict.summary
    parted = [row for row in diff.rows if row.differs]
    assert [c.mark for c in parted[0].cells] == ["same", "state"]
    assert {c.state for c in parted[0].cells} == {"pending", "done"} and parted[0].cells[0].seq == 465


def test_the_sizes_of_an_all_to_all_differ_where_the_verdict_says_that_they_do_not_fit(
    tmp_path: Path,
) -> None:
    """Before it they may differ as they like."""
    recorders = [Recorder(rank, {"0": ("default_pg", range(4))}) for rank in range(4)]
    for recorder in recorders:
        own, partner = 32 + recorder.rank, 32 + (recorder.rank ^ 1)
        recorder.call("all_to_all", sizes=[[own]], outputs=[[partner]], times=5)
        recorder.call(
            "all_to_all", sizes=[[24 if recorder.rank == 1 else 32]], outputs=[[32]], state="started"
        )
    diff = diff_of(analyze(write_all(recorders, tmp_path)))
    parted = [row for row in diff.rows if row.differs]
    assert diff.differences == 1 and parted[0].cells[0].seq == 6
    assert [(c.mark, c.note) for c in parted[0].cells][1:] == [("differs", "other sizes")]


def test_culprits_of_another_stage_are_not_beside_ranks_of_this_one(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", range(8)), "1": ("dp", range(4)), "2": ("dp", range(4, 8))}
    recorders = [Recorder(rank, groups) for rank in range(8)]
    for recorder in recorders:
        last = recorder.rank > 3
        own, others = ("2", 5) if last else ("1", 1)
        for _ in range(8):
            recorder.call("reduce_scatter_tensor", own, line=70, times=others).call(
                "all_reduce", own, line=41
            )
            recorder.call("broadcast", own, line=88, times=6 - others)
        dtype = "Half" if recorder.rank in (1, 5) else "Float"
        recorder.call("all_reduce", own, line=41, dtype=dtype, state="started")
    report = analyze(write_all(recorders, tmp_path))
    assert report.verdict is not None and report.verdict.culprit_ranks == (1, 5)
    assert [found.ranks for found in diff_of(report).classes] == ["0,2-3", "1"]


def test_a_group_of_its_own_for_each_rank_is_named_by_what_it_is_for() -> None:
    diff = diff_of(analyze(FIXTURES / "mesh_stuck_loader" / "dumps"))
    assert {g.short for g in diff.groups} == {"", "mesh_dp", "mesh_tp"}
    purposes = {(g.label.partition("(")[2], g.number) for g in diff.groups}
    assert purposes == {("mesh_dp)", 0), ("mesh_tp)", 1)}, "groups of one purpose share a colour"


def test_what_all_say_alike_is_no_story() -> None:
    assert page_of(analyze(FIXTURES / "uneven_loader_later_epoch" / "dumps")).story is None


def test_where_no_call_is_known_the_story_is_what_is_known(tmp_path: Path) -> None:
    story = page_of(analyze(FIXTURES / "text" / "ib_port_down.txt")).story
    assert story is not None and "port error" in part_of(story, Lines).lines[0]
    story = page_of(simulated(tmp_path, "preempted")).story
    assert story is not None and story.kind == "known"
    assert "and 15 alike" in " ".join(part_of(story, Lines).lines)
    assert len(part_of(story, Endings).endings) < 16 and story.parts[-1] is part_of(story, Endings)


def test_the_last_output_of_a_rank_is_its_last_line_and_none_of_its_launcher(tmp_path: Path) -> None:
    table = ["Failures:", "[1]:", "  time      : 2026-11-23_16:11:03", "  host      : localhost", "  rank      : 0 (local_rank: 0)",
             "  exitcode  : -15 (pid: 11150)  (SIGTERM)", "  error_file: <N/A>", "  traceback : Signal 15 (SIGTERM) received by PID 11150"]  # fmt: skip
    files = {"torchrun.err": table, "rank0/stderr.log": ["loading", "giving up"]}
    files["all.log"] = ["[r1] step 3 of 9", "[r1] leaving train()", "[r1] done", "[r2] step 3 of 9"]
    kernel = "Mar 02 20:18:08 n1 kernel: INFO: task python:78808 blocked for more than 120 seconds."
    files["all.log"] += ["[r3] pid 78808 writing shard 3", kernel]
    subject = Subject(told(tmp_path, files).analysis)
    found = {rank: quotes.last_line(subject, rank) for rank in subject.incident.ranks}
    assert {rank: said.text for rank, said in found.items() if said} == {
        0: "giving up",
        1: "done",
        2: "step 3 of 9",
        3: "pid 78808 writing shard 3",
    }


def test_who_came_late_is_told_in_the_past(tmp_path: Path) -> None:
    report = simulated(tmp_path, "slow_rank")
    assert report.status == "no_hang" and page_of(report).waitfor is None
    first = Page(report.document).first
    assert first.waiting == "15 ranks waited: 1-15"
    assert first.why[0][0].startswith("Rank 0 arrived after the timeout")
    assert {entry.label for entry in map_of(report).legend} == {"waited", "culprit"}
    shown = f"{report.to_text(verbose=True)} {report.to_markdown()} {report.document.headline}"
    assert not any(words in shown for words in ("blocked", "no progress", "waiting"))


def test_who_did_not_join_is_told_in_a_sentence(tmp_path: Path) -> None:
    first = Page(simulated(tmp_path, "init_hang").document).first
    assert first.why[0][0] == "Only 7 of 8 ranks joined; rank 5 did not"


def test_moments_of_one_second_are_told_apart() -> None:
    first = Page(analyze(FIXTURES / "stuck_lock" / "dumps").document).first
    assert [at[-8:] for _, at, _, _ in first.moments] == [".223 UTC", ".224 UTC"]


@pytest.mark.parametrize("name", SIZES)
def test_the_map_folds_to_few_rows_that_add_up_and_show_the_culprits(name: str) -> None:
    sample = document(name)
    verdict, page, data = sample.verdict, page_of(sample), map_of(sample)
    assert verdict is not None and page.topology is not None
    assert [fold.by for fold in data.folds] == ["host", "dp", "tp"]
    culprit = verdict.culprit_ranks[0]
    for fold, own in zip(
        data.folds, (f"gpu{culprit // 8:04d}", f"dp{culprit // 8}", f"tp{culprit % 8}"), strict=True
    ):
        assert sum(row.count for row in fold.rows) == sample.world_size and len(fold.rows) <= 64
        assert [row.name for row in fold.rows if row.states[1]] == [own]
        assert sum(row.near + row.behind for row in fold.rows) == verdict.explains.ranks
    near = len(verdict.in_call)
    assert page.topology.spread[0] == f"rank {culprit} is dp{culprit // 8} tp{culprit % 8}"
    assert page.topology.spread[1].startswith(f"{near:,} rank{'s wait' if near > 1 else ' waits'} directly")
    assert [(d.name, d.size, d.stride) for d in page.topology.dimensions] == [
        ("dp", sample.world_size // 8, 8),
        ("tp", 8, 1),
    ]


def test_the_last_progress_is_the_latest_call_of_any_rank_that_completed(tmp_path: Path) -> None:
    """Another group goes on after the first rank is blocked."""
    groups = {"0": ("default_pg", range(4)), "1": ("pair", (2, 3))}
    recorders = [Recorder(rank, groups) for rank in range(4)]
    for recorder in recorders:
        recorder.call("all_reduce", times=6)
        if recorder.rank > 1:
            recorder.time_ns += 5 * 10**9
            recorder.call("broadcast", "1", times=3)
        if recorder.rank < 3:
            recorder.call("all_reduce", state="started")
    report = judged(tmp_path, recorders)
    strip = page_of(report).strip
    assert strip is not None and report.verdict is not None
    found = {moment.kind: int(moment.at) for moment in strip.moments}
    assert found["progress"] > found["stall"] + 4 * 10**9
    assert int(report.verdict.since or 0) == found["progress"] == recorders[3].time_ns


@pytest.mark.parametrize(("zone", "shown"), [("", "2026-11-23 16:11:03"), ("Z", "2026-11-23 16:11:03 UTC")])
def test_a_time_of_a_log_has_no_zone_that_its_line_does_not_state(
    tmp_path: Path, zone: str, shown: str
) -> None:
    line = f"2026-11-23T16:11:03{zone} gpu07 slurmstepd: error: *** JOB 812 ON gpu07 CANCELLED AT 2026-11-23T16:11:03 DUE TO TIME LIMIT ***"
    first = Page(told(tmp_path, ["step 5 of 90", line]).document).first
    assert {clock for _, clock, _, _ in first.moments} == {shown}


def test_the_timeline_is_to_scale_and_its_numbers_do_not_overlap() -> None:
    at = (0, 4, 5, 300, 600)
    moments = tuple(Moment("stall", str(seconds * 10**9), "") for seconds in at)
    drawn = draw_timeline(StripData(moments, None, None, True, "unknown"))
    assert drawn is not None
    assert [round((x - 12) / 1080 * 600) for _, x, _ in drawn.marks] == [0, 4, 5, 300, 600]
    places = [label_x for _, _, label_x in drawn.marks]
    assert all(b - a >= 20 for a, b in pairwise(places)) and places[-1] <= 1092


@pytest.mark.parametrize("zone", [0, 2])
def test_a_timeout_without_a_year_is_placed_behind_its_stall_in_any_time_zone(
    tmp_path: Path, zone: int
) -> None:
    recorders = loop(3)
    for recorder in recorders[:2]:
        due(recorder)
    stalled = recorders[0].time_ns / 1e9
    printed = datetime.fromtimestamp(stalled + 600 + 3600 * zone, timezone.utc)
    work = "WorkNCCL(SeqNum=25, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000)"
    line = f"[rank0]:[E{printed:%m%d %H:%M:%S.%f}000 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: {work} ran for 600002 milliseconds before timing out."
    signal = f"[rank0]:[E{printed:%m%d %H:%M:%S.%f}000 ProcessGroupNCCL.cpp:1900] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout from this local rank"
    strip = page_of(judged(tmp_path, recorders, rank0=[line, signal])).strip
    assert strip is not None and [moment.kind for moment in strip.moments[-2:]] == ["watchdog", "dump"]
    assert all(abs(int(moment.at) / 1e9 - stalled - 600) < 2 for moment in strip.moments[-2:])


@pytest.mark.slow
def test_the_lines_of_an_order_mismatch_cross_where_each_side_is_in_a_group_of_its_own(
    tmp_path: Path,
) -> None:
    story = page_of(simulated(tmp_path, "other_order", 6001)).story
    assert story is not None
    orders = part_of(story, Orders)
    left, right = ([call.key for call in side] for side in (orders.left, orders.right))
    common = [key for key in left if key in right]
    assert len(common) >= 2 and common != sorted(common, key=right.index)


def test_what_a_thread_has_not_come_to_is_not_said_to_be_skipped(tmp_path: Path) -> None:
    report = simulated(tmp_path, "async_checkpoint", seed=3)
    assert report.verdict is not None and report.verdict.cause == "stuck_rank"
    missing = [row.cells[-1] for row in diff_of(report).rows if row.differs]
    assert missing and {cell.note for cell in missing} == {"not issued"}
