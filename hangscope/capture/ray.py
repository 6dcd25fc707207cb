"""Ray Train: `RunConfig(callbacks=[HangscopeCallback("/shared/hang")])`, and `start` in the training function."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.train import UserCallback

from hangscope import analyze_safely
from hangscope.capture import leave_exception


class HangscopeCallback(UserCallback):
    """Writes what the workers raised with their ranks, and the report; in the controller, after they have ended."""

    def __init__(self, folder: str, deadline: float = 120.0) -> None:
        self.folder, self.deadline = folder, deadline

    def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, BaseException]) -> None:
        """Leave `worker_exceptions`, which are by rank, and analyse the folder."""
        try:
            for rank, error in worker_exceptions.items():
                leave_exception(self.folder, rank, error)
            report = analyze_safely(self.folder, deadline=self.deadline)
            print(report.to_text(), file=sys.stderr)
            report.write_html(Path(self.folder, "report.html"), force=True)
        except Exception as error:  # the run ends as it would have ended
            print(f"hangscope: no report: {error}", file=sys.stderr)
