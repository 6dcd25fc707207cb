"""Calls of DeepSpeed, megatron-core and torchtitan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calls.registry import batch, call
from calls.torch_calls import sharded


def engine(stage: int = 1) -> Any:
    import deepspeed
    import torch

    config = {
        "train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": stage == 3},
    }  # fmt: skip
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return deepspeed.initialize(
        model=model, optimizer=optimizer, model_parameters=model.parameters(), config=config
    )[0]


@call("deepspeed.initialize")
def deepspeed_initialize() -> object:
    return engine()


@call("DeepSpeedEngine.backward")
def deepspeed_backward() -> object:
    e = engine()
    return e.backward(e(batch()).sum())


@call("DeepSpeedEngine.step")
def deepspeed_step() -> object:
    e = engine()
    e.backward(e(batch()).sum())
    return e.step()


@call("DeepSpeedEngine.save_checkpoint")
def deepspeed_save() -> object:
    return engine().save_checkpoint("ds")


@call("DeepSpeedEngine.forward")
def deepspeed_forward() -> object:
    return engine(3)(batch())


@call("deepspeed.zero.GatheredParameters")
def gathered_parameters() -> None:
    import deepspeed

    e = engine(3)
    with deepspeed.zero.GatheredParameters(list(e.module.parameters())):
        pass


@call("deepspeed.utils.safe_get_full_fp32_param")
def safe_get() -> object:
    from deepspeed.utils import safe_get_full_fp32_param

    return [safe_get_full_fp32_param(p) for p in engine(2).module.parameters()]


@call("DeepSpeedEngine.save_16bit_model")
def deepspeed_save_16bit() -> object:
    return engine(3).save_16bit_model("ds16")


@call("deepspeed.comm.barrier")
def deepspeed_barrier() -> object:
    import deepspeed

    deepspeed.init_distributed("gloo")
    return deepspeed.comm.barrier()


def model_parallel() -> None:
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(1, 1)


@call("megatron.core.dist_checkpointing.save")
def megatron_save() -> object:
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    model_parallel()
    Path("megatron").mkdir(exist_ok=True)
    piece = dist_checkpointing.ShardedTensor.from_rank_offsets("x", batch(), (0, dist.get_rank(), 2))
    return dist_checkpointing.save({"x": piece}, "megatron")


@call("torchtitan.distributed.utils.dist_mean")
def titan_mean() -> object:
    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.distributed.utils import dist_mean

    return dist_mean(batch().mean(), init_device_mesh("cpu", (2,)))


@call("torchtitan.distributed.utils.clip_grad_norm_")
def titan_clip() -> object:
    from torchtitan.distributed.utils import clip_grad_norm_

    model = sharded()
    model(batch()).sum().backward()
    return clip_grad_norm_(list(model.parameters()), 1.0)
