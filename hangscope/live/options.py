"""What the user asked of `hangscope run`."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Timeouts are in seconds; `hang_timeout` None is off. `on_hang` is report, kill or continue."""

    directory: str | None = None
    hang_timeout: float | None = None
    init_timeout: float = 900.0
    on_hang: str = "report"
    summary: str | None = None
    quiet: bool = False
    store: str | None = None
