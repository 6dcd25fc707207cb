"""Calls of torch itself."""

from __future__ import annotations

from typing import Any

from calls.registry import batch, call, net


@call("DistributedDataParallel")
def ddp() -> object:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(net())


@call("DistributedDataParallel.forward (broadcast of buffers)")
def ddp_forward() -> object:
    model: Any = ddp()
    model(batch())
    return model(batch())


@call("Tensor.backward")
def backward() -> object:
    model: Any = ddp()
    return model(batch()).sum().backward()


def sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model[0])
    return fully_shard(model)


@call("FSDPModule.forward")
def fsdp2_forward() -> object:
    return sharded()(batch())


def fsdp1() -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))


@call("FullyShardedDataParallel.forward")
def fsdp1_forward() -> object:
    return fsdp1()(batch())


@call("FSDP.state_dict")
def fsdp1_state_dict() -> object:
    return fsdp1().state_dict()


@call("FSDP.summon_full_params")
def fsdp1_summon() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = fsdp1()
    with FullyShardedDataParallel.summon_full_params(model):
        pass


@call("FSDP.clip_grad_norm_")
def fsdp1_clip() -> object:
    model = fsdp1()
    model(batch()).sum().backward()
    return model.clip_grad_norm_(1.0)


@call("clip_grad_norm_")
def clip() -> object:
    import torch

    model = sharded()
    model(batch()).sum().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()


@call("DTensor.full_tensor")
def full_tensor() -> object:
    return next(iter(sharded().parameters())).full_tensor()


@call("DTensor.redistribute")
def redistribute() -> object:
    from torch.distributed.tensor import Replicate

    return next(iter(sharded().parameters())).redistribute(placements=[Replicate()])


@call("distribute_tensor")
def distribute_tensor() -> object:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(batch(), init_device_mesh("cpu", (2,)), [Shard(0)])


@call("an operation on a DTensor")
def dtensor_operation() -> object:
    parameter = next(iter(sharded().parameters())).detach()
    return (parameter.sum() + 1).item()


@call("torch.distributed.checkpoint.save")
def dcp_save() -> object:
    import torch.distributed.checkpoint as dcp

    return dcp.save({"model": sharded().state_dict()}, checkpoint_id="checkpoint")


@call("torch.distributed.checkpoint.load")
def dcp_load() -> object:
    import torch.distributed.checkpoint as dcp

    return dcp.load({"model": sharded().state_dict()}, checkpoint_id="checkpoint")


@call("torch.distributed.checkpoint.state_dict.get_model_state_dict")
def get_model_state_dict() -> object:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(sharded(), options=StateDictOptions(full_state_dict=True))


@call("SyncBatchNorm")
def sync_batch_norm() -> object:
    """Run its forward up to the exchange of statistics, on a CPU that passes for another device."""
    import torch

    torch._C._get_privateuse1_backend_name = lambda: "cpu"
    torch.batch_norm_stats = lambda x, eps: (x.mean(0), x.var(0))  # type: ignore[attr-defined]
    return torch.nn.SyncBatchNorm(4)(batch())


@call("torch.distributed.broadcast_object_list")
def broadcast_object_list() -> None:
    import torch.distributed as dist

    dist.broadcast_object_list([1], src=0)


@call("torch.distributed.all_gather_object")
def all_gather_object() -> None:
    import torch.distributed as dist

    dist.all_gather_object([None] * 2, 1)


@call("torch.distributed.gather_object")
def gather_object() -> None:
    import torch.distributed as dist

    dist.gather_object(1, [None] * 2 if dist.get_rank() == 0 else None, dst=0)


@call("torch.distributed.scatter_object_list")
def scatter_object_list() -> None:
    import torch.distributed as dist

    dist.scatter_object_list([None], [1, 2] if dist.get_rank() == 0 else None, src=0)


def zero_optimizer() -> Any:
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model: Any = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    model(batch()).sum().backward()
    return optimizer


@call("ZeroRedundancyOptimizer.step")
def zero_step() -> object:
    return zero_optimizer().step()


@call("ZeroRedundancyOptimizer.consolidate_state_dict")
def zero_consolidate() -> object:
    optimizer = zero_optimizer()
    optimizer.step()
    return optimizer.consolidate_state_dict(to=0)


@call("PipelineSchedule.step")
def pipeline() -> object:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank = dist.get_rank()
    stage = PipelineStage(torch.nn.Linear(4, 4), rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2)
    return schedule.step(batch()) if rank == 0 else schedule.step()
