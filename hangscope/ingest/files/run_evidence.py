"""What the report of a run was made from: its folder, analysed again, gives the same verdict.

A job goes on after its report, or is ended because of it: logs grow, stacks of the end are added. `evidence.json` in the
folder of `hangscope run` lists the files of the last report with their sizes then (bytes) and times (s since the epoch), and
how many ranks the job had:

    {"schema": "hangscope.evidence/1", "world_size": 8, "files": {"logs/restart_0/rank_0.err": [5120, 1795445195.2]}}

Of the run's own folders only these files are read, and no more of them than there was; what else lies there has been added
by somebody, and is read as ever.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hangscope.dataclass import dataclass

NAME = "evidence.json"
_SCHEMA = "hangscope.evidence/1"
_MOST = 64 << 20  # bytes of the list
_OWN = frozenset(
    [
        "launcher",
        "logs",
        "dumps",
        "stall",
        "at_end",
        "nodes",
        "agent",
        "report.html",
        "report.json",
        "trigger",
        "stalls.txt",
    ]
) | {NAME}
_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The files of a report, by their paths below its folder: (size in bytes, time of the last change)."""

    files: Mapping[str, tuple[int, float]]
    world_size: int | None = None

    def covers(self, path: str) -> bool:
        """Return whether a path below the folder is the run's own, so that only what is listed counts."""
        top = path.partition("/")[0]
        return top in _OWN or top.startswith("capture_")


def read_evidence(folder: str) -> RunEvidence | None:
    """Return what the list in a folder says, None where there is none or it is not to be trusted."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = json.loads(file.read(_MOST))
        if data["schema"] != _SCHEMA:
            return None
        world = data["world_size"]
        return RunEvidence(
            {path: (_size(size), float(written)) for path, (size, written) in data["files"].items()},
            world if isinstance(world, int) and 0 < world <= _RANKS else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write_evidence(folder: Path, chosen: Iterable[Path], world_size: int) -> None:
    """List the files at or below `chosen` as they are now. Raises OSError."""
    from hangscope.output import replace_file

    files: dict[str, tuple[int, float]] = {}
    for top in chosen:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode):
                files[path.relative_to(folder).as_posix()] = (info.st_size, info.st_mtime)
    data = {"schema": _SCHEMA, "world_size": world_size or None, "files": files}
    replace_file(folder / NAME, lambda out: out.write(json.dumps(data).encode()))


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a size is a number of bytes")
    return value
