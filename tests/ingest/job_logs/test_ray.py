"""Which process is which rank, and which one died, as Ray and its actors tell."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.job_logs.endings import WorkerDied
from hangscope.ingest.workers.log_reading import read_log
from tests.text_lines import short, timeout, told

DIED = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.4"
    " Worker port: 10214 Worker PID: {} Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a"
    " connection error code 2. End of file."
)


def actor(rank: int, text: str, name: str = "Critic") -> str:
    return f"({name} pid={700 + rank}) {text}"


def introductions(line: str) -> dict[int | None, int | None]:
    events = read_log(io.BytesIO((line + "\n").encode()), "driver.log").events
    return {event.pid: event.rank for event in events if event.kind == "spawned"}


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        (
            "(TorchTrainer pid=9) - (node_id=9f1c, ip=10.0.0.4, pid=703) world_rank=3, local_rank=1, node_rank=1",
            {703: 3},
        ),
        ("(RayTrainWorker pid=703) Setting up process group for: env:// [rank=3, world_size=4]", {703: 3}),
        ("(Critic pid=703) rank 3 of 4 ready", {703: 3}),
        ("(Critic pid=703) Rank: 3/4", {703: 3}),
        ("(Critic pid=703) rank 7 of 4 by reward", {}),
        ("(Critic pid=703) the sample has rank 3 of 4", {}),
        ("rank 3 of 4 ready", {}),
    ],
)
def test_which_process_a_rank_is(line: str, ranks: dict[int, int]) -> None:
    assert introductions(line) == ranks


def test_the_raylet_names_a_process_and_its_introduction_the_rank(tmp_path: Path) -> None:
    lines = [actor(rank, f"rank {rank} of 4") for rank in range(4)]
    lines += [DIED.format(702), *(actor(rank, timeout(rank)) for rank in (0, 1, 3))]
    lines += [DIED.format(700 + rank) for rank in (0, 1, 3)]  # their watchdogs aborted them
    assert short(told(tmp_path / "told", lines))[:2] == ("crashed_rank", (2,))
    assert short(told(tmp_path / "unknown", [DIED.format(802)]))[:2] == ("crashed_rank", ())


def test_the_raylets_word_is_an_event_of_the_process_that_it_lost() -> None:
    [event] = read_log(io.BytesIO((DIED.format(702) + "\n").encode()), "driver.log").events
    assert isinstance(event, WorkerDied) and (event.pid, event.host) == (702, "10.0.0.4")


def test_roles_with_blocks_of_ranks_are_one_job(tmp_path: Path) -> None:
    lines = [actor(rank, timeout(rank), "Actor") for rank in range(4)]
    lines += [actor(rank, timeout(rank), "Critic") for rank in (4, 5, 7)]
    report = told(tmp_path, lines)
    assert not [w for w in report.warnings if w.code == "several_worlds"]
