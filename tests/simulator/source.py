"""The training script that the simulated ranks run: its files, functions and line numbers.

Every incident has its own line numbers and one of two code styles (a plain script; a trainer class). A call
site is a stack as the recorder keeps it: torch's own frames innermost, then the user's.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .calls import Stack

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
_USER = "/workspace/train"

_C10D_LINES = {
    "all_reduce": ("all_reduce", 2938),
    "all_reduce_barrier": ("barrier", 4843),
    "barrier": ("barrier", 4843),
    "_all_gather_base": ("all_gather_into_tensor", 3910),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 4531),
    "all_gather": ("all_gather", 3806),
    "broadcast": ("broadcast", 2790),
    "reduce": ("reduce", 3050),
    "gather": ("gather", 4088),
    "scatter": ("scatter", 4170),
    "all_to_all": ("all_to_all_single", 4655),
    "send": ("isend", 2341),
    "recv": ("irecv", 2395),
}


class Source:
    """Stacks by name. In-loop sites have larger line numbers the later they run; what follows the loop lies
    beyond.
    """

    def __init__(self, rng: random.Random) -> None:
        self.trainer = rng.random() < 0.4
        start = rng.randrange(60, 180)
        self.script = f"{_USER}/{rng.choice(('train.py', 'pretrain.py', 'finetune.py'))}"
        loop_file = f"{_USER}/trainer.py" if self.trainer else self.script
        self._loop = (rng.choice(("train_one_epoch", "run_epoch", "train_epoch")), loop_file)
        self._line = {
            "data": start + 4,
            "to_device": start + 6,
            "forward": start + 9,
            "loss": start + 10,
            "backward": start + 13,
            "clip": start + 16,
            "optimizer": start + 18,
            "metrics": start + 22,
            "log": start + 25,
            "extra": start + 28,
            "except": start + 33,
            "loop_checkpoint": start + 36,
        }
        main = start + rng.randrange(80, 140)
        self._main = {
            "setup": main + 3,
            "loop": main + 9,
            "epoch_end": main + 12,
            "validation": main + 15,
            "checkpoint": main + 19,
            "epoch_barrier": main + 22,
            "final": main + 27,
        }
        self._entry = ("<module>", self.script, main + 34)
        self._helper = {
            "metrics": ("reduce_metrics", f"{_USER}/metrics.py", rng.randrange(20, 60)),
            "epoch_end": ("epoch_average", f"{_USER}/metrics.py", rng.randrange(70, 110)),
            "validation": ("evaluate", f"{_USER}/evaluate.py", rng.randrange(30, 90)),
            "checkpoint": ("save_checkpoint", f"{_USER}/checkpoint.py", rng.randrange(20, 70)),
            "loop_checkpoint": ("save_checkpoint", f"{_USER}/checkpoint.py", rng.randrange(20, 70)),
            "extra": rng.choice(
                (
                    ("log_samples", f"{_USER}/logging_utils.py", rng.randrange(15, 60)),
                    ("quick_eval", f"{_USER}/evaluate.py", rng.randrange(100, 140)),
                    ("maybe_sync_stats", f"{_USER}/metrics.py", rng.randrange(120, 160)),
                )
            ),
        }
        self._block = rng.randrange(40, 120)
        self._cache: dict[tuple[object, ...], Stack] = {}

    def call(self, op: str, place: str, *inner: str) -> Stack:
        """Return the stack of a collective `op` made at `place` (in the loop or in main), through `inner`
        model frames.
        """
        key = (op, place, *inner)
        stack = self._cache.get(key)
        if stack is None:
            function, line = _C10D_LINES[op]
            c10d = (
                (function, f"{TORCH}/distributed/distributed_c10d.py", line),
                ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 81),
            )
            stack = self._cache[key] = c10d + self._inner(inner) + self.at(place)
        return stack

    def batch(self, place: str, *inner: str) -> Stack:
        """Return the stack of a batch_isend_irecv."""
        head = (("batch_isend_irecv", f"{TORCH}/distributed/distributed_c10d.py", 2713),)
        return head + self._inner(inner) + self.at(place)

    def at(self, place: str, helper: bool = True) -> Stack:
        """Return the user's own frames at `place`."""
        key = ("at", place, helper)
        stack = self._cache.get(key)
        if stack is None:
            own = (self._helper[place],) if helper and place in self._helper else ()
            if place in self._line:
                outer: Stack = ((self._loop[0], self._loop[1], self._line[place]),)
                if self.trainer:
                    outer += (("fit", self._loop[1], self._line["loop_checkpoint"] + 20),)
                outer += (("main", self.script, self._main["loop"]), self._entry)
            else:
                outer = (("main", self.script, self._main[place]), self._entry)
            stack = self._cache[key] = own + outer
        return stack

    def _inner(self, names: tuple[str, ...]) -> Stack:
        frames: Stack = ()
        for name in names:
            frames += _MODEL[name](self._block)
        return frames


