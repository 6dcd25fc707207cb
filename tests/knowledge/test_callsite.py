"""What a call's frames say of who made it."""

from __future__ import annotations

import pytest

from hangscope.incident import CallKind, Frame
from hangscope.knowledge.callsite import is_buffer_sync


@pytest.mark.parametrize(("op", "buffers"), [("broadcast", True), ("all_gather_into_tensor", False)])
def test_only_a_broadcast_of_the_forward_hook_is_one_of_buffers(op: str, buffers: bool) -> None:
    """FSDP's hook of the same name gathers parameters."""
    stack = (Frame("_pre_forward", "/opt/venv/torch/nn/parallel/distributed.py", 1600),)
    assert is_buffer_sync(CallKind(op, "nccl", (), (), (), (), None, None, stack, None)) is buffers
