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

import pytest

from hangscope import hooks
from tests.live import slurm
from tests.live.jobs import left_in, until
from tests.live.torch_jobs import SCRIPTS, free_port, line_of

pytestmark = pytest.mark.real
pytest.importorskip("torch")


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


@pytest.mark.parametrize("end", ENDS)
def test_a_frozen_batch_job_leaves_its_report(
    end: str, cluster: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "hangscope").write_text(f'#!/bin/bash\nexec {sys.executable} -m hangscope "$@"\n')
    (tools / "hangscope").chmod(0o755)
    (tmp_path / "job.sh").write_text(hooks.text("slurm"))
    shutil.copy(SCRIPTS / "sleeping.py", tmp_path)
    settings = {
        **cluster,
        "PYTHONPATH": environment["PYTHONPATH"],
        "PATH": f"{tools}:{cluster['PATH']}",
        "HANGSCOPE_STALL": "3",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TRAIN": "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=127.0.0.1"
        f" MASTER_PORT={free_port()} exec {sys.executable} sleeping.py",
    }
    # Slurm may send the signal up to a minute early, which a job of two minutes would hardly live to see.
    limit = ["--time=2", "--signal=B:TERM@30"] if end == "time-limit" else ["--time=30"]
    words = ["sbatch", "--parsable", "--nodes=1", "--ntasks-per-node=3", *limit, "job.sh"]
    sent = subprocess.run(
        words, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=30, check=False
    )
    assert sent.returncode == 0, sent.stderr
    job = sent.stdout.strip()
    left = tmp_path / f"hangscope-{job}"
    until(lambda: len(list((left / "stall").glob("stack_rank_*"))) == 3, 60)
    if end == "usr1":  # the end is announced to a job that stands still, in a way that no rank expects
        until(lambda: time.time() - (left / "logs/restart_0/rank_1.out").stat().st_mtime > 12)
    if ENDS[end]:
        subprocess.run([*ENDS[end], job], env=settings, timeout=30, check=True)
    until(lambda: not slurm.running(settings), 150)
    told = json.loads((left / "report.json").read_text())["verdict"]
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of("sleeping")
    assert not [pid for pid in left_in(tmp_path) if pid != os.getpid()]
