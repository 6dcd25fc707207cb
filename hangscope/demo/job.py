"""What a rank of a demo job runs around its training loop: join the group, notice a freeze, leave evidence.

Runs inside the ranks only, so torch is imported at the top. gloo writes no Flight Recorder file by itself
(torch 2.13: only NCCL's monitor thread does), so a watcher thread takes NCCL's part: when this rank's
frontier has not moved for a few seconds it writes `recorder/comm_lib_trace_rank_N` and
`stacks/stack_rank_N.txt`.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch._dynamo  # DDP() imports it, which takes seconds when all ranks do; here it delays no call
import torch.distributed as dist

from hangscope.demo import runner
from hangscope.ingest.recorder import safe_pickle

# Neither the recorder's functions nor DDP's logger are in torch's stubs.
_c10d: Any = importlib.import_module("torch._C._distributed_c10d")
_dist: Any = dist

_written = threading.Lock()


def start() -> tuple[int, int]:
    """Join the world group on gloo, start the watcher, and return (global rank, world size)."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL":
        _replace_ddp_logger()
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ[runner.GLOO_TIMEOUT])))
    threading.Thread(target=_watch, name="watch", daemon=True).start()
    _dump_on_collective_error()
    return dist.get_rank(), dist.get_world_size()


def finish() -> None:
    """Leave the job as a healthy rank does: a last dump where one is wanted, then the group's teardown."""
    if os.environ.get(runner.DUMP_AT_END):
        time.sleep(0.5)  # gloo's worker threads mark a call as retired only after its wait() returned
        leave_evidence(stacks=False)
    dist.destroy_process_group()


def leave_evidence(*, stacks: bool = True) -> None:
    """Write this rank's dump, and all threads' Python stacks; only the first call writes."""
    if not _written.acquire(blocking=False):
        return
    folder, rank = Path(os.environ[runner.DUMPS]), dist.get_rank()
    if stacks:
        (folder / "stacks").mkdir(exist_ok=True)
        with open(folder / "stacks" / f"stack_rank_{rank}.txt", "w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
    (folder / "recorder").mkdir(exist_ok=True)
    target = folder / "recorder" / f"comm_lib_trace_rank_{rank}"
    unfinished = folder / f".{target.name}"
    unfinished.write_bytes(_c10d._dump_fr_trace())
    unfinished.rename(target)  # the runner takes the name's existence as "this rank is done"


def _watch() -> None:
    quiet, limit = float(os.environ[runner.QUIET]), time.monotonic() + float(os.environ[runner.LIMIT])
    last, since = None, time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.2)
        progress = _frontier(), int(2 * time.process_time())  # a rank that imports or computes is not frozen
        if progress != last:
            last, since = progress, time.monotonic()
    print(f"[watch] rank {dist.get_rank()}: no progress for {quiet:g} s, dumping", flush=True)
    leave_evidence()
    time.sleep(max(0.0, limit - time.monotonic()))
    os._exit(1)  # a frozen rank never ends by itself; nothing may outlive the demo


def _frontier() -> Any:
    return safe_pickle.load(_c10d._dump_fr_trace(includeCollectives=False))["pg_status"]


def _dump_on_collective_error() -> None:
    # A peer that vanished ends a gloo call with a RuntimeError at once, where NCCL would go on waiting and
    # dump at its timeout. So a rank that is told of a failure dumps; one that fails by an exception of its
    # own does not.
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if issubclass(kind, RuntimeError):
            leave_evidence(stacks=False)
        previous(kind, error, traceback)

    sys.excepthook = hook


def _replace_ddp_logger() -> None:
    # Under DETAIL the gloo group is wrapped, and DDP's C++ logger casts the wrapper to ProcessGroupGloo:
    # every rank dies of a segmentation fault in DDP() (torch 2.13 and 2.15, Logger::set_env_variables). So its entry
    # does nothing.
    silent = {"set_construction_data_and_log": lambda self, *args: None}
    _dist.Logger = type("QuietLogger", (_dist.Logger,), silent)
