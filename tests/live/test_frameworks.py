"""The hooks for frameworks, run as they are printed: each with a train.py of its own, on the CPU, really distributed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import hangscope as library
from hangscope import hooks
from tests.live.jobs import Place, hangscope, until, watched
from tests.live.torch_jobs import free_port
from tests.needs import needs

pytestmark = [pytest.mark.real, needs("torch")]

ACCELERATE = """
import time, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2
for step in range(50):
    if step == 5 and accelerator.process_index == 1:
        time.sleep(600)  # HERE
    accelerator.reduce(torch.ones(4))
"""
LIGHTNING = """
import os, time, torch
from lightning.pytorch import LightningModule

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        if index == 3 and self.global_rank == 1:
            time.sleep(600)  # HERE
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def loader():
    return torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=2)
"""
TRAINER = """
import os, time, torch
from transformers import TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.steps = torch.nn.Linear(4, 1), 0

    def forward(self, x, labels=None):
        self.steps += 1
        if self.steps == 4 and os.environ["RANK"] == "1":
            time.sleep(600)  # HERE
        return {"loss": self.layer(x).sum()}

model = Net
def arguments():
    return TrainingArguments("out", use_cpu=True, report_to=[], save_strategy="no", per_device_train_batch_size=2, disable_tqdm=True)
def data():
    return [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(64)]
"""
RAY = """
import hangscope.capture

def train_function():
    hangscope.capture.start("%s")
    import ray.train, torch, torch.distributed as dist
    for step in range(5):
        dist.all_reduce(torch.ones(4))
    if ray.train.get_context().get_world_rank() == 1:
        raise ValueError("a bad sample")
    dist.all_reduce(torch.ones(4))
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if "# HERE" in line)


