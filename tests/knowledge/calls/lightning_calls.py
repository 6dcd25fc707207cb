"""Calls of torchmetrics, Lightning and Fabric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calls.registry import batch, call, net


@call("Metric.compute")
def metric() -> object:
    import torchmetrics

    mean = torchmetrics.MeanMetric()
    mean.update(1.0)
    return mean.compute()


@call("MetricCollection.compute")
def metrics() -> object:
    import torchmetrics

    both = torchmetrics.MetricCollection([torchmetrics.MeanMetric(), torchmetrics.SumMetric()])
    both.update(1.0)
    return both.compute()


@call("Metric.forward(dist_sync_on_step=True)")
def metric_forward() -> object:
    import torchmetrics

    return torchmetrics.MeanMetric(dist_sync_on_step=True)(1.0)


def lightning_fit(body: Callable[[Any, Any], object] | None = None, **more: Any) -> Any:
    import lightning as L
    import torch
    from lightning.pytorch.strategies import DDPStrategy
    from torch.utils.data import DataLoader

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.net(batch).sum()
            if body is not None and index == 1:
                body(self, loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("loss", self.net(batch).sum(), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    settings = {
        "max_epochs": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": False, "num_sanity_val_steps": 0, **more,
    }  # fmt: skip
    strategy = DDPStrategy(process_group_backend="gloo")
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy=strategy, **settings)
    loader = DataLoader(torch.randn(16, 4), batch_size=2)
    module = Module()
    trainer.fit(module, loader, DataLoader(torch.randn(8, 4), batch_size=2))
    return trainer, module, loader


@call("the Trainer's validation loop")
def validation_loop() -> object:
    return lightning_fit()


@call("Trainer.validate")
def lightning_validate() -> object:
    trainer, module, loader = lightning_fit()
    return trainer.validate(module, loader, verbose=False)


@call("Trainer.save_checkpoint")
def save_checkpoint() -> object:
    return lightning_fit(lambda module, loss: module.trainer.save_checkpoint("x.ckpt"))


@call("ModelCheckpoint")
def model_checkpoint() -> object:
    from lightning.pytorch.callbacks import ModelCheckpoint

    return lightning_fit(
        enable_checkpointing=True, callbacks=[ModelCheckpoint(dirpath="ckpt", monitor="loss")]
    )


@call("EarlyStopping")
def early_stopping() -> object:
    from lightning.pytorch.callbacks import EarlyStopping

    return lightning_fit(callbacks=[EarlyStopping("loss")])


@call("LightningModule.log(sync_dist=True)")
def log() -> object:
    return lightning_fit(lambda module, loss: module.log("x", loss, on_step=True, sync_dist=True))


@call("LightningModule.all_gather")
def lightning_all_gather() -> object:
    return lightning_fit(lambda module, loss: module.all_gather(loss))


@call("Strategy.barrier")
def strategy_barrier() -> object:
    return lightning_fit(lambda module, loss: module.trainer.strategy.barrier())


@call("Strategy.broadcast")
def strategy_broadcast() -> object:
    return lightning_fit(lambda module, loss: module.trainer.strategy.broadcast(1))


def fabric() -> Any:
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    made = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo"))
    made.launch()
    return made


@call("Fabric.all_gather")
def fabric_all_gather() -> object:
    return fabric().all_gather(batch())


@call("Fabric.all_reduce")
def fabric_all_reduce() -> object:
    return fabric().all_reduce(batch())


@call("Fabric.broadcast")
def fabric_broadcast() -> object:
    return fabric().broadcast(1)


@call("Fabric.barrier")
def fabric_barrier() -> object:
    return fabric().barrier()


@call("Fabric.rank_zero_first")
def fabric_first() -> None:
    with fabric().rank_zero_first():
        pass


@call("Fabric.save")
def fabric_save() -> object:
    return fabric().save("fabric.ckpt", {"x": batch()})


@call("Fabric.load")
def fabric_load() -> object:
    return fabric().load("fabric.ckpt")


@call("Fabric.setup")
def fabric_setup() -> object:
    import torch

    model = net()
    return fabric().setup(model, torch.optim.SGD(model.parameters(), lr=0.1))


@call("Fabric.backward")
def fabric_backward() -> object:
    import torch

    made, model = fabric(), net()
    wrapped, _ = made.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return made.backward(wrapped(batch()).sum())
