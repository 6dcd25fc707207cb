"""Train a linear model; rank 0 saves a checkpoint now and then, with a barrier that only rank 0 reaches."""

import torch
import torch._dynamo  # SGD and DDP import it, which takes seconds when all ranks do; here it delays no call
import torch.distributed as dist


def average_gradients(model: torch.nn.Module, world: int) -> None:
    """Sum the gradients over all ranks and divide."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


def save_checkpoint(model: torch.nn.Module, step: int) -> None:
    """Pretend to save, and wait until "everybody" is done."""
    print(f"saving checkpoint at step {step} ({len(model.state_dict())} tensors)", flush=True)
    dist.barrier()


def train(rank: int, world: int) -> None:
    """Run ten steps."""
    model = torch.nn.Linear(32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        loss = model(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world)
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
        if step % 4 == 3 and rank == 0:
            save_checkpoint(model, step)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
