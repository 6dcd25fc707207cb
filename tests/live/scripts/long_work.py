"""Rank 0 is busy for as long as it is told with what it is told: it compiles, saves or evaluates; the others wait."""

import sys
import time

import torch
import torch.distributed as dist

kind, seconds = sys.argv[1], float(sys.argv[2])


class Slow:
    def __getstate__(self):
        time.sleep(seconds)  # a disk that takes its time
        return {}


def compiler(graph, inputs):
    time.sleep(seconds)  # as where inductor's own processes compile
    return graph.forward


def work():
    if kind == "compile":
        torch.compile(lambda x: x + 1, backend=compiler)(torch.ones(4))
    elif kind == "save":
        torch.save(Slow(), "model.pt")
    else:
        until = time.monotonic() + seconds
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64))
        while time.monotonic() < until:
            wrong = (model(torch.randn(32, 64)).argmax(1) != 3).sum()
            assert float(wrong) >= 0


dist.init_process_group("gloo")
for step in range(8):
    dist.all_reduce(torch.ones(4))
    time.sleep(0.3)
    if step == 4 and dist.get_rank() == 0:
        work()
dist.destroy_process_group()
