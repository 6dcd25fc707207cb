"""Rank 1 raises in the first attempt; in the second one rank 0 sleeps in its fifth step."""

import os
import time

import torch
import torch.distributed as dist

attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def fetch(step):
    if attempt == 1 and step == 4 and dist.get_rank() == 0:
        time.sleep(600)  # HERE


if attempt == 1 and os.environ["RANK"] == "0":
    time.sleep(6)  # else gloo finds the address of rank 1's first attempt in the store
dist.init_process_group("gloo")
for step in range(100):
    fetch(step)
    print("step", step, flush=True)
    if attempt == 0 and step == 3 and dist.get_rank() == 1:
        raise ValueError("bad sample")
    dist.all_reduce(torch.ones(4))
