"""The environment variables that make a frozen job tell more: per torch version, what each gives and what it costs.

Which torch a command will use is asked of its own Python, without importing torch.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hangscope.model.tables import entries

Version = tuple[int, int]
_OLDEST, _NEWEST = [2, 1], [99, 0]
_ASK = "from importlib.metadata import version; print(version('torch'))"
_PATIENCE = 5.0  # s: the job does not start before


def settings(folder: str, version: Version | None) -> list[dict[str, Any]]:
    """Return the settings of one job whose dumps go below `folder`, for one torch version; for an unknown one (None) all."""
    return [
        {**row, "value": row["value"].format(folder=folder)}
        for row in entries("environment/settings.toml", "setting")
        if version is None or row.get("since", _OLDEST) <= [*version] < row.get("before", _NEWEST)
    ]


def additions(folder: str, version: Version | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to an environment: none that it has, nor one that it has under another name."""
    return {
        row["name"]: row["value"]
        for row in settings(folder, version)
        if not any(name in environment for name in (row["name"], *row.get("older", ())))
    }


def parsed(text: str) -> Version | None:
    """Return (major, minor) of a version, None where it is none."""
    match = re.match(r"\s*(\d{1,3})\.(\d{1,3})", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def torch_version(program: str) -> Version | None:
    """Return the version of the torch that a program finds, None where that is unknown."""
    python = _python_of(program)
    if python is None or Path(python).resolve() == Path(sys.executable).resolve():
        from importlib import metadata  # takes as long as all other imports of the command line

        try:
            return parsed(metadata.version("torch"))
        except metadata.PackageNotFoundError:
            return None
    nowhere = subprocess.DEVNULL
    words = [python, "-c", _ASK]
    try:
        return parsed(
            subprocess.check_output(words, text=True, timeout=_PATIENCE, stdin=nowhere, stderr=nowhere)
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _python_of(program: str) -> str | None:
    """Return the Python that a program is, or the one that its first line names."""
    path = shutil.which(program)
    if path is None or Path(path).name.startswith("python"):
        return path
    try:
        with open(path, "rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    words = words[1:] if words and Path(words[0]).name == "env" else words
    return words[0] if words and "python" in words[0] else None
