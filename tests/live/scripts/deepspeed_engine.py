"""Rank 1 sleeps in its sixth step; DeepSpeed's engine does the rest."""

import time

import deepspeed
import torch
import torch.distributed as dist


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, step):
        if step == 5 and dist.get_rank() == 1:
            time.sleep(600)  # HERE
        return self.layer(x).sum()


deepspeed.init_distributed("gloo")
model = Model()
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config={"train_micro_batch_size_per_gpu": 2},
)
for step in range(100):
    engine.backward(engine(torch.ones(2, 4), step))
    engine.step()
    print("step", step, flush=True)
