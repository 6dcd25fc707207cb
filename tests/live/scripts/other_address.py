"""Rank 1 is told a store's address that is nobody's."""

import os

import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["MASTER_ADDR"] = "192.0.2.1"
dist.init_process_group("gloo")  # HERE
