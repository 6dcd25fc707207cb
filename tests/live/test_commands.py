"""`hangscope env`, `doctor` and `hook`: what they print is what is true, and what the docs show."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hangscope import demo, hooks
from hangscope.live.settings import additions, parsed, settings

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "fixtures" / "rank_conditional_barrier" / "dumps"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("version", "has", "has_not"),
    [
        ("2.15", "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
        ("2.13", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"),
        ("2.3", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
    ],
)
def test_env_names_what_that_torch_reads(inside: Run, version: str, has: str, has_not: str) -> None:
    printed = inside("env", "--torch", version).stdout
    assert f"export {has}=" in printed and has_not not in printed
    assert subprocess.run(["bash", "-n"], input=printed, text=True, check=False).returncode == 0


def test_env_for_other_launchers(inside: Run) -> None:
    container = yaml.safe_load(inside("env", "--k8s", "--torch", "2.13").stdout)
    assert {row["name"]: row["value"] for row in container["env"]}["TORCH_FR_BUFFER_SIZE"] == "10000"
    assert "mkdir -p /job/dumps || true" in container["lifecycle"]["postStart"]["exec"]["command"]
    compile(inside("env", "--ray", "--torch", "2.13").stdout, "runtime_env", "exec")
    assert "SLURM_JOB_ID" in inside("env", "--slurm").stdout
    assert inside("env", "--torch", "new").returncode == 2


def test_every_setting_says_what_it_gives_and_costs() -> None:
    assert all(row["gives"] and row["costs"] for row in settings("/x", None))
    assert parsed("2.13.0+cpu") == (2, 13) and parsed("none") is None


def test_what_is_set_under_another_name_is_not_set_again() -> None:
    mine = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/dump_"}
    added = additions("/x", None, mine)
    assert "TORCH_FR_DUMP_TEMP_FILE" not in added and "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" not in added
    assert added["TORCH_FR_BUFFER_SIZE"] == added["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "10000"


def test_doctor_says_what_is_missing_and_how_to_get_it(inside: Run, tmp_path: Path) -> None:
    whole = inside("doctor", FIXTURE).stdout
    assert (
        "ok      recorder dumps: 4 of 4 ranks" in whole
        and "ok      a log of each rank: 4 of 4 ranks" in whole
    )
    logs = inside("doctor", FIXTURE / "logs").stdout
    assert re.search(r"MISSING recorder dumps: 0 of .*\n +next time: `hangscope run`", logs)
    assert "MISSING stacks" in logs
    assert inside("doctor", tmp_path / "nothing").returncode == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("run", "--on-hang", "kill", "--", "true"),
            "--on-hang kill does nothing without --hang-timeout or --init-timeout",
        ),
        (("capture",), "give either process ids or --job FOLDER"),
        (("capture", "4194303"), "there is no process 4194303 on this node"),
        (("capture", "--job", "nothing"), "nothing is not the folder of a `hangscope run`"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_leaves_nothing(
    words: tuple[str, ...], said: str, inside: Run, tmp_path: Path
) -> None:
    done = inside(*words)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"hangscope: {said}")
    assert not list((tmp_path / "here").iterdir())


def test_a_start_may_be_all_that_has_a_limit(run: Run) -> None:
    assert run("run", "-q", "--init-timeout", "60", "--on-hang", "kill", "--", "true").returncode == 0


def test_a_rank_that_tells_nothing_is_no_input(run: Run) -> None:
    with subprocess.Popen(["sleep", "60"], env={"RANK": "3", "PATH": os.environ["PATH"]}) as silent:
        done = run("capture", silent.pid, "--dir", "left")
        silent.kill()
    assert (done.returncode, done.stdout) == (3, "")
    assert "hangscope: neither stacks nor recorders could be had: no Python stacks of rank 3" in done.stderr
    done = run("analyze", "left")
    assert done.returncode == 3 and "pip install 'hangscope[capture]'" in done.stderr


def test_hook_lists_and_prints_the_files(inside: Run) -> None:
    listed = inside("hook").stdout
    assert re.findall(r"^(\w+) ", listed, re.MULTILINE) == list(hooks.HOOKS)
    assert "needs requests and tabulate" in listed
    for kind in hooks.HOOKS:
        assert inside("hook", kind).stdout == hooks.text(kind)


@pytest.mark.parametrize("kind", [kind for kind in hooks.HOOKS if kind != "agent"])
def test_the_docs_show_the_file_itself(kind: str) -> None:
    text = hooks.text(kind)
    assert len(text.splitlines()) <= (24 if kind == "k8s" else 14)
    shown = re.findall(
        r"```(?:bash|python|yaml)\n(.*?)```", (ROOT / "docs" / "hooks.md").read_text(), re.DOTALL
    )
    assert text in shown


def test_the_demo_has_time_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[float] = []

    def wait(ranks: object, dumps: Path, deadline: float) -> None:
        given.append(deadline - time.monotonic())
        (dumps / "stall").mkdir()
        (dumps / "stall" / "comm_lib_trace_rank_0").touch()

    monkeypatch.setattr(demo, "find_spec", lambda name: name)
    monkeypatch.setattr(demo, "_started", lambda *job: [])
    monkeypatch.setattr(demo, "_wait", wait)
    demo.freeze("stuck_rank", tmp_path)
    assert given == [pytest.approx(300.0, abs=5.0)]  # 30 s were too few on a loaded machine
