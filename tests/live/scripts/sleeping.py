"""Rank 1 sleeps in its sixth step."""

import time

import torch
import torch.distributed as dist


def load(step):
    if step == 5 and dist.get_rank() == 1:
        time.sleep(600)  # HERE


dist.init_process_group("gloo")
for step in range(100):
    load(step)
    print("step", step, flush=True)
    dist.all_reduce(torch.ones(4))
