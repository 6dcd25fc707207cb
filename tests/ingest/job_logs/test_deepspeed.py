"""What DeepSpeed's launcher says of the processes that it starts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.workers.log_reading import read_log
from tests.conftest import analyze

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
