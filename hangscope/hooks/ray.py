from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from train import train_function  # begins with: try: hangscope.capture.start("/shared/hang"), as below

try:
    from hangscope.capture.ray import HangscopeCallback

    callbacks = [HangscopeCallback("/shared/hang")]
except Exception:  # training goes on without it
    callbacks = []
run = RunConfig(name="job", callbacks=callbacks)
TorchTrainer(train_function, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
