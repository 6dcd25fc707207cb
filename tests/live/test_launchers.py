"""Launchers other than torchrun under `hangscope run`, where they are installed: mpirun of Open MPI or MPICH, and deepspeed.

Slurm, accelerate, Ray Train and Lightning have tests of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.live.jobs import Place, left_in, watched
from tests.live.torch_jobs import free_port, job, line_of
from tests.needs import needs

pytestmark = [pytest.mark.real, needs("torch")]

BESIDE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
#: What MPI calls a rank becomes torch's inside the process: from outside only MPI's own variables are seen.
BY_MPI = """
import os, runpy
rank = next(os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK") if n in os.environ)
os.environ.update(RANK=rank, WORLD_SIZE="2")
runpy.run_path("sleeping.py")
"""


def mpirun() -> list[str]:
    return ["mpirun", "-n", "2", sys.executable, "-c", BY_MPI]


def deepspeed(script: str = "sleeping.py") -> list[str]:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed (.ci/live does)")
    return ["deepspeed", "--num_gpus", "2", "--master_port", str(free_port()), script]


def deepspeed_engine() -> list[str]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: DeepSpeed compiles what its engine uses on a CPU")
    return deepspeed("deepspeed_engine.py")


@pytest.mark.parametrize(
    ("launcher", "script"),
    [(mpirun, "sleeping"), (deepspeed, "sleeping"), (deepspeed_engine, "deepspeed_engine")],
)
def test_a_job_that_freezes_under_it_is_reported_and_ended(
    launcher: Callable[[], list[str]], script: str, here: Place
) -> None:
    command = launcher()
    if shutil.which(command[0], path=BESIDE) is None:
        pytest.skip(f"{command[0]} is not installed (.ci/live does; Debian: openmpi-bin)")
    settings = job(script, here) | {
        "PATH": BESIDE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip
    if command[0] == "deepspeed":
        settings = {k: v for k, v in settings.items() if not k.startswith("MASTER")}
        settings |= {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"}
    words = watched("--hang-timeout", "4", "--on-hang", "kill", "--", *command)
    done = here.ran(words, settings)
    assert done.returncode != 0
    assert (here.left / "report.json").exists(), done.stderr
    told = here.verdict()
    assert (told["cause"], told["culprit_ranks"], told["confidence"]) == ("stuck_rank", [1], "high")
    where = (Path(told["location"]["file"]).name, told["location"]["line"])
    assert where == (f"{script}.py", line_of(script))
    assert json.loads(analyze(here.left).to_json())["verdict"] == told
    assert (here / "left/logs/restart_0/rank_1.out").read_text().endswith("step 4\n")
    assert not left_in(here)
