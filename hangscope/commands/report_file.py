"""One report as a file, and what is said of it on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hangscope.commands.terminal import tell
from hangscope.errors import UsageError
from hangscope.export.output import write_report


def written(path: Path, render: Callable[[], str], force: bool, quiet: bool) -> bool:
    """Write one report file and return whether that worked; a failure is reported and changes no verdict that was printed."""
    try:
        write_report(path, render(), force=force)
    except (OSError, UsageError) as error:
        reason = (
            error.message
            if isinstance(error, UsageError)
            else f"{path} cannot be written: {error.strerror or error}"
        )
        hint = error.hint if isinstance(error, UsageError) else "choose another place with -o"
        tell(f"hangscope: {reason}\n  hint: {hint}")
        return False
    if not quiet:
        tell(f"Wrote {path}")
    return True
