"""Real frozen torch jobs under `hangscope run`: the right rank and line are on disk before the job is gone.

The first belongs to every run of the suite; the others need HANGSCOPE_REAL_JOBS=1 (`.ci/live`), and say so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangscope.history.store import open_store
from tests.conftest import analyze
from tests.live.jobs import hangscope, left_in, started, until
from tests.live.torch_jobs import free_port, job, line_of, torchrun
from tests.needs import needs

pytestmark = needs("torch")
End = Callable[["subprocess.Popen[str]", Path], object]


def end_by(number: signal.Signals) -> End:
    """Return what sends one signal to `hangscope run`, as a terminal or a platform does."""
    return lambda process, _: process.send_signal(number)


def end_all_at_once(process: subprocess.Popen[str], folder: Path) -> None:
    """Send SIGTERM to every process of the job in one go, as scancel does."""
    until(lambda: len(list((folder / "left" / "stall").glob("stack_rank_*"))) == 3, 40)
    for pid in left_in(folder):
        os.kill(pid, signal.SIGTERM)


real = pytest.mark.real
CASES = [
    pytest.param(
        "loader_worker", end_by(signal.SIGINT), 1, "stuck_rank", id="ctrl_c-loader_worker", marks=real
    ),
    pytest.param("sleeping", end_by(signal.SIGTERM), 1, "stuck_rank", id="sigterm-sleep", marks=real),
    pytest.param("holding_the_gil", end_by(signal.SIGTERM), 1, "stuck_rank", id="sigterm-gil", marks=real),
    pytest.param("holding_the_gil", end_by(signal.SIGINT), 1, "stuck_rank", id="ctrl_c-gil", marks=real),
    pytest.param(
        "extra_barrier",
        end_by(signal.SIGINT),
        0,
        "rank_conditional_collective",
        id="ctrl_c-collective",
        marks=real,
    ),
    pytest.param("sleeping", end_all_at_once, 1, "stuck_rank", id="scancel-sleep", marks=real),
]


def verdict(folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder / "left" / "report.json").read_text())["verdict"]
    return answer


def frozen(folder: Path, ranks: int) -> bool:
    """Return whether all ranks have joined and stood still for a while, by the evidence that they leave unasked."""
    return len(list((folder / "left" / "stall").glob("stack_rank_*"))) >= ranks - 1


def test_a_newcomer_gets_the_report_of_a_frozen_job(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ["run", "--dir", "left", "--hang-timeout", "4", "--on-hang", "kill", "--store", "s.db", "--"]
    settings = job("sleeping", tmp_path, environment)
    began = time.monotonic()
    done = subprocess.run(
        hangscope(*words, *torchrun("sleeping", 2)),
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert time.monotonic() - began < 60
    assert done.returncode == 1, done.stderr  # as torchrun ends by SIGTERM
    told = verdict(tmp_path)
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of("sleeping") and told["location"]["function"] == "load"
    assert "hang[stuck_rank]: Rank 1" in done.stderr and "hang[" not in done.stdout
    assert (tmp_path / "left" / "report.html").stat().st_size > 10_000
    with open_store(str(tmp_path / "s.db")) as store:
        (row,) = store.entries()
        uses = store.uses(row.id)
    here = socket.gethostname().split(".")[0]
    assert (row.hosts, [use.host for use in uses], row.line) == (here, [here], line_of("sleeping"))
    assert 1 < row.duration_s < 60 and row.report == str(tmp_path / "left" / "report.html")
    assert not left_in(tmp_path)


@real
@pytest.mark.parametrize("kind", ["compile", "save", "evaluate"])
def test_long_work_of_a_rank_is_no_freeze(tmp_path: Path, environment: dict[str, str], kind: str) -> None:
    words = ["run", "--dir", "left", "--hang-timeout", "8", "--on-hang", "kill", "--"]
    done = subprocess.run(
        hangscope(*words, *torchrun("long_work", 2), kind, "16"),
        cwd=tmp_path, env=job("long_work", tmp_path, environment), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, "capturing the job" in done.stderr) == (0, False), done.stderr


@real
def test_what_hangscope_itself_uses_is_below_a_hundredth(environment: dict[str, str]) -> None:
    """By the clocks of its own threads, which a busy machine does not touch."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "benchmarks" / "overhead.py"), "--starts", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    own = re.findall(r"^\| CPU time of .*by its own clock \| ([+-]\d+\.\d+)%", done.stdout, re.MULTILINE)
    assert len(own) == 2 and 0 < sum(map(float, own)) < 1.0


@real
def test_a_job_whose_torch_records_nothing_is_watched_by_its_output(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    settings = job("unrecorded", tmp_path, environment)
    for steps, code in (("40", 0), ("4", 1)):
        words = ["run", "--dir", f"left{steps}", "--hang-timeout", "3", "--on-hang", "kill", "--"]
        done = subprocess.run(
            hangscope(*words, *torchrun("unrecorded", 2), steps),
            cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert (tmp_path / f"left{steps}" / "report.json").exists() == bool(code)
    assert not left_in(tmp_path)


@pytest.mark.parametrize(("script", "end", "culprit", "cause"), CASES)
def test_who_ends_a_frozen_job_gets_its_evidence_first(
    tmp_path: Path, environment: dict[str, str], script: str, end: End, culprit: int, cause: str
) -> None:
    ranks = 3 if script != "loader_worker" else 2
    words = hangscope("run", "--dir", "left", "--", *torchrun(script, ranks))
    with started(words, tmp_path, job(script, tmp_path, environment)) as process:
        until(lambda: frozen(tmp_path, ranks), 60)
        end(process, tmp_path)
        process.communicate(timeout=60)
        assert process.returncode != 0
    told = verdict(tmp_path)
    assert (told["cause"], told["culprit_ranks"]) == (cause, [culprit])
    assert told["location"]["line"] == line_of(script)
    assert not left_in(tmp_path)
    if script == "loader_worker":
        assert any(
            f"loader_worker.py:{line_of(script, '# THE WORKER')}" in item["text"] for item in told["evidence"]
        )


@real
def test_the_last_attempt_of_a_restarted_job_is_reported(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ["run", "--dir", "left", "--hang-timeout", "8", "--on-hang", "kill", "--"]
    launch = torchrun("restarted", 2)
    launch.insert(3, "--max-restarts=1")
    done = subprocess.run(
        hangscope(*words, *launch),
        cwd=tmp_path, env=job("restarted", tmp_path, environment), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    told = verdict(tmp_path)
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [0]), done.stderr
    assert told["location"]["line"] == line_of("restarted")
    assert json.loads(analyze(tmp_path / "left").to_json())["verdict"] == told


@real
def test_ranks_of_mp_spawn_are_reported(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ["run", "--dir", "left", "--hang-timeout", "8", "--on-hang", "kill", "--"]
    settings = job("spawned", tmp_path, environment)
    done = subprocess.run(
        hangscope(*words, sys.executable, "spawned.py", str(free_port())),
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    told = verdict(tmp_path)
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [2]), done.stderr
    assert told["location"]["line"] == line_of("spawned")
    assert json.loads(analyze(tmp_path / "left").to_json())["verdict"] == told
    assert not left_in(tmp_path)
