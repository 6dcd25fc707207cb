"""Which ranks stacks are of whose files no word names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangscope.ingest.files.naming import rank_of_dump
from hangscope.ingest.files.numbering import of_file_titles, of_files, of_titles
from tests.conftest import analyze

INSIDE = """Process {pid}: python3 -u train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_gather (torch/distributed/distributed_c10d.py:4287)
    wrapper (torch/distributed/c10d_logger.py:83)
    <module> (train.py:33)
"""
BUSY = """Process {pid}: python3 -u train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (active+gil): "MainThread"
    _clip (numpy/_core/_methods.py:102)
    step (train.py:8)
    <module> (train.py:32)
"""


def _unknown(*files: str) -> dict[str, int | None]:
    return dict.fromkeys(files)


def test_files_that_count_from_0_are_the_ranks() -> None:
    assert of_files(_unknown("a/py-spy.1.txt", "a/py-spy.0.txt")) == {
        "a/py-spy.0.txt": 0,
        "a/py-spy.1.txt": 1,
    }


def test_numbered_folders_count_where_the_names_in_them_do_not() -> None:
    logs = [f"logs/site{n}/fed.log" for n in range(3)]
    stacks = [f"stacks/site{n}/threads.txt" for n in (2, 0, 1)]
    assert of_files(_unknown(*logs, *stacks)) == {
        file: int(file.split("/")[1][-1]) for file in (*logs, *stacks)
    }
    assert of_files(_unknown("node0/job.log", "node1/job.log")) == {}


def test_process_ids_a_single_file_and_numbers_within_nodes_are_none() -> None:
    assert of_files(_unknown("stack_4711.txt", "stack_4712.txt")) == {}
    assert of_files(_unknown("stack_0.txt")) == {}
    assert of_files(_unknown("n0/stack_0.txt", "n0/stack_1.txt", "n1/stack_0.txt", "n1/stack_1.txt")) == {}


def test_numbers_that_are_the_ranks_of_known_processes_are_ranks() -> None:
    known = {"s_0.txt": 0, "s_9.txt": 9, "s_5.txt": None}
    assert of_files(known) == {"s_0.txt": 0, "s_9.txt": 9, "s_5.txt": 5}
    assert of_files({**known, "s_9.txt": 1}) == {} == of_files({**known, "s_9.txt": None})


def test_numbers_of_nodes_and_attempts_are_no_ranks() -> None:
    for names in (("node_0.log", "node_1.log"), ("run-0.txt", "run-1.txt"), ("train.log.0", "train.log.1")):
        assert of_files(_unknown(*names)) == {}


def test_titles_that_count_from_0_are_the_ranks_of_the_processes_below() -> None:
    titles = {900 + n: f"== worker {n} (pid {900 + n})" for n in (1, 0, 2)}
    assert of_titles(titles) == {900: 0, 901: 1, 902: 2}
    assert of_titles({900: "== worker 0", 901: "== worker 2"}) == {}
    assert of_titles({900: "== node 0", 901: "== node 1"}) == {}
    assert of_titles({310: "node A / TP0 (pid 310)", 287: "node B / TP1 (pid 287)"}) == {310: 0, 287: 1}
    assert of_titles({900: "== worker 0", 901: "== trainer 1"}) == {}


def test_logs_that_count_from_0_are_of_the_ranks_and_their_numbers_are_compared(tmp_path: Path) -> None:
    for stage in range(4):
        steps = [
            {"ts": 1795860700.5 + n, "stage": stage, "event": "fwd", "it": n, "batches": 4} for n in range(6)
        ]
        steps[-1]["batches"] = 3 if stage == 2 else 4
        (tmp_path / f"stage_{stage}.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    report = analyze(tmp_path)
    assert "rank 2 printed batches=3 where the others printed 4" in " ".join(
        o.says() for o in report.analysis.case.statements.outlier_lines
    )


def test_the_busy_rank_is_found_by_stacks_alone_and_at_its_own_line(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"py-spy.{rank}.txt").write_text((BUSY if rank == 2 else INSIDE).format(pid=6500 + rank))
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (2,))
    assert verdict.location is not None and (verdict.location.file, verdict.location.line) == ("train.py", 8)


def test_numbers_of_the_same_processes_at_another_time_count_once() -> None:
    files = [f"look_{time}/{rank}.txt" for time in (1, 2) for rank in (0, 1)]
    same = {file: 70 + int(file[-5]) for file in files}
    assert of_files(_unknown(*files), same) == {file: int(file[-5]) for file in files}
    assert of_files(_unknown(*files), {**same, files[0]: 90}) == {}


def test_stacks_of_no_known_rank_are_shown_and_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "pasted").write_text(
        "".join(
            f'Process {pid}: python train.py\n\nThread {pid} (idle): "MainThread"\n'
            f"    {inner}\n    <module> (train.py:{line})\n"
            for pid, inner, line in ((71, "load (data.py:6)", 10), (72, "all_reduce (c10d.py:3252)", 12))
        )
    )
    report = analyze(tmp_path)
    (note,) = report.warnings
    assert "at data.py:6 in load (from train.py:10 in <module>); c10d.py:3252 in all_reduce" in str(note)
    said = report.verdict.explanation if report.verdict is not None else ""
    assert "(process 72) is at all_reduce (c10d.py:3252); python (process 71) is at load (data.py:6)" in said
    assert report.verdict is None or report.verdict.culprit_ranks == ()
    assert "=== rank 3 ===" in str(note)


def test_a_dump_of_any_ending_is_of_the_rank_that_ends_its_name() -> None:
    assert [rank_of_dump(name) for name in ("recorder.3.pt", "w3.fr", "trace_3.json.gz", "dump.pt")] == [
        3,
        3,
        3,
        None,
    ]


def test_the_numbers_of_nodes_count_where_each_file_holds_the_stack_of_one_process() -> None:
    files = [f"node-{node}.log" for node in range(3)]
    assert of_files(_unknown(*files)) == {}
    assert of_files(_unknown(*files), single=files) == {f"node-{node}.log": node for node in range(3)}


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["==> err.0 <==", "==> err.1 <==", "==> err.2 <=="], [0, 1, 2]),
        (["### out/worker1.err", "step 5", "### out/worker0.err"], [1, 0]),
        (["==> err.0 <=="], []),
        (["==> err.1 <==", "==> err.2 <=="], []),
        (["==> node0.log <==", "==> node1.log <=="], []),
        (["err.0", "err.1"], []),
    ],
)
def test_titles_that_are_the_names_of_numbered_files_are_of_ranks(
    titles: list[str], ranks: list[int]
) -> None:
    assert list(of_file_titles(titles).values()) == ranks
