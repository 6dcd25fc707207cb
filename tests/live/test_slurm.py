"""The batch script that `hangscope hook slurm` prints, on a real slurmctld and slurmd: ended in the ways that Slurm has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangscope import hooks
from tests.conftest import analyze
from tests.live import slurm
from tests.live.jobs import left_in, until
from tests.live.torch_jobs import SCRIPTS, free_port, line_of
from tests.needs import needs

pytestmark = [pytest.mark.real, needs("torch")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if absent := slurm.missing():
        pytest.skip(f"no Slurm here: {', '.join(absent)} not found (Debian: slurm-wlm)")
    with slurm.slurm(tmp_path_factory.mktemp("slurm") / "cluster") as settings:
        yield settings


ENDS = {
    "scancel": ["scancel"],
    "scancel-batch": ["scancel", "--batch", "--signal=TERM"],
    "time-limit": [],
    "usr1": ["scancel", "--batch", "--signal=USR1"],
}


def submitted(
    script: str, cluster: dict[str, str], environment: dict[str, str], folder: Path, *more: str
) -> tuple[str, dict[str, str]]:
    """Submit the batch script of the hook with a job of three ranks; return its number and the environment."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "hangscope").write_text(f'#!/bin/bash\nexec {sys.executable} -m hangscope "$@"\n')
    (tools / "hangscope").chmod(0o755)
    (folder / "job.sh").write_text(hooks.text("slurm"))
    shutil.copy(SCRIPTS / f"{script}.py", folder)
    settings = {
        **cluster,
        "PYTHONPATH": environment["PYTHONPATH"],
        "PATH": f"{tools}:{cluster['PATH']}",
        "HANGSCOPE_STALL": "3",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TRAIN": "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=127.0.0.1"
        f" MASTER_PORT={free_port()} exec {sys.executable} {script}.py",
    }
    words = ["sbatch", "--parsable", "--nodes=1", "--ntasks-per-node=3", *more, "job.sh"]
    sent = subprocess.run(
        words, cwd=folder, env=settings, capture_output=True, text=True, timeout=30, check=False
    )
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip(), settings


def has_stepped(folder: Path) -> bool:
    """Return whether a rank has printed its tenth step."""
    printed = folder / "logs/restart_0/rank_1.out"
    return printed.exists() and "step 9" in printed.read_text()


def has_stalled(folder: Path) -> bool:
    """Return whether all ranks have left what they leave when they stall."""
    return len(list((folder / "stall").glob("stack_rank_*"))) == 3


def reported(folder: Path) -> dict[str, Any]:
    """Return the verdict of a run's report, which its folder gives again."""
    told: dict[str, Any] = json.loads((folder / "report.json").read_text())["verdict"]
    assert json.loads(analyze(folder).to_json())["verdict"] == told
    return told


@pytest.mark.parametrize("end", ENDS)
def test_a_frozen_batch_job_leaves_its_report(
    end: str, cluster: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    # Slurm may send the signal up to a minute early, which a job of two minutes would hardly live to see.
    limit = ["--time=2", "--signal=B:TERM@30"] if end == "time-limit" else ["--time=30"]
    job, settings = submitted("sleeping", cluster, environment, tmp_path, *limit)
    left = tmp_path / f"hangscope-{job}"
    until(lambda: has_stalled(left), 60)
    if end == "usr1":  # the end is announced to a job that stands still, in a way that no rank expects
        until(lambda: time.time() - (left / "logs/restart_0/rank_1.out").stat().st_mtime > 12)
    if ENDS[end]:
        subprocess.run([*ENDS[end], job], env=settings, timeout=30, check=True)
    until(lambda: not slurm.running(settings), 150)
    told = reported(left)
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of("sleeping")
    assert not [pid for pid in left_in(tmp_path) if pid != os.getpid()]


@pytest.mark.parametrize("end", ["scancel", "scancel-batch", "time-limit"])
def test_nobody_is_to_blame_for_the_end_of_a_job_that_makes_progress(
    end: str, cluster: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    limit = ["--time=2", "--signal=B:TERM@30"] if end == "time-limit" else ["--time=30"]
    job, settings = submitted("healthy", cluster, environment, tmp_path, *limit)
    left = tmp_path / f"hangscope-{job}"
    until(lambda: has_stepped(left), 90)
    if ENDS[end]:
        subprocess.run([*ENDS[end], job], env=settings, timeout=30, check=True)
    until(lambda: not slurm.running(settings), 150)
    told = (
        reported(left) if (left / "report.json").exists() else {"culprit_ranks": [], "category": "external"}
    )
    assert (told["culprit_ranks"], told["category"]) == ([], "external")


def test_a_frozen_job_that_is_requeued_is_reported_and_starts_again(
    cluster: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    job, settings = submitted("sleeping", cluster, environment, tmp_path, "--time=30", "--requeue")
    left = tmp_path / f"hangscope-{job}"
    until(lambda: has_stalled(left), 60)
    subprocess.run(["scontrol", "requeue", job], env=settings, timeout=30, check=True)
    subprocess.run(
        ["scontrol", "update", f"JobId={job}", "StartTime=now"], env=settings, timeout=30, check=False
    )
    until(lambda: has_stalled(left / "attempt-2"), 240)
    subprocess.run(["scancel", job], env=settings, timeout=30, check=True)
    until(lambda: not slurm.running(settings), 150)
    for told in map(reported, (left, left / "attempt-2")):
        assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
        assert told["location"]["line"] == line_of("sleeping")
