from train import arguments, data, model
from transformers import Trainer

try:
    from hangscope.capture.trainer import HangscopeCallback

    callbacks = [HangscopeCallback("hang")]
except Exception:  # training goes on without it
    callbacks = []
Trainer(model(), arguments(), train_dataset=data(), callbacks=callbacks).train()
