"""Rank 0 alone saves, with a barrier."""

import torch
import torch.distributed as dist


def save():
    dist.barrier()  # HERE


dist.init_process_group("gloo")
for step in range(100):
    dist.all_reduce(torch.ones(4))
    if step == 5 and dist.get_rank() == 0:
        save()
