"""A Slurm of one node beside the tests: slurmctld and slurmd on localhost, with their own ports and folder."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue")
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=20
InactiveLimit=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60 OverTimeLimit=0 State=UP
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which sbatch and scancel reach a cluster of this machine alone."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(
        _CONF.format(
            host=socket.gethostname().split(".")[0], control=_port(), node=_port(), folder=folder,
            user=getpass.getuser(),
        )
    )  # fmt: skip
    settings = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
    with ExitStack() as stack:
        for name in ("slurmctld", "slurmd"):
            daemon = subprocess.Popen(
                [name, "-D"],
                env=settings,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(_end, daemon)
        deadline = time.monotonic() + 30
        while "idle" not in _said(["sinfo", "-h", "-o", "%t"], settings):
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.3)
        yield settings


def _said(command: list[str], settings: dict[str, str]) -> str:
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=30, check=False
    ).stdout


def running(settings: dict[str, str]) -> bool:
    """Return whether a job is queued, runs or is being ended."""
    return bool(_said(["squeue", "-h"], settings).strip())


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(daemon: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(daemon.pid, number)
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(10)
            return
