"""Freeze a tiny real torch.distributed job on the CPU, so that there is something to analyse."""

from hangscope.demo.catalog import Scenario, freeze, scenarios
from hangscope.demo.runner import DemoError, Job, run_job

__all__ = ["DemoError", "Job", "Scenario", "freeze", "run_job", "scenarios"]
