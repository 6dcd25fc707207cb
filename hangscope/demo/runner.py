"""Run a small gloo job on this machine until it is frozen, and keep what it leaves.

The layout is that of a captured incident: `dumps/recorder/comm_lib_trace_rank_N`,
`dumps/stacks/stack_rank_N.txt`, and `dumps/logs/rankN.{out,err}`, or for torchrun its own
`dumps/torchrun.{stdout,stderr}` and `dumps/log_dir/`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path

import hangscope
from hangscope.errors import HangscopeError
from hangscope.model.dataclass import dataclass

# The environment variables through which the runner talks to the ranks.
DUMPS = "HANGSCOPE_DEMO_DUMPS"  # folder for what the job leaves
QUIET = "HANGSCOPE_DEMO_QUIET"  # seconds without progress after which a rank dumps
LIMIT = "HANGSCOPE_DEMO_LIMIT"  # seconds after which a rank ends itself, whatever happens
GLOO_TIMEOUT = "HANGSCOPE_DEMO_GLOO_TIMEOUT"  # seconds until gloo gives up a call
DUMP_AT_END = "HANGSCOPE_DEMO_DUMP_AT_END"  # set: a rank that finishes dumps too
#: What the caller's own job or shell may have set, and what would change how the demo freezes.
_OVERRIDDEN = ("TORCH", "NCCL_", "GLOO_", "MASTER_")
#: (command, environment on top of the job's, where stdout and stderr go)
_Command = tuple[list[str], dict[str, str], tuple[Path, Path]]


class DemoError(HangscopeError):
    """The demo job could not be run, or left nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """How a script is launched and how the job ends.

    `launcher` is `processes` (one log pair per rank) or `torchrun` (static rendezvous, tee, log folder).
    `waits_out` is False where all ranks are killed at once as soon as each has dumped or ended, and True
    where the job goes on until gloo's timeout, so that its logs tell of the timeout as well (torchrun jobs
    always do). Times in seconds.
    """

    world_size: int
    launcher: str = "processes"
    env: Mapping[str, str] = field(default_factory=dict)
    waits_out: bool = False
    gloo_timeout: float = 600.0
    quiet: float = 3.0
    dump_at_end: bool = False


def run_job(script: Path, out: Path, job: Job, *, timeout: float = 60.0) -> Path:
    """Run one job until it is frozen or over, and return `out`.

    `script` is copied to `out/train.py`, so that the frames in the dumps point to a file that stays beside
    them. Raises DemoError when torch is missing, `out` is in use, or no rank left a dump within `timeout`
    seconds.
    """
    if find_spec("torch") is None:
        hint = "pip install torch (a CPU build is enough)"
        raise DemoError("a demo job needs torch, which is not installed", hint)
    dumps = out.absolute() / "dumps"
    if dumps.exists():
        raise DemoError(f"{dumps} exists already", "give an empty folder, or remove it")
    dumps.mkdir(parents=True)
    train = dumps.parent / "train.py"
    shutil.copyfile(script, train)
    deadline = time.monotonic() + timeout
    env = _environment(dumps, job, timeout)
    children: list[subprocess.Popen[bytes]] = []
    try:
        for command, extra, log in _commands(train, dumps, job):
            children.append(_spawn(command, {**env, **extra}, *log))
        _wait(children, dumps, job, deadline)
    finally:
        _kill(children, job)
    if not (dumps / "recorder").is_dir():
        raise DemoError(f"no rank left a dump within {timeout:g} s", f"see the logs in {dumps}")
    return out


def _environment(dumps: Path, job: Job, timeout: float) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OVERRIDDEN)}
    return {
        **inherited,
        # The checkout (or site-packages) that holds this very hangscope, for the ranks' own import of it.
        "PYTHONPATH": str(Path(hangscope.__file__).parent.parent),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        DUMPS: str(dumps),
        QUIET: str(job.quiet),
        LIMIT: str(timeout),
        GLOO_TIMEOUT: str(job.gloo_timeout),
        DUMP_AT_END: "1" if job.dump_at_end else "",
        **job.env,
    }


def _commands(train: Path, dumps: Path, job: Job) -> Iterator[_Command]:
    """Yield how torchrun is started, or each rank."""
    port = str(_free_port())
    if job.launcher == "torchrun":
        agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--master-addr=127.0.0.1"]
        agent += [f"--master-port={port}", f"--nproc-per-node={job.world_size}"]
        agent += [f"--log-dir={dumps / 'log_dir'}", "--tee=3", str(train)]
        yield agent, {}, (dumps / "torchrun.stdout", dumps / "torchrun.stderr")
        return
    logs = dumps / "logs"
    logs.mkdir()
    shared = {"WORLD_SIZE": str(job.world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for r in range(job.world_size):
        extra = {**shared, "RANK": str(r), "LOCAL_RANK": str(r)}
        yield [sys.executable, str(train)], extra, (logs / f"rank{r}.out", logs / f"rank{r}.err")


def _spawn(command: list[str], env: dict[str, str], out: Path, err: Path) -> subprocess.Popen[bytes]:
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        return subprocess.Popen(
            command, env=env, cwd=out.parent, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(children: list[subprocess.Popen[bytes]], dumps: Path, job: Job, deadline: float) -> None:
    """Wait until every rank has dumped or ended, or, where the job is waited out, until all could end."""
    first_end: float | None = None
    while time.monotonic() < deadline:
        time.sleep(0.1)
        ended = [child.poll() is not None for child in children]
        if all(ended):
            return
        if job.waits_out or job.launcher == "torchrun":
            # A rank that is stuck outside every call does not end when its peers time out.
            first_end = time.monotonic() if any(ended) and first_end is None else first_end
            if first_end is not None and time.monotonic() - first_end > job.quiet + 2.0:
                return
            continue
        dumped = [(dumps / "recorder" / f"comm_lib_trace_rank_{r}").exists() for r in range(job.world_size)]
        if all(left or end for left, end in zip(dumped, ended, strict=True)):
            return


def _kill(children: list[subprocess.Popen[bytes]], job: Job) -> None:
    """End what is left. All ranks stop before the first one dies, so that no log tells of the killing."""
    alive = [child for child in children if child.poll() is None]
    if job.launcher == "torchrun" and alive:
        alive[0].terminate()  # the agent ends its ranks; killed at once, it would leave them behind
        with suppress(subprocess.TimeoutExpired):
            alive[0].wait(timeout=40.0)  # 30 s is the agent's own patience with its ranks
            return
    for sign in (signal.SIGSTOP, signal.SIGKILL):
        for child in alive:
            child.send_signal(sign)
    for child in alive:
        child.wait()
