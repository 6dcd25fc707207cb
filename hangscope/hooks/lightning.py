from lightning.pytorch import Trainer
from train import Model, loader

try:
    from hangscope.capture.lightning import HangscopeCallback

    callbacks = [HangscopeCallback("hang")]
except Exception:  # training goes on without it
    callbacks = []
Trainer(devices=2, strategy="ddp", callbacks=callbacks).fit(Model(), loader())
