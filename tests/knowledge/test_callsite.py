"""What a call's frames say of who made it."""

from __future__ import annotations

import pytest

from hangscope.knowledge.callsite import is_gradient, position_to_loop
from hangscope.model.incident import CallKind, Frame, Stack


@pytest.mark.parametrize(("line", "peers", "where"), [(31, 29, "beyond"), (14, 29, "before"), (31, 40, None)])
def test_a_line_that_the_peers_are_past_is_not_behind_their_loop(
    line: int, peers: int, where: str | None
) -> None:
    """Lines that several calls before came from (a constructor's, say) need not be of the loop that the peers are in."""

    def at(number: int) -> tuple[Frame, ...]:
        return (Frame("main", "/workspace/train/train.py", number),)

    found = position_to_loop(at(line), at(peers), [at(29)] * 3)
    assert (found[0] if found is not None else None) == where


ENGINE = Frame("_engine_run_backward", "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 824)
OWN_FUNCTION = Frame("backward", "/workspace/train/mappings.py", 133)


@pytest.mark.parametrize(
    ("stack", "size", "reduces"),
    [
        ((ENGINE,), (2, 8), True),
        ((OWN_FUNCTION, ENGINE), (1024,), False),  # a layer's own exchange in its backward function
        ((), (1024,), True),
        ((), (2, 2048), False),  # autograd's device thread: buckets are flat, activations are not
    ],
)
def test_gradients_are_reduced_by_autograd_itself(stack: Stack, size: tuple[int, ...], reduces: bool) -> None:
    assert is_gradient(CallKind("all_reduce", input_sizes=(size,), stack=stack), True) is reduces
