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

import pytest

from hangscope.history.store import open_store
from tests.conftest import analyze
from tests.live.jobs import Place, left_in, until, watched
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
CASES = {
    "ctrl_c-loader_worker": ("loader_worker", end_by(signal.SIGINT), 1, "stuck_rank"),
    "sigterm-sleep": ("sleeping", end_by(signal.SIGTERM), 1, "stuck_rank"),
    "sigterm-gil": ("holding_the_gil", end_by(signal.SIGTERM), 1, "stuck_rank"),
    "ctrl_c-gil": ("holding_the_gil", end_by(signal.SIGINT), 1, "stuck_rank"),
    "ctrl_c-collective": ("extra_barrier", end_by(signal.SIGINT), 0, "rank_conditional_collective"),
    "scancel-sleep": ("sleeping", end_all_at_once, 1, "stuck_rank"),
}


def killed(here: Place, timeout: int, script: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run the job of a script under watch, which ends it when it is frozen for so many seconds."""
    words = watched("--hang-timeout", str(timeout), "--on-hang", "kill", "--store", "s.db", "--")
    return here.ran([*words, *(command or torchrun(script, 2))], job(script, here))


def check(here: Place, script: str, culprit: int, cause: str = "stuck_rank") -> None:
    """Check the verdict of the run's report."""
    told = here.verdict()
    assert (told["cause"], told["culprit_ranks"]) == (cause, [culprit])
    assert told["location"]["line"] == line_of(script)
    assert not left_in(here)


def frozen(folder: Path, ranks: int) -> bool:
    """Return whether all ranks have joined and stood still for a while, by the evidence that they leave unasked."""
    return len(list((folder / "left" / "stall").glob("stack_rank_*"))) >= ranks - 1


def test_a_newcomer_gets_the_report_of_a_frozen_job(here: Place) -> None:
    began = time.monotonic()
    done = killed(here, 4, "sleeping")
    assert time.monotonic() - began < 60
    assert done.returncode == 1, done.stderr  # as torchrun ends by SIGTERM
    check(here, "sleeping", 1)
    assert here.verdict()["location"]["function"] == "load"
    assert "hang[stuck_rank]: Rank 1" in done.stderr and "hang[" not in done.stdout
    assert (here.left / "report.html").stat().st_size > 10_000
    with open_store(str(here / "s.db")) as store:
        (row,) = store.entries()
        uses = store.uses(row.id)
    name = socket.gethostname().split(".")[0]
    assert (row.hosts, [use.host for use in uses], row.line) == (name, [name], line_of("sleeping"))
    assert 1 < row.duration_s < 60 and row.report == str(here.left / "report.html")


@real
@pytest.mark.parametrize("kind", ["compile", "save", "evaluate"])
def test_long_work_of_a_rank_is_no_freeze(here: Place, kind: str) -> None:
    done = killed(here, 8, "long_work", *torchrun("long_work", 2), kind, "16")
    assert (done.returncode, "capturing the job" in done.stderr) == (0, False), done.stderr


@real
def test_what_hangscope_itself_uses_is_below_a_hundredth(environment: dict[str, str]) -> None:
    """By the clocks of its own threads, which a busy machine does not touch."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "benchmarks" / "overhead.py"), "--starts", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    own = re.findall(
        r"^\| CPU time of .*by (?:its own clock|their own clocks) \| ([+-]\d+\.\d+)%",
        done.stdout,
        re.MULTILINE,
    )
    assert len(own) == 2 and 0 < sum(map(float, own)) < 1.0


@real
@pytest.mark.parametrize(("steps", "code"), [("40", 0), ("4", 1)])
def test_a_job_whose_torch_records_nothing_is_watched_by_its_output(
    here: Place, steps: str, code: int
) -> None:
    done = killed(here, 3, "unrecorded", *torchrun("unrecorded", 2), steps)
    assert done.returncode == code, done.stderr
    assert (here.left / "report.json").exists() == bool(code)
    assert not left_in(here)


@real
@pytest.mark.parametrize("case", CASES)
def test_who_ends_a_frozen_job_gets_its_evidence_first(here: Place, case: str) -> None:
    script, end, culprit, cause = CASES[case]
    ranks = 3 if script != "loader_worker" else 2
    with here.started(watched("--", *torchrun(script, ranks)), job(script, here)) as process:
        until(lambda: frozen(here, ranks), 60)
        time.sleep(4)  # with what is left after 3 s it is longer than a step
        end(process, here)
        process.communicate(timeout=60)
        assert process.returncode != 0
    check(here, script, culprit, cause)
    if script == "loader_worker":
        worker = f"loader_worker.py:{line_of(script, '# THE WORKER')}"
        assert any(worker in item["text"] for item in here.verdict()["evidence"])


@real
@pytest.mark.parametrize(("script", "culprit"), [("restarted", 0), ("spawned", 2)])
def test_the_report_of_restarted_and_spawned_ranks_is_that_of_its_folder(
    here: Place, script: str, culprit: int
) -> None:
    launch = [sys.executable, "spawned.py", str(free_port())]
    if script == "restarted":
        launch = torchrun(script, 2)
        launch.insert(3, "--max-restarts=1")
    killed(here, 8, script, *launch)
    check(here, script, culprit)
    assert json.loads(analyze(here.left).to_json())["verdict"] == here.verdict()


@real
@pytest.mark.parametrize(
    ("script", "cause", "says"),
    [
        ("hanging_import", "stuck_rank", "never entered init_process_group"),
        ("other_address", "init_hang", "was given 192.0.2.1:"),
        ("exiting", "crashed_rank", "ended with exit code 7"),
    ],
)
def test_a_rank_that_does_not_start_or_exits_is_named_by_what_was_captured(
    here: Place, script: str, cause: str, says: str
) -> None:
    options = ["--init-timeout", "14", "--on-hang", "kill"]
    done = here.ran(watched(*options, "--", *torchrun(script, 2)), job(script, here))
    told = here.verdict()
    assert (done.returncode, told["cause"], told["culprit_ranks"]) == (1, cause, [1]), done.stderr
    assert says in told["summary"]
    assert script == "exiting" or told["location"]["line"] == line_of(script)
    assert json.loads(analyze(here.left).to_json())["verdict"] == told
    assert not left_in(here)
