"""The list of what a report is made from, which `analyze` reads when it is given the folder of the run again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hangscope.errors import Note
from hangscope.ingest.files.run_evidence import NAME, SCHEMA, is_unfinished
from hangscope.live.folder import leave


def write_evidence(
    folder: Path,
    chosen: Iterable[Path],
    world_size: int,
    notes: Sequence[Note] = (),
    torch: str = "",
    began: float = 0.0,
    hosts: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """List the files at or below `chosen` as they are now, and what the run noted. Raises OSError."""
    files: dict[str, tuple[int, float]] = {}
    for top in chosen:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            info = os.lstat(path)
            name = path.relative_to(folder).as_posix()
            if stat.S_ISREG(info.st_mode) and name != NAME and not is_unfinished(path.name):
                files[name] = (info.st_size, info.st_mtime)
    data = {
        "schema": SCHEMA,
        "world_size": world_size or None,
        "files": files,
        "notes": [[note.code, note.message, note.hint] for note in notes],
        "torch": torch,
        "began": began,
        "hosts": hosts or {},
    }
    leave(folder / NAME, json.dumps(data).encode())
