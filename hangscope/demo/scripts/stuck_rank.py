"""Train with DDP; the loader of rank 3 waits for a shard that never arrives."""
# mypy: allow-untyped-calls, allow-subclassing-any

import time
from pathlib import Path

import torch
import torch._dynamo  # SGD and DDP import it, which takes seconds when all ranks do; here it delays no call
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset[torch.Tensor]):
    """Eight shards per rank; one of rank 3 is not there yet."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 3 and index == 5:
            self.wait_for(Path("shards/rank3-shard5.bin"))
        return torch.randn(4, 12)

    def wait_for(self, path: Path) -> None:
        """Poll until the shard has been copied to this machine."""
        while not path.exists():
            time.sleep(1)


def train(rank: int) -> None:
    """Run one epoch."""
    model = DistributedDataParallel(torch.nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(DataLoader(Shards(rank), batch_size=None)):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
