from lightning.pytorch import Trainer
from train import Model, loader

from hangscope.capture.lightning import HangscopeCallback

trainer = Trainer(devices=2, strategy="ddp", callbacks=[HangscopeCallback("hang")])
trainer.fit(Model(), loader())
