"""A bar where somebody looks at a terminal, and nothing in pipes and hooks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Run

pytestmark = pytest.mark.slow

INCIDENT = FIXTURES / "rank_conditional_barrier" / "dumps"


def on_terminal(environment: dict[str, str], *words: object) -> str:
    """Return what a command with a bar from its first moment writes to stderr, where that is a terminal."""
    start = "from hangscope import cli; from hangscope.commands import terminal; terminal.ProgressBar.AFTER = 0.0; cli.main()"
    master, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", start, *map(str, words)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=terminal,
        )
        os.close(terminal)
        assert process.wait(60) == 0
        return os.read(master, 1 << 16).decode()
    except OSError:  # nothing was written before the other end was closed
        return ""
    finally:
        os.close(master)


@pytest.mark.parametrize("command", ["analyze", "pack"])
def test_a_terminal_shows_progress(environment: dict[str, str], tmp_path: Path, command: str) -> None:
    count = len([path for path in INCIDENT.rglob("*") if path.is_file()])
    said = on_terminal(environment, command, INCIDENT, "-o", tmp_path / "out")
    assert f"1/{count} files" in said and f"100%  {count}/{count} files" in said and "Wrote " in said
    assert on_terminal(environment, command, INCIDENT, "-o", tmp_path / "out", "-q") == ""


def test_a_pipe_sees_no_bar(run: Run) -> None:
    assert "files" not in run("analyze", INCIDENT).stderr
