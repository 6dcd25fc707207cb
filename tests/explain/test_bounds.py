"""What lines state joins what dumps recorded: groups, members, calls and frontiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.align.program import Programs
from hangscope.model.incident import Absence
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import Recorder, world
from tests.text_lines import CLOSED, DEFAULT, judged, observed, short, status, timeout, told

TP = "PG ID 2 PG GUID 9(tensor_parallel) "


def frontier(report: object, name: str) -> dict[int, tuple[int | None, int | None, tuple[int, ...]]]:
    view = next(v for v in report.analysis.views if v.group.name == name)  # type: ignore[attr-defined]
    return {m.rank: (m.enqueued, m.completed, m.pending) for m in view.members.values()}


def test_a_timeout_and_a_status_line_are_a_frontier(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), status(0, 6, 8, 5), timeout(1), status(1, 6, 8, 5), observed(2)])
    assert frontier(report, "0")[0] == (8, 5, (6, 7, 8))
    record = report.analysis.incident.ranks[0]
    assert record.absence is Absence.TOLD and record.dump_file is None


def test_a_count_of_sends_beside_one_of_collectives_states_nothing(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), status(0, 6, 8, 90), timeout(1), status(1, 6, 8, 5)])
    assert frontier(report, "0")[0][0] == 6 and frontier(report, "0")[1][0] == 8


def test_printed_numbers_on_a_grid_tell_the_member_that_is_missing(tmp_path: Path) -> None:
    lines = [timeout(r, group=TP, local=r - 4) for r in (4, 5, 7)]
    report = told(tmp_path, [*lines, *(observed(r) for r in (0, 1, 2, 3, 6))])
    (group,) = [g for g in report.analysis.incident.groups if g.name == "9"]
    assert group.ranks == (4, 5, 6, 7) and group.partial and not group.members_known
    assert judged(report).culprit_ranks == (6,)


def test_a_rank_whose_pair_no_dump_lists_is_in_the_pair_that_the_mesh_has_for_it(tmp_path: Path) -> None:
    lines = [timeout(r, group=DEFAULT, n=2) for r in range(8) if r != 2]
    told(tmp_path, [*lines, timeout(2, group="PG ID 2 PG GUID 8(tensor_parallel) ", local=0, seq=31, n=640)])
    for rank in (4, 7):
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        groups = {**world(8), str(7 + rank // 2): ("tensor_parallel", pair)}
        recorder = Recorder(rank, groups).call("all_reduce", sizes=[[2]], times=5)
        recorder.call("all_reduce", sizes=[[2]], state="scheduled").write(tmp_path)
    report = analyze(tmp_path)
    (group,) = [g for g in report.analysis.incident.groups if g.name == "8"]
    assert group.ranks == (2, 3) and judged(report).culprit_ranks == (2,)


def test_one_member_of_a_group_alone_is_not_everybody(tmp_path: Path) -> None:
    lines = [timeout(r, group=DEFAULT, seq=15, n=2) for r in range(7)]
    report = told(tmp_path, [*lines, timeout(7, group=TP, local=7, seq=183, n=640)])
    verdict = judged(report)
    assert verdict.culprit_ranks == (7,) and verdict.confidence == "medium"
    assert verdict.cause not in ("shape_mismatch", "network_stall")


def _stuck(folder: Path, ranks: int, size: int) -> None:
    """Write dumps of the first `ranks` of `size` ranks, all of which wait in their sixth call."""
    for rank in range(ranks):
        recorder = Recorder(rank, world(size)).call("all_reduce", sizes=[[64]], times=5)
        recorder.call("all_reduce", sizes=[[64]], state="scheduled").write(folder)


def test_victims_dumps_beside_all_logs_name_the_same_rank(tmp_path: Path) -> None:
    lines = {f"rank_{r}.log": [timeout(r, n=64), status(r, 6, 6, 5)] for r in (0, 1)}
    lines["rank_2.log"] = [observed(2)]
    alone = told(tmp_path / "logs", lines)
    both = tmp_path / "both"
    told(both, lines)
    _stuck(both, 2, 3)
    beside = analyze(both)
    assert short(alone)[:2] == short(beside)[:2] == ("stuck_rank", (2,))


def test_two_ranks_of_which_nothing_was_collected_are_not_dead(tmp_path: Path) -> None:
    _stuck(tmp_path, 4, 6)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.culprit_ranks == () and verdict.cause == "unknown"


def test_a_rank_that_its_stack_shows_at_work_is_waited_for_and_not_missing(tmp_path: Path) -> None:
    lines = [timeout(0), status(0, 6, 8, 5), "compiling model done in 9.8 s"]
    _stack_of(tmp_path, 1, "compile_file")
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (1,))


def test_one_rank_alone_that_left_nothing_is_suspect(tmp_path: Path) -> None:
    _stuck(tmp_path, 5, 6)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.culprit_ranks == (5,) and verdict.confidence == "low"


def test_an_abort_that_only_the_launcher_tells_is_no_death_among_timeouts(tmp_path: Path) -> None:
    lines = {f"rank_{r}.log": [timeout(r, group=DEFAULT)] for r in range(3)}
    lines["slurm.out"] = [f"srun: error: node0: task {r}: Aborted (core dumped)" for r in range(4)]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("crashed_rank", (3,), "low")


def test_a_rank_whose_peers_no_line_tells_waits_and_is_shown(tmp_path: Path) -> None:
    lines = [timeout(r, group=DEFAULT, seq=15, n=2) for r in range(3)]
    report = told(tmp_path, [*lines, timeout(3, group=TP, local=3, seq=9, op="COALESCED", n=0)])
    assert judged(report).culprit_ranks in ((), (3,))
    assert 3 in report.analysis.case.graph.waiting
    assert report.to_html().startswith("<!") and report.to_text()


def _stack_of(folder: Path, rank: int, function: str) -> None:
    lines = [
        "Thread 0x00007f0000000000 (most recent call first):",
        f'  File "/workspace/train/train.py", line 9 in {function}',
    ]
    (folder / f"stack_rank_{rank}.txt").write_text("\n".join(lines) + "\n")


def test_of_ranks_without_a_dump_only_one_that_stands_alone_is_busy(tmp_path: Path) -> None:
    _stuck(tmp_path, 4, 7)
    for rank in range(7):
        _stack_of(tmp_path, rank, "acquire" if rank == 6 else "train_epoch")
    assert short(analyze(tmp_path))[:2] == ("stuck_rank", (6,))


def test_ranks_without_a_dump_that_stand_where_all_stand_are_not_accused(tmp_path: Path) -> None:
    _stuck(tmp_path, 4, 7)
    for rank in range(7):
        _stack_of(tmp_path, rank, "train_epoch")
    verdict = analyze(tmp_path).verdict
    assert verdict is None or not verdict.culprit_ranks


def test_a_line_is_taken_for_the_call_that_most_made_of_those_that_it_may_mean(tmp_path: Path) -> None:
    """Ranks 2 and 3 left a line alone; their call may have either element type, which accuses nobody."""
    for rank in (0, 1, 4, 5):
        recorder = Recorder(rank, world(6)).call("all_reduce", times=5)
        recorder.call("all_reduce", state="scheduled", dtype="Half" if rank == 0 else "Float")
        recorder.write(tmp_path)
    report = told(tmp_path, [timeout(rank, group=DEFAULT, n=8) for rank in range(6)])
    assert judged(report).cause == "dtype_mismatch" and judged(report).culprit_ranks == (0,)


def test_a_line_behind_a_dump_has_no_place_in_the_order_of_calls(tmp_path: Path) -> None:
    """Between what rank 0's dump shows and the line that follows on another group, calls were made that nothing kept."""
    groups = {**world(4), "1": ("all", range(4))}
    for rank in range(4):
        recorder = Recorder(rank, groups)
        for _ in range(8 if rank else 6):
            recorder.call("all_reduce", line=41).call("all_gather", "1", outputs=[[8]] * 4, line=43)
        recorder.call("all_reduce", line=41, state="scheduled" if rank else "completed").write(tmp_path)
    report = told(tmp_path, [timeout(rank, group=DEFAULT, seq=9, n=8) for rank in range(4)])
    programs = Programs(report.analysis.incident)
    assert programs.of(0).seq.tolist()[-2:] == [6, 7] and not programs.of(0).is_p2p.any()


