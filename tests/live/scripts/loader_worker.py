"""A loader worker of rank 1 never returns; the rank waits for it."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if rank == 1 and index == 12:
            time.sleep(600)  # THE WORKER
        return torch.ones(4) * index


dist.init_process_group("gloo")
rank = dist.get_rank()
for batch in DataLoader(Samples(), num_workers=2, batch_size=2):  # HERE
    dist.all_reduce(batch)
