from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from train import train_function  # it calls hangscope.capture.start("/shared/hang") first

from hangscope.capture.ray import HangscopeCallback

run = RunConfig(name="job", callbacks=[HangscopeCallback("/shared/hang")])
TorchTrainer(train_function, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
