"""Hugging Face Trainer, and all that takes its callbacks: `Trainer(callbacks=[HangscopeCallback("hang")])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hangscope.capture import start


class HangscopeCallback(TrainerCallback):
    """Starts the agent in each rank when training begins."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the agent."""
        start(self.folder)
