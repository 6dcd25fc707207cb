"""What a command prints, if it prints into files: how much, and a copy for the report. Nothing stands in the way of the job.

Its stdout and stderr are those of `hangscope run`; what the watcher itself prints there is no output of the job. What goes to a terminal or a pipe is not ours to read; there the ranks'
and launchers' own agents keep what Python prints.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hangscope.model.dataclass import dataclass

_STDERR = 2
_MOST = 64 * 2**20  # bytes of a stream that are copied, its last ones


@dataclass(frozen=True, slots=True)
class _Stream:
    name: str
    descriptor: int
    start: int


class Streams:
    """The stdout and stderr of a process, as far as they are regular files; `own` is what this process prints on its stderr."""

    def __init__(self, pid: int, own: Sequence[bytes] = ()) -> None:
        self._streams: list[_Stream] = []
        self._own, self._before = own, len(own)
        files = set()
        for number, name in ((1, "out"), (2, "err")):
            path = f"/proc/{pid}/fd/{number}"
            with suppress(OSError, ValueError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in files:
                    files.add((found.st_dev, found.st_ino))
                    lines = Path(f"/proc/{pid}/fdinfo/{number}").read_text().splitlines()
                    info = dict(line.split(":", 1) for line in lines if ":" in line)
                    at = found.st_size if int(info["flags"], 8) & os.O_APPEND else int(info["pos"])
                    self._streams.append(_Stream(name, os.open(path, os.O_RDONLY | os.O_CLOEXEC), at))

    @property
    def bytes(self) -> int:
        """Return how many bytes the command has printed."""
        printed = sum(max(0, os.fstat(s.descriptor).st_size - s.start) for s in self._streams)
        ours = any(os.path.sameopenfile(s.descriptor, _STDERR) for s in self._streams)
        return printed - sum(map(len, self._own[self._before :])) if ours else printed

    def keep(self, folder: Path, name: str) -> None:
        """Copy what the command printed into a folder. Raises OSError."""
        for stream in self._streams:
            at = max(stream.start, os.fstat(stream.descriptor).st_size - _MOST)
            with open(stream.descriptor, "rb", closefd=False) as file:
                file.seek(at)
                data = file.read(_MOST)
            for text in self._own[self._before :]:
                data = data.replace(text, b"", 1)
            (folder / f"{name}.{stream.name}").write_bytes(data)
