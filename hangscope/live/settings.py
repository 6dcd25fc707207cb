"""The environment variables that make a frozen job tell more: per torch version, what each gives and what it costs.

Which torch a command will use is asked of its own Python, without importing torch.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangscope.model.dataclass import dataclass
from hangscope.model.tables import entries

Version = tuple[int, int]
NEWEST: Version = (99, 0)


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. `since` and `before` bound the torch versions that read it; `older` names are read there too."""

    name: str
    value: str
    gives: str
    costs: str
    since: Version = (2, 1)
    before: Version = NEWEST
    older: tuple[str, ...] = ()

    def fits(self, version: Version | None) -> bool:
        """Return whether that torch reads it; unknown versions get all."""
        return version is None or self.since <= version < self.before


def settings(folder: str, version: Version | None) -> list[Setting]:
    """Return the settings of one job whose dumps go below `folder`, for one torch version (None: unknown)."""
    found = []
    for row in entries("environment/settings.toml", "setting"):
        row |= {name: tuple(row[name]) for name in ("since", "before", "older") if name in row}
        found.append(Setting(**row | {"value": row["value"].format(folder=folder)}))
    return [setting for setting in found if setting.fits(version)]


def additions(folder: str, version: Version | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to an environment: none that it has, nor one that it has under another name."""
    return {
        setting.name: setting.value
        for setting in settings(folder, version)
        if not any(name in environment for name in (setting.name, *setting.older))
    }


_ASK = "from importlib.metadata import version; print(version('torch'))"
_PATIENCE = 5.0  # s: the job does not start before


def parsed(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version, None where it is none."""
    match = re.match(r"\s*(\d{1,3})\.(\d{1,3})", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def torch_version(command: Sequence[str]) -> tuple[int, int] | None:
    """Return the (major, minor) version of the torch that a command finds, None where that cannot be told."""
    python = _python_of(command)
    if python is None or Path(python).resolve() == Path(sys.executable).resolve():
        from importlib import metadata  # takes as long as all other imports of the command line

        try:
            return parsed(metadata.version("torch"))
        except metadata.PackageNotFoundError:
            return None
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parsed(done.stdout)


def _python_of(command: Sequence[str]) -> str | None:
    """Return the Python that a command starts: itself, or the one that its script's first line names."""
    program = shutil.which(command[0]) if command else None
    if program is None:
        return None
    if Path(program).name.startswith("python"):
        return program
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    words = words[1:] if words and Path(words[0]).name == "env" else words
    return words[0] if words and "python" in words[0] else None
