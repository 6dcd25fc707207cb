from train import arguments, data, model
from transformers import Trainer

from hangscope.capture.trainer import HangscopeCallback

Trainer(model(), arguments(), train_dataset=data(), callbacks=[HangscopeCallback("hang")]).train()
