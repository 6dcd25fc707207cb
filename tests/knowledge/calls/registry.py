"""The calls of libraries whose frames are recorded, by the name that `hangscope/knowledge` has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CALLS: dict[str, Callable[[], object]] = {}


def call(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def add(function: Callable[[], object]) -> Callable[[], object]:
        CALLS[name] = function
        return function

    return add


def net() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def batch() -> Any:
    import torch

    return torch.randn(4, 4)
