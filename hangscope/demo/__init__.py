"""Freeze a tiny real torch.distributed job on the CPU, so that there is something to analyse.

It runs with the agent of `hangscope run`, and what the agent writes is what it leaves.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hangscope import isolated
from hangscope.errors import HangscopeError
from hangscope.model.dataclass import dataclass

_QUIET = 3.0  # s without progress after which a rank leaves its stacks and recorder
_STILL = 2.0  # s for which all ranks must have left them: who goes on removes them
#: What the caller's own job or shell may have set, and what would change how the demo freezes.
_OVERRIDDEN = ("TORCH", "NCCL_", "GLOO_", "MASTER_", "HANGSCOPE_")


class DemoError(HangscopeError):
    """The demo job could not be run, or left nothing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One small training job with one fault. `culprits` are global ranks; `cause` is a cause id."""

    name: str
    description: str
    world_size: int
    culprits: tuple[int, ...]
    cause: str

    @property
    def script(self) -> Path:
        """Return the path of the training script."""
        return Path(str(files("hangscope.demo") / "scripts" / f"{self.name}.py"))


_SCENARIOS = (
    Scenario("rank_conditional", "rank 0 alone calls a barrier when it saves a checkpoint", 4, (0,), "rank_conditional_collective"),
    Scenario("uneven_loader", "rank 1 has fewer batches than its peers and leaves the epoch first", 3, (1,), "uneven_loader"),
    Scenario("crashed_rank", "rank 2 raises on a bad sample and its peers wait for its gradients", 4, (2,), "crashed_rank"),
    Scenario("stuck_rank", "rank 3 waits in its loader for a file that never comes", 4, (3,), "stuck_rank"),
)  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    """Return the bundled scenarios by name, in the order in which they are worth showing."""
    return {scenario.name: scenario for scenario in _SCENARIOS}


def freeze(scenario: str, out: Path, *, timeout: float = 300.0) -> Path:
    """Freeze one bundled scenario on this machine and return its incident folder, `out`.

    `out/dumps` holds what the job left, `out/train.py` the script, to which the frames in the dumps point. No process outlives the
    call, which takes at most `timeout` seconds. Raises DemoError when the scenario is unknown, torch is missing, `out` is in use, or
    nothing was left in time.
    """
    if scenario not in scenarios():
        raise DemoError(f"no scenario is called {scenario!r}", f"choose one of {', '.join(scenarios())}")
    chosen = scenarios()[scenario]
    if find_spec("torch") is None:
        what = "a demo job needs torch, which is not installed"
        raise DemoError(what, "pip install torch (a CPU build is enough)")
    dumps = out.absolute() / "dumps"
    if dumps.exists():
        raise DemoError(f"{dumps} exists already", "give an empty folder, or remove it")
    dumps.mkdir(parents=True)
    shutil.copyfile(chosen.script, out / "train.py")
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        ranks += _started(out.absolute() / "train.py", dumps, chosen.world_size)
        _wait(ranks, dumps, time.monotonic() + timeout)
    finally:
        for sign in (
            signal.SIGSTOP,
            signal.SIGKILL,
        ):  # all stop first, so that no log shows how one was ended
            for process in ranks:
                process.send_signal(sign)
        for process in ranks:
            process.wait()
    if not any(dumps.glob("*/*_trace_rank_*")):
        raise DemoError(f"no rank left a dump within {timeout:g} s", f"see the logs in {dumps}")
    return out


def _started(train: Path, dumps: Path, world_size: int) -> list[subprocess.Popen[bytes]]:
    """Start the ranks; none outlives this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OVERRIDDEN)}
    env |= {"PYTHONPATH": str(files("hangscope.live") / "agent"), "HANGSCOPE_DIR": str(dumps)}
    env |= {"HANGSCOPE_STALL": str(_QUIET), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    env |= {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    how: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    how |= {"cwd": dumps, "preexec_fn": partial(isolated.die_with, os.getpid())}
    ranks = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world_size)]
    return [subprocess.Popen([sys.executable, str(train)], env=each, **how) for each in ranks]


def _wait(ranks: list[subprocess.Popen[bytes]], dumps: Path, deadline: float) -> None:
    """Wait until every rank has stalled or ended."""
    since = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < _STILL:
        time.sleep(0.1)
        living = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        if not living:
            return
        left = {path.name for path in dumps.glob("stall/*")}  # no recorder of a rank that has not joined yet
        if not all({f"stack_rank_{rank}.txt", f"comm_lib_trace_rank_{rank}"} <= left for rank in living):
            since = time.monotonic()
