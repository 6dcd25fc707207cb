"""A torch without gloo's recorder, as before 2.8: it prints its steps, and stops before the last of them where these are few."""

import sys
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

for name in ("_dump_fr_trace", "_dump_fr_trace_json"):
    if hasattr(c10d, name):
        delattr(c10d, name)
dist.init_process_group("gloo")
steps = int(sys.argv[1])
for step in range(steps):
    dist.all_reduce(torch.ones(4))
    print("step", step, flush=True)
    time.sleep(600 if steps < 10 and step == steps - 2 and dist.get_rank() == 1 else 0.2)
dist.destroy_process_group()
