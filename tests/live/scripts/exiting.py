"""Rank 1 exits in its sixth step without a word, with a code of its own."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    if step == 5 and dist.get_rank() == 1:
        os._exit(7)
    dist.all_reduce(torch.ones(4))
