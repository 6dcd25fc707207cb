"""The demo's scenarios: what each freezes, and the answer that an analysis should find."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from hangscope.demo.runner import DemoError, Job, run_job
from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """One small training job with one fault. `culprits` are global ranks; `cause` is a cause id."""

    name: str
    description: str
    world_size: int
    culprits: tuple[int, ...]
    cause: str

    @property
    def script(self) -> Path:
        """Return the path of the training script."""
        return Path(str(files("hangscope.demo") / "scripts" / f"{self.name}.py"))


_SCENARIOS = (
    Scenario("rank_conditional", "rank 0 alone calls a barrier when it saves a checkpoint", 4, (0,), "rank_conditional_collective"),
    Scenario("uneven_loader", "rank 1 has fewer batches than its peers and leaves the epoch first", 3, (1,), "uneven_loader"),
    Scenario("crashed_rank", "rank 2 raises on a bad sample and its peers wait for its gradients", 4, (2,), "crashed_rank"),
    Scenario("stuck_rank", "rank 3 waits in its loader for a file that never comes", 4, (3,), "stuck_rank"),
)  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    """Return the bundled scenarios by name, in the order in which they are worth showing."""
    return {scenario.name: scenario for scenario in _SCENARIOS}


def freeze(scenario: str, out: Path, *, timeout: float = 300.0) -> Path:
    """Freeze one bundled scenario on this machine and return its incident folder, `out`.

    `out/dumps` holds what the job left, `out/train.py` the script. No process outlives the call, which takes at most `timeout`
    seconds. Raises DemoError when the scenario is unknown, torch is missing, `out` is in use, or nothing
    was left in time.
    """
    chosen = scenarios().get(scenario)
    if chosen is None:
        raise DemoError(f"no scenario is called {scenario!r}", f"choose one of {', '.join(scenarios())}")
    return run_job(chosen.script, out, Job(chosen.world_size), timeout=timeout)