def settings(here: Place) -> dict[str, str]:
    quiet = {
        k: v for k, v in here.environment.items() if not k.startswith(("TORCH", "NCCL", "MASTER", "RANK"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**quiet, "PATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HANGSCOPE_STALL": "3",
            "HOME": str(here), "DIR": str(here.left), "HANG_TIMEOUT": "5", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip


def asked(folder: Path) -> library.Report:
    """Touch the trigger of a frozen job, and return what its answers say."""
    until(lambda: len(list(folder.glob("stall/stack_rank_*"))) == 2, 90)
    (folder / "trigger").touch()
    until(lambda: len(list(folder.glob("capture_01/stack_rank_*"))) == 2)
    return library.analyze_safely(folder)


def verdict_of(report: library.Report) -> Any:
    return json.loads(report.to_json())["verdict"]


def verdict_again(folder: Path) -> Any:
    """Analyze what a job left, now that it is gone."""
    return verdict_of(library.analyze_safely(folder))


def test_accelerate_on_two_processes(here: Place) -> None:
    pytest.importorskip("accelerate")
    (here / "train.py").write_text(ACCELERATE)
    tools = here / "bin"
    tools.mkdir()
    (tools / "hangscope").write_text(f'#!/bin/bash\nexec {sys.executable} -m hangscope "$@"\n')
    (tools / "hangscope").chmod(0o755)
    launch = [
        "--multi_gpu",  # the one that starts several processes; --cpu alone starts one
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    ]
    launch += ["--main_process_port", str(free_port()), "train.py"]
    variables = settings(here)
    variables["PATH"] = f"{tools}{os.pathsep}{variables['PATH']}"
    with here.started(["bash", "-c", hooks.text("accelerate"), "hook", *launch], variables) as process:
        until((here.left / "report.json").exists, 90)
        assert process.poll() is None, "a report alone ends no job"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)
    told = here.verdict()
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of(ACCELERATE)
    assert verdict_again(here.left) == told


@pytest.mark.parametrize(
    ("kind", "module", "train"), [("lightning", "lightning", LIGHTNING), ("trainer", "transformers", TRAINER)]
)
def test_a_callback_answers_the_trigger(kind: str, module: str, train: str, here: Place) -> None:
    pytest.importorskip(module)
    (here / "train.py").write_text(train)
    (here / "hook.py").write_text(hooks.text(kind).replace("devices=2", 'devices=2, accelerator="cpu"'))
    command = [sys.executable, "hook.py"]
    if kind == "trainer":
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            f"--master-port={free_port()}",
            "hook.py",
        ]
    with here.started(command, settings(here)):
        told = verdict_of(asked(here / "hang"))
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of(train)
    assert verdict_again(here / "hang") == told


@pytest.mark.parametrize(
    ("module", "launch", "kind", "train"),
    [
        ("lightning", [], "lightning", LIGHTNING),
        ("transformers", ["-m", "torch.distributed.run", "--nproc-per-node=2"], "trainer", TRAINER),
    ],
)
def test_a_freeze_under_run_is_reported_and_analyzed_again_alike(
    module: str, launch: list[str], kind: str, train: str, here: Place
) -> None:
    pytest.importorskip(module)
    (here / "train.py").write_text(train)
    (here / "hook.py").write_text(hooks.text(kind).replace("devices=2", 'devices=2, accelerator="cpu"'))
    port = [f"--master-port={free_port()}"] if launch else []
    command = watched("--hang-timeout", "8", "--", sys.executable, *launch, *port, "hook.py")
    with here.started(command, settings(here)):
        until((here.left / "report.json").exists, 120)
    told = here.verdict()
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of(train)
    assert verdict_again(here.left) == told


def ray_job(here: Place, train: str) -> dict[str, str]:
    """Write a job of Ray Train, and return the environment to run it in."""
    pytest.importorskip("ray.train")
    (here / "train.py").write_text(train % (here / "hang"))
    (here / "hook.py").write_text(hooks.text("ray").replace("/shared/hang", str(here / "hang")))
    variables = {**settings(here), "RAY_TRAIN_V2_ENABLED": "1", "RAY_DISABLE_IMPORT_WARNING": "1"}
    return {**variables, "PYTHONPATH": f"{here}{os.pathsep}{variables['PYTHONPATH']}"}


def test_a_freeze_in_ray_train_is_that_of_the_thread_that_trains(here: Place) -> None:
    train = RAY.replace('raise ValueError("a bad sample")', "import time; time.sleep(600)  # HERE")
    with here.started([sys.executable, "hook.py"], ray_job(here, train)):
        told = verdict_of(asked(here / "hang"))
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of(train)
    assert verdict_again(here / "hang") == told


def test_ray_train_gives_what_the_workers_raised(here: Place) -> None:
    with here.started([sys.executable, "hook.py"], ray_job(here, RAY)) as process:
        _, said = process.communicate(timeout=150)
    assert (here / "hang" / "report.html").exists(), said[-3000:]
    again = library.analyze_safely(here / "hang")
    told = again.verdict
    assert told is not None
    assert (told.cause, told.culprit_ranks) == ("crashed_rank", (1,)) and "a bad sample" in str(told)
    assert [line for line in again.to_text().splitlines() if line not in said] == []


def test_py_spy_looks_into_a_job_that_was_started_without_anything(here: Place) -> None:
    if shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None:
        pytest.skip("py-spy is not installed")
    scripts = Path(__file__).with_name("scripts")
    shutil.copy(scripts / "loader_worker.py", here)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={free_port()}",
    ]
    with here.started([*launch, "loader_worker.py"], settings(here)) as process:
        stack = here.left / "capture_02" / "stack_rank_1.txt"

        def captured() -> bool:
            shutil.rmtree(here.left, ignore_errors=True)
            here.ran(hangscope("capture", str(process.pid), "--dir", "left"))
            return (
                stack.exists()
                and "worker of rank 1" in stack.read_text()
                and "_get_data" in stack.read_text()
            )

        until(captured, 90)
        assert process.poll() is None
    assert "in __getitem__" in stack.read_text() or "__getitem__ (" in stack.read_text()
