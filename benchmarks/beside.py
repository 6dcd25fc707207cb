"""What lies beside a rank's dump: the log that it printed, and a stack of it."""

from __future__ import annotations

from pathlib import Path

_STEP = (
    "[default{local}]:2026-11-20 15:{minute:02}:{second:02} | INFO | trainer.py:412 | epoch 3 step {step} "
    "loss=2.{step:04} lr=3.0e-04 grad_norm=0.{second:03} tokens/s={step}93 eta 3 days\n"
)
_INIT = (
    "gpu{node:03}:{pid}:{pid} [{local}] NCCL INFO Bootstrap: Using eth0:10.0.0.{node}<0>\n"
    "gpu{node:03}:{pid}:{pid} [{local}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.{node}<0>\n"
    "gpu{node:03}:{pid}:{pid} [{local}] NCCL INFO Using network IB\n"
)
_TIMEOUT = (
    "[rank{rank}]:[E1120 15:13:44.220687360 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=58, NumelOut=58, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
_STACK = """Process {pid}: /opt/venv/bin/python train.py
Python v3.11.9 (/opt/venv/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {where}
    train_step (train/trainer.py:{line})
    main (train/train.py:90)
    <module> (train/train.py:120)
Thread {other} (idle): "Thread-1"
    wait (threading.py:331)
    run (tensorboard/summary/writer/event_file_writer.py:244)
    _bootstrap_inner (threading.py:1045)
    _bootstrap (threading.py:1002)
"""


def write_log(path: Path, rank: int, size: int, *, waits: bool) -> int:
    """Write a log of about `size` bytes: NCCL's lines of its start, steps, and a watchdog's where the rank waits."""
    local, node = rank % 8, rank // 8
    head = _INIT.format(node=node, pid=9000 + rank, local=local)
    block = "".join(
        _STEP.format(local=local, minute=i // 60 % 60, second=i % 60, step=i) for i in range(1000, 3000)
    )
    text = head + block * max(1, size // len(block))
    return path.write_text(text + (_TIMEOUT.format(rank=rank, seq=812) if waits else ""))


def write_stack(path: Path, rank: int, *, waits: bool) -> int:
    """Write a stack as py-spy prints it."""
    where = "all_reduce (torch/distributed/distributed_c10d.py:3012)" if waits else "read (data/loader.py:77)"
    return path.write_text(
        _STACK.format(pid=9000 + rank, other=90000 + rank, where=where, line=300 if waits else 210)
    )
