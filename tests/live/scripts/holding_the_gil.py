"""Rank 1 never gives the interpreter lock back."""

import re

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    if step == 5 and dist.get_rank() == 1:
        re.match(r"(a+)+$", "a" * 50 + "b")  # HERE
    dist.all_reduce(torch.ones(4))
