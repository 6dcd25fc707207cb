"""The files that plug hangscope in elsewhere: what `hangscope hook` prints, what docs/hooks.md shows, what the tests run."""

from __future__ import annotations

from importlib.resources import files

#: What each hook is for, by its name on the command line; the file is in this folder.
HOOKS = {
    "slurm": ("slurm.sh", "a batch script that reports failures, time limits and scancel"),
    "k8s": ("k8s.yaml", "a Job whose termination message is the report"),
    "torchrun": ("torchrun.sh", "any launcher script, on one node or several"),
    "accelerate": ("accelerate.sh", "the same for accelerate launch"),
    "ray": ("ray.py", "Ray Train: records the exception of each rank and writes a report"),
    "lightning": ("lightning.py", "Lightning's Trainer, without a launcher script"),
    "debug": (
        "debug.py",
        "torch.distributed.debug (needs requests and tabulate): adds a page with the diagnosis",
    ),
    "agent": ("SKILL.md", "a skill for coding agents: when to use hangscope, and how to read its answers"),
    "trainer": ("trainer.py", "Hugging Face's Trainer, without a launcher script"),
}


def text(kind: str) -> str:
    """Return the file of one hook."""
    return files("hangscope.hooks").joinpath(HOOKS[kind][0]).read_text(encoding="utf-8")
