"""Rank 1 sleeps in its sixth step, in a job that has started torch's debug server."""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server


def load(step):
    if step == 5 and dist.get_rank() == 1:
        time.sleep(600)  # HERE


start_debug_server(port=int(sys.argv[1]))
dist.init_process_group("gloo")
for step in range(100):
    load(step)
    dist.all_reduce(torch.ones(4))
