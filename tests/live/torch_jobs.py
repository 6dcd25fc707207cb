"""Real torch jobs that freeze: the scripts of `scripts/`, and how torchrun starts them with gloo on this machine."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

from tests.live.jobs import Place

SCRIPTS = Path(__file__).with_name("scripts")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(script: str, ranks: int, *, nodes: int = 1, node: int = 0, port: int | None = None) -> list[str]:
    """Return the command that starts `ranks` ranks of a script on one of `nodes` nodes."""
    agent = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={node}"]
    where = ["--master-addr=127.0.0.1", "--local-addr=127.0.0.1", f"--master-port={port or free_port()}"]
    return [*agent, *where, f"--nproc-per-node={ranks}", f"{script}.py"]


def job(script: str, here: Place) -> dict[str, str]:
    """Put a script into a folder, and return the environment of its job: gloo, and evidence after 3 s of standstill."""
    shutil.copy(SCRIPTS / f"{script}.py", here)
    quiet = {k: v for k, v in here.environment.items() if not k.startswith(("TORCH", "NCCL", "MASTER"))}
    return {**quiet, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HANGSCOPE_STALL": "3"}


def line_of(script: str, mark: str = "# HERE") -> int:
    """Return the line of a script that bears a mark."""
    lines = (SCRIPTS / f"{script}.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if mark in line)
