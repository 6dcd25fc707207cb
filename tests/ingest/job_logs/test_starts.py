"""Which rank each process is, by its own lines, by Ray's and by DeepSpeed's launcher."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.job_logs.endings import WorkerDied
from hangscope.ingest.workers.reading import read_log
from tests.conftest import analyze
from tests.text_lines import short, timeout, told

TIMED_OUT = (
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 4/5 clients joined."
)
BAR = "{}: 100%|##########| 7/7 [00:03<00:00,  2.01it/s]"


@pytest.mark.parametrize(
    "form",
    [
        "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {member}/5",
        "| distributed init (rank {rank}): env://",
        "2026-01-14 05:02:11 | INFO | dist | initialized host b7 as rank {rank}",
    ],
)
def test_who_did_not_announce_itself_is_missing(tmp_path: Path, form: str) -> None:
    lines = [form.format(rank=rank, member=rank + 1) for rank in (4, 0, 1, 3)]
    assert short(told(tmp_path, [*lines, TIMED_OUT])) == ("init_hang", (2,), "high")


@pytest.mark.parametrize(
    "what", ["Loading checkpoint shards", "Map (num_proc=8)", "Downloading data", "Fetching 7 files"]
)
def test_a_bar_that_loads_is_no_step_of_a_loop(tmp_path: Path, what: str) -> None:
    assert short(told(tmp_path, [BAR.format(what), TIMED_OUT]))[:2] == ("init_hang", ())


@pytest.mark.parametrize("what", ["Training", "Epoch 3", "train loss 2.1"])
def test_a_bar_of_the_loop_is_a_step(tmp_path: Path, what: str) -> None:
    assert short(told(tmp_path, [BAR.format(what), TIMED_OUT]))[0] != "init_hang"


def test_a_monitor_that_missed_a_rank_proves_the_stop_and_names_nobody(tmp_path: Path) -> None:
    lines = ["[ERROR] [ft_monitor@b7] Did not get subsequent heartbeat from rank 2. Waited 90.00 seconds."]
    assert short(told(tmp_path, lines)) == ("unknown", (), "low")


HEAD = "[2026-01-14 05:02:11,441] [INFO] [launch.py:256:main] "
KILLED = (
    "[Wed Jan 14 05:44:02 2026] Out of memory: Killed process {pid} (python) total-vm:1kB, anon-rss:1kB\n"
)


def launched(*, nodes: int = 1, processes: int = 2, node: int = 0, world: int = 2, prefix: str = "") -> str:
    """Return the lines of one node's launcher; its processes have the ids 700, 701, ..."""
    lines = [
        f"nnodes={nodes}, num_local_procs={processes}, node_rank={node}",
        f"dist_world_size={world}",
        *(
            f"process {700 + n} spawned with command: ['/opt/conda/bin/python', '-u', 'sft.py', '--local_rank={n}', '--lr', '1e-5']"
            for n in range(processes)
        ),
    ]
    return "".join(f"{prefix}{HEAD}{line}\n" for line in lines)


def pids(text: str) -> dict[int | None, int | None]:
    events = read_log(io.BytesIO(text.encode()), "job.log").events
    return {event.pid: event.rank for event in events if event.kind == "spawned"}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (launched(), {700: 0, 701: 1}),
        (launched(nodes=2, node=1, world=4), {700: 2, 701: 3}),
        (launched(nodes=2, node=1, world=4, prefix="worker-2: "), {700: 2, 701: 3}),
        (launched(nodes=2, node=1, world=3), {}),  # nodes of unequal width
        (launched().replace("--local_rank=", "--rank="), {}),
        (launched()[:-60], {700: 0}),
    ],
)
def test_a_process_is_a_rank_where_the_nodes_tell_it(text: str, ranks: dict[int, int]) -> None:
    assert pids(text) == ranks


def test_nodes_in_one_log_are_told_apart_by_their_prefix() -> None:
    one, two = (launched(nodes=2, node=n, world=4, prefix=f"worker-{n}: ") for n in (0, 1))
    woven = "".join(
        a + b for a, b in zip(one.splitlines(True), two.replace("70", "80").splitlines(True), strict=True)
    )
    assert pids(woven) == {700: 0, 701: 1, 800: 2, 801: 3}


@pytest.mark.parametrize(("node", "rank"), [(0, 1), (1, 3)])
def test_the_kernels_victim_is_the_rank_of_its_process(tmp_path: Path, node: int, rank: int) -> None:
    (tmp_path / "paste.txt").write_text(launched(nodes=2, node=node, world=4) + KILLED.format(pid=701))
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (rank,))


def test_the_shells_victim_is_the_rank_of_its_process(tmp_path: Path) -> None:
    line = "run.sh: line 9:   700 Segmentation fault      (core dumped) python sft.py\n"
    (tmp_path / "paste.txt").write_text(launched() + line)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (0,))


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
