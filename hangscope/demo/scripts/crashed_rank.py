"""Train with DDP; one sample of rank 2 has a label out of range, and its check raises."""
# mypy: allow-untyped-calls

import torch
import torch._dynamo  # SGD and DDP import it, which takes seconds when all ranks do; here it delays no call
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CLASSES = 10


def load_batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs [8, 20] and labels [8], checked."""
    labels = torch.randint(0, CLASSES, (8,))
    if rank == 2 and step == 4:
        labels[5] = 99
    for label in labels.tolist():
        if not 0 <= label < CLASSES:
            raise ValueError(f"sample {step * 8 + 5}: label {label} is not in 0..{CLASSES - 1}")
    return torch.randn(8, 20), labels


def train(rank: int) -> None:
    """Run ten steps."""
    model = DistributedDataParallel(torch.nn.Linear(20, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        inputs, labels = load_batch(rank, step)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
