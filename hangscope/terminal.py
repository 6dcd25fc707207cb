"""What somebody sees who watches a terminal: colour, and how far the reading has come."""

from __future__ import annotations

import os
import sys
import time

import click


def wants_color(choice: str) -> bool:
    """Return whether stdout gets colour, by `always`, `never` or `auto`: NO_COLOR, FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


class ProgressBar:
    """A bar on stderr, where that is a terminal and once the work has lasted longer than a second."""

    AFTER = 1.0  # seconds

    def __init__(self, *, quiet: bool) -> None:
        self.enabled = not quiet and sys.stderr.isatty()
        self.start, self.last, self.shown = time.monotonic(), 0.0, False

    def advance(self, files: int, of_files: int, size: int, of_size: int) -> None:
        """Draw how many files and bytes are done, of how many; ten times a second at most."""
        now = time.monotonic()
        if not self.enabled or now - self.start < self.AFTER or (now - self.last < 0.1 and files < of_files):
            return
        self.last, self.shown = now, True
        share = size / of_size if of_size else files / max(1, of_files)
        rate = size / (now - self.start) / 1e6
        counts = f"{files:,}/{of_files:,} files  {size / 1e6:,.0f}/{of_size / 1e6:,.0f} MB  {rate:,.0f} MB/s"
        click.echo(f"\r\x1b[K[{'#' * int(24 * share):24}] {counts}", err=True, nl=False)

    def close(self) -> None:
        """Take the bar away."""
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)
