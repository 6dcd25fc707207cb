"""Lightning: `Trainer(callbacks=[HangscopeCallback("hang")])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from hangscope.capture import leave_exception, start


class HangscopeCallback(Callback):
    """Starts the agent in each rank, and leaves what a rank raised. A frozen rank raises nothing: the agent watches."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start the agent, before the first collective of a stage."""
        start(self.folder)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the exception with its rank."""
        leave_exception(self.folder, trainer.global_rank, exception)