def _module(_: int) -> Stack:
    path = f"{TORCH}/nn/modules/module.py"
    return (("_call_impl", path, 1790), ("_wrapped_call_impl", path, 1779))


def _engine(_: int) -> Stack:
    """Return the frames of `loss.backward()` down to autograd's engine, as torch 2.13 has them."""
    return (
        ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979),
        ("backward", f"{TORCH}/autograd/__init__.py", 395),
        ("backward", f"{TORCH}/_tensor.py", 623),
    )


_MODEL: dict[str, Callable[[int], Stack]] = {
    "module": _module,
    "engine": _engine,
    "block": lambda base: (
        ("forward", f"{_USER}/model.py", base),
        *_module(0),
        ("forward", f"{_USER}/model.py", base + 61),
    ),
    "tensor": lambda base: (
        ("_reduce", f"{_USER}/parallel/mappings.py", 27),
        ("forward", f"{_USER}/parallel/layers.py", base + 200),
    ),
    "mlp": lambda base: (("forward", f"{_USER}/model.py", base + 22),),
    "fsdp": lambda base: (
        ("foreach_all_gather", f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 192),
        ("unshard", f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 275),
        ("_pre_forward", f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_state.py", 232),
    ),
    "moe_dispatch": lambda base: (
        ("dispatch", f"{_USER}/moe.py", base + 14),
        ("forward", f"{_USER}/moe.py", base + 48),
    ),
    "moe_combine": lambda base: (
        ("combine", f"{_USER}/moe.py", base + 30),
        ("forward", f"{_USER}/moe.py", base + 53),
    ),
    "moe_counts": lambda base: (
        ("exchange_counts", f"{_USER}/moe.py", base + 6),
        ("forward", f"{_USER}/moe.py", base + 45),
    ),
    "ring": lambda base: (
        ("exchange_kv", f"{_USER}/ring_attention.py", base + 3),
        ("forward", f"{_USER}/ring_attention.py", base + 31),
    ),
    "ddp_buffers": lambda base: (
        ("_sync_module_states", f"{TORCH}/distributed/utils.py", 325),
        ("_sync_buffers", f"{TORCH}/nn/parallel/distributed.py", 2175),
        ("_pre_forward", f"{TORCH}/nn/parallel/distributed.py", 1613),
    ),
    "ddp_verify": lambda base: (
        ("_verify_param_shape_across_processes", f"{TORCH}/distributed/utils.py", 297),
        ("__init__", f"{TORCH}/nn/parallel/distributed.py", 849),
    ),
    "ddp_states": lambda base: (
        ("_sync_module_states", f"{TORCH}/distributed/utils.py", 325),
        ("__init__", f"{TORCH}/nn/parallel/distributed.py", 857),
    ),
    "pipeline_forward": lambda base: (
        ("_communicate", f"{_USER}/pipeline/p2p.py", 88),
        ("forward_backward", f"{_USER}/pipeline/schedule.py", base + 40),
    ),
    "pipeline_backward": lambda base: (
        ("_communicate", f"{_USER}/pipeline/p2p.py", 88),
        ("forward_backward", f"{_USER}/pipeline/schedule.py", base + 77),
    ),
    "batch_data": lambda base: (("broadcast_batch", f"{_USER}/parallel/data.py", 33),),
    "grad_norm": lambda base: (("clip_grad_norm", f"{_USER}/optim.py", 51),),
    "grad_sync": lambda base: (("finish_grad_sync", f"{_USER}/parallel/grads.py", 73),),
    "embedding_grads": lambda base: (("all_reduce_embedding_grads", f"{_USER}/parallel/grads.py", 104),),
    "gather_object": lambda base: (
        ("all_gather_object", f"{TORCH}/distributed/distributed_c10d.py", 3120),
        ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 81),
    ),
}
