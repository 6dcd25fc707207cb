"""Three ranks of mp.spawn, without a launcher's variables; rank 2 sleeps in its sixth step."""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def load(rank, step):
    if step == 5 and rank == 2:
        time.sleep(600)  # HERE


def train(rank, world):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=rank, world_size=world)
    for step in range(100):
        load(rank, step)
        print("step", step, flush=True)
        dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    mp.spawn(train, args=(3,), nprocs=3)
