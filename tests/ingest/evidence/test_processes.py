"""Processes are known by rank, local rank, process id and path; each log and recording gets the rank of its process."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.workers.reading import Reading, read_log
from tests.conftest import analyze
from tests.text_lines import settled

CLOSED = "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:1."


def reading(file: str, *lines: str) -> Reading:
    return Reading(file, "log", "used", "", log=read_log(io.BytesIO("\n".join(lines).encode()), file))


def test_each_node_has_its_own_local_ranks() -> None:
    mapping = Processes(
        [
            reading("nodeA/agent.log", f"[default0]:[rank0]: {CLOSED}"),
            reading("nodeB/agent.log", f"[default0]:[rank8]: {CLOSED}", f"[default1]:[rank9]: {CLOSED}"),
        ]
    )
    assert mapping.local(None, 0, "nodeA/none_a/attempt_0/0/stderr.log") == 0
    assert mapping.local(None, 0, "nodeB/none_b/attempt_0/0/stderr.log") == 8
    assert mapping.local(None, 0, "slurm.out") is None
    assert mapping.local(None, 1, "slurm.out") is None  # of which node, nothing tells
    assert mapping.local(None, 1, "nodeA/none_a/attempt_0/1/stderr.log") is None


def test_local_ranks_are_global_ones_where_nothing_contradicts() -> None:
    one = Processes([reading("agent.log", f"[default0]:[rank0]: {CLOSED}")])
    assert (one.local(None, 0, "x/agent.log"), one.local(None, 3, "a.log")) == (0, 3)
    several = Processes([reading("a.log", f"[default0]:{CLOSED}", f"[default2]:{CLOSED}")])
    assert several.local(None, 2, "a.log") == 2


def test_one_local_rank_in_one_file_may_be_of_any_node() -> None:
    assert Processes([reading("a.log", f"[default5]:{CLOSED}")]).local(None, 5, "a.log") is None


def test_the_folder_of_one_agent_numbers_its_ranks_in_a_row() -> None:
    """A node's folders beside two tables: what a log of one worker says of its rank counts for those beside it."""
    told = ((node, local) for node in (0, 1) for local in (0, 1, 2, 5))
    logs = [
        reading(f"logs/n{node}/none_x/attempt_0/{local}/stderr.log", f"[rank{8 * node + local}]: {CLOSED}")
        for node, local in told
    ]
    mapping = Processes(logs)
    assert mapping.local(None, 3, "logs/n1/none_x/attempt_0/3/stdout.log") == 11
    assert mapping.local(None, 3, "logs/n0/none_x/attempt_0/3/stdout.log") == 3
    assert mapping.local(None, 3, "logs/n2/none_x/attempt_0/3/stdout.log") is None
    assert mapping.local(None, 0, "logs/n2.err") is None


def test_the_numbered_logs_of_launchers_are_of_nodes() -> None:
    def log(node: int) -> list[str]:
        ends = (
            [f"[{n}]:", f"  rank      : {2 * node + n} (local_rank: {n})", f"  exitcode  : -6 (pid: 7{n})"]
            for n in (0, 1)
        )
        return ["train.py FAILED", 60 * "-", "Failures:", *(line for end in ends for line in end), 60 * "="]

    logs = [reading(f"launcher_gpu0{node}.log", *log(node)) for node in range(2)]
    Processes(logs)
    assert [one.log is not None and one.log.rank for one in logs] == [None, None]


@pytest.mark.parametrize(
    ("lines", "ranks"),
    [
        (["rank 0 of 4, connecting", "rank 1 of 4, connecting"], (0, 1)),
        (["starting: rank=2 world_size=4", "starting: rank=3 world_size=4"], (2, 3)),
        (["rank 0 of 4", "rank 0 of 4"], ()),  # one rank twice
        (["rank 0 of 4", "rank 1 of 8"], ()),  # two jobs
        (["rank 0 of 4", "waiting for rank 3 of 4, I am rank 1 of 4"], ()),
    ],
)
def test_what_a_process_says_of_itself_is_the_rank_of_its_log(
    tmp_path: Path, lines: list[str], ranks: tuple[int, ...]
) -> None:
    for name, line in zip("ab", lines, strict=True):
        (tmp_path / f"{name}.log").write_text(
            f"{line}\nTraceback (most recent call last):\n"
            '  File "/workspace/train/train.py", line 9, in main\n    step()\nValueError: bad sample\n'
        )
    incident = analyze(tmp_path).analysis.incident
    assert tuple(r for r, record in incident.ranks.items() if record.events) == ranks


@pytest.mark.parametrize(("prefix", "rank"), [(2, 2), (9, 9)])
def test_a_number_in_the_name_of_a_log_in_which_others_print_is_no_rank(prefix: int, rank: int) -> None:
    log = reading(
        "worker-2.log", f"[rank{prefix}]: {CLOSED}", "Some NCCL operations have failed or timed out."
    )
    Processes([log, reading("worker-3.log", "fine")])
    assert log.log is not None and log.log.rank == (2 if prefix == 2 else None)
    assert {event.rank for event in log.log.events} <= {rank, log.log.rank}


@pytest.mark.parametrize(("begins", "rank"), [("Rendezvous'ing worker group", None), ("loading data", 1)])
def test_srun_tasks_that_are_agents_of_torchrun_are_no_ranks(begins: str, rank: int | None) -> None:
    head = "[2026-05-04 10:00:02,123] torch.distributed.elastic.agent.server.api: [INFO] [default]"
    lines = [f"{task}: {head} {begins}" for task in (0, 1)]
    lines += [
        f"1: {line}" for line in ("Traceback (most recent call last):", '  File "train.py", line 5, in main')
    ]
    log = settled("\n".join([*lines, "1: ValueError: bad shard", ""]))
    assert [(e.rank, e.task) for e in log.events if e.kind == "exception"] == [(rank, 1)]


def test_the_only_exception_is_that_of_the_only_process_that_torchruns_table_names(tmp_path: Path) -> None:
    raised = [
        "Traceback (most recent call last):",
        '  File "/workspace/train/sft.py", line 233, in <module>',
        "    save()",
        "FileNotFoundError: [Errno 2] No such file or directory: 'a'",
    ]
    table = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2023-12-20_17:02:16",
        "  host      : gpu-b",
        "  rank      : 8 (local_rank: 0)",
        "  exitcode  : 1 (pid: 71419)",
        "  error_file: <N/A>",
    ]
    log = tmp_path / "node1.log"
    log.write_text("\n".join([*raised, *table]) + "\n")
    verdict = analyze(log).verdict
    assert verdict is not None and verdict.culprit_ranks == (8,)
    assert verdict.location is not None and verdict.location.line == 233
    log.write_text("\n".join([*raised, *raised[:-1], "KeyError: 3", *table]) + "\n")
    verdict = analyze(log).verdict
    assert verdict is None or verdict.location is None or verdict.location.rank != 8


def test_a_traceback_below_a_loggers_line_is_of_the_rank_in_its_prefix(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-03-18 14:22:50 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/workspace/serve/scheduler.py", line 29, in run\n    self.pop(ack)\nKeyError: 17352\n'
    )
    verdict = analyze(log).verdict
    assert verdict is not None and verdict.culprit_ranks == (3,)
