from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from train import train_function  # it starts the agent first, as shown below

try:
    from hangscope.capture.ray import HangscopeCallback

    callbacks = [HangscopeCallback("/shared/hang")]
except Exception:  # training goes on without it
    callbacks = []
run = RunConfig(name="job", callbacks=callbacks)
TorchTrainer(train_function, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
