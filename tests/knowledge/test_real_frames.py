"""Every call that hangscope knows is read from frames of the real library; where the library is there, from new ones."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangscope.knowledge.library import own_knowledge
from hangscope.knowledge.loading import own_rules
from hangscope.model.incident import Frame, Stack

HERE = Path(__file__).resolve().parent
RECORDED: dict[str, list[list[tuple[str, str, int]]]] = json.loads((HERE / "frames.json").read_text())
#: calls that hold a whole loop are no call of a collective by themselves; they are on the stacks of all others
LOOPS = {rule.api for rule in own_rules() if rule.implies == "loop"}
LIBRARIES = ("lightning", "accelerate", "transformers", "torchmetrics", "deepspeed", "megatron", "torchtitan")


def stacks(name: str) -> list[Stack]:
    return [tuple(Frame(*frame) for frame in stack) for stack in RECORDED[name]]


def test_every_known_call_has_frames_of_its_library() -> None:
    known = {name.split(": ")[-1] for name in RECORDED}
    assert sorted({rule.api for rule in own_rules() if rule.api} - known - LOOPS) == []


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_call_is_read_from_the_librarys_own_frames(name: str) -> None:
    found = [own_knowledge().read(stack) for stack in stacks(name)]
    assert found and all(reading.api == name.split(": ")[-1] for reading in found), [r.api for r in found]


def test_what_users_call_by_themselves_is_told_from_what_a_loop_calls() -> None:
    read = own_knowledge().read
    for name in (
        "Metric.compute",
        "Accelerator.gather_for_metrics",
        "Trainer.evaluate",
        "torch.distributed.checkpoint.save",
    ):
        assert all(r.by_user and r.loop is None and r.caller is not None for r in map(read, stacks(name))), (
            name
        )
    (saved,) = map(read, stacks("Trainer.save_checkpoint")[:1])
    assert (saved.by_user, saved.stage) == (True, "step") and saved.loop is not None
    for reading in map(read, stacks("the Trainer's validation loop")):
        assert (reading.by_user, reading.stage) == (False, "evaluation")


def test_loops_are_on_the_stacks_of_what_they_call() -> None:
    read = own_knowledge().read
    loops = {r.loop.api for name in RECORDED for r in map(read, stacks(name)) if r.loop is not None}
    assert loops == LOOPS


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LIBRARIES),
    reason="needs the extra `frameworks`",
)
def test_the_installed_libraries_still_have_these_frames(tmp_path: Path) -> None:
    names = [
        "Trainer.save_checkpoint",
        "Accelerator.gather",
        "Trainer.evaluate",
        "Metric.compute",
        "DTensor.full_tensor",
    ]
    target = tmp_path / "frames.json"
    env = {**os.environ, "RECORD_INTO": str(target)}
    subprocess.run([sys.executable, str(HERE / "record_frames.py"), *names], check=True, timeout=300, env=env)
    for name, found in json.loads(target.read_text()).items():
        for stack in found:
            assert own_knowledge().read(tuple(Frame(*frame) for frame in stack)).api == name
