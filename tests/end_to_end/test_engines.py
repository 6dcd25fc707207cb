"""The executors of docs/library.md, each on a real engine: the report is the one that this project's own children give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hangscope
from tests.needs import needs

from .test_readme import ROOT, block

sys.path.append(str(ROOT / "benchmarks"))
from dump_generator import Job, generate

pytestmark = pytest.mark.slow

SHOW = 'print(report.to_json(), end="", flush=True)\n'


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dumps of a frozen job, one of them not whole."""
    folder = tmp_path_factory.mktemp("job")
    generate(folder, Job(8, entries=300, layout="world"))
    (folder / "nccl_trace_rank_2").write_bytes(b"\x80\x02}q")
    return folder


@pytest.fixture(scope="module")
def expected(job: Path) -> str:
    report = hangscope.analyze(job, jobs=2)
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    return report.to_json()


def run(
    word: str,
    replaced: dict[str, str],
    folder: Path,
    environment: dict[str, str],
    command: tuple[str, ...] = (sys.executable,),
) -> str:
    """Return what the example of docs/library.md with `word` in it prints as its report."""
    code = block(ROOT / "docs" / "library.md", word)
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    indent = "    " if "__main__" in code else ""
    (folder / "analyse.py").write_text(code + indent + SHOW)
    done = subprocess.run(
        [*command, "analyse.py"],
        cwd=folder,
        env={**environment, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_one_job_and_two_give_one_report(job: Path, expected: str) -> None:
    assert hangscope.analyze(job, jobs=1).to_json() == expected


@pytest.fixture
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="needs Dask, which the `test` extra installs")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


def test_dask(job: Path, expected: str, dask: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    replaced = {"tcp://scheduler:8786": dask.scheduler_address, "/shared/job-17": str(job)}
    assert run("dask.distributed", replaced, tmp_path, environment) == expected


@needs("mpi4py", extra="engines")
def test_mpi(job: Path, expected: str, tmp_path: Path, environment: dict[str, str]) -> None:
    beside = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    mpiexec = shutil.which("mpiexec", path=beside)
    if mpiexec is None:
        pytest.skip("needs mpiexec: pip install '.[engines]'")
    start = (mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures")
    assert run("mpi4py.futures", {"/shared/job-17": str(job)}, tmp_path, environment, start) == expected


@needs("ray", extra="engines")
def test_ray(job: Path, expected: str, tmp_path: Path, environment: dict[str, str]) -> None:
    replaced = {"/shared/job-17": str(job), 'address="auto"': "num_cpus=2, include_dashboard=False"}
    assert run("class RayExecutor", replaced, tmp_path, environment) == expected