def test_a_group_of_which_no_possible_rank_is_printed_is_on_no_grid(tmp_path: Path) -> None:
    log = (FIXTURES / "text" / "status_tp_group_kubectl.txt").read_text()
    line = "[rank1]:[E1014 07:41:09.120443102 ProcessGroupNCCL.cpp:2271] [PG ID 1 PG GUID 5(tensor_parallel) Rank 262144]  failure detected by watchdog at work sequence id: 811 PG status: last enqueued work: 811, last completed work: 810"
    assert judged(told(tmp_path, [*log.splitlines(), line])).confidence == "medium"


@pytest.mark.parametrize(
    ("group", "name", "where"),
    [("", "", "on an unnamed group"), (DEFAULT, "0", "on group 0 (default_pg)")],
)
def test_a_group_has_the_name_that_lines_give_it_and_no_other(
    tmp_path: Path, group: str, name: str, where: str
) -> None:
    lines = [timeout(0, group=group), timeout(1, group=group), f"[rank2]: {CLOSED}", "[rank3]: step 5"]
    report = told(tmp_path, lines, world_size=4)
    assert [part.name for part in report.document.groups] == [name]
    shown = " ".join((judged(report).summary, *report.to_text(verbose=True, width=200).split()))
    assert f"in all_reduce seq 6 {where}" in shown
    assert ("unnamed" in shown) is (name == "") and ("group 0" in shown) is (name == "0")
