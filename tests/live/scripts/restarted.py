"""Rank 1 raises in the first attempt; in the second one rank 0 sleeps in its fifth step."""

import os
import time

import torch
import torch.distributed as dist

attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def fetch(step):
    if attempt == 1 and step == 4 and dist.get_rank() == 0:
        time.sleep(600)  # HERE


# The agent's store lives on; there gloo would now and then find an address of the first attempt.
agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = dist.PrefixStore(f"attempt-{attempt}", agent)
dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
for step in range(100):
    fetch(step)
    print("step", step, flush=True)
    if attempt == 0 and step == 3 and dist.get_rank() == 1:
        raise ValueError("bad sample")
    dist.all_reduce(torch.ones(4))
