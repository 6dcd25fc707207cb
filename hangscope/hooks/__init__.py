"""The files that plug hangscope in elsewhere: what `hangscope hook` prints, what docs/hooks.md shows, what the tests run."""

from __future__ import annotations

from importlib.resources import files

#: What each hook is for, by its name on the command line; the file is in this folder.
HOOKS = {
    "slurm": ("slurm.sh", "a batch script: scancel, time limit and failure leave a report"),
    "k8s": ("k8s.yaml", "a Job: the termination message is the report"),
    "torchrun": ("torchrun.sh", "any launcher script, on one node or several"),
    "accelerate": ("accelerate.sh", "the same for accelerate launch"),
    "ray": ("ray.py", "Ray Train: what the workers raised, with their ranks"),
    "lightning": ("lightning.py", "Lightning's Trainer, without another launcher"),
    "debug": (
        "debug.py",
        "torch.distributed.debug (needs requests and tabulate): a page with the diagnosis in its server",
    ),
    "agent": ("SKILL.md", "a skill for coding agents: when to use hangscope, and how to read its answers"),
    "trainer": ("trainer.py", "Hugging Face's Trainer, without another launcher"),
}


def text(kind: str) -> str:
    """Return the file of one hook."""
    return files("hangscope.hooks").joinpath(HOOKS[kind][0]).read_text(encoding="utf-8")
