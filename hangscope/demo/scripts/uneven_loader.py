"""Train with DDP on a dataset that was split without padding: rank 1 runs out of batches first."""
# mypy: allow-untyped-calls

from typing import Any

import torch
import torch._dynamo  # SGD and DDP import it, which takes seconds when all ranks do; here it delays no call
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset


def make_loader(rank: int, world: int) -> DataLoader[Any]:
    """Give each rank every world-th sample; the filter leaves rank 1 with fewer."""
    samples = TensorDataset(torch.randn(96, 10), torch.randn(96, 2))
    mine = range(rank, len(samples), world)
    kept = [i for i in mine if rank != 1 or i < 60]
    return DataLoader(Subset(samples, kept), batch_size=4)


def train_epoch(model: torch.nn.Module, loader: DataLoader[Any], optimizer: Any, rank: int) -> None:
    """Run one pass over this rank's batches."""
    for step, (inputs, targets) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)


def main() -> None:
    """Train for two epochs with a barrier after each."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = make_loader(rank, world)
    for _ in range(2):
        train_epoch(model, loader, optimizer, rank)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
