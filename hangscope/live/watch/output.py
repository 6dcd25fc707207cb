"""What a command prints: passed on byte by byte, kept in files, and counted."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import IO

_CHUNK = 1 << 16


class Output:
    """The two streams of a command."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = 0
        self._files = [folder / f"{name}.out", folder / f"{name}.err"]
        self._threads: list[threading.Thread] = []

    def follow(self, streams: tuple[IO[bytes], IO[bytes]]) -> None:
        """Begin to pass the streams on, to this process's own stdout and stderr."""
        for stream, descriptor, path in zip(streams, (1, 2), self._files, strict=True):
            thread = threading.Thread(target=self._pump, args=(stream, descriptor, path), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _pump(self, stream: IO[bytes], descriptor: int, path: Path) -> None:
        with open(path, "ab", buffering=0) as kept:
            while data := os.read(stream.fileno(), _CHUNK):
                self.bytes += len(data)
                _write(descriptor, data)
                _write(kept.fileno(), data)

    def close(self, patience: float = 5.0) -> None:
        """Wait until all is passed on; a process that outlives the command may hold the streams open."""
        for thread in self._threads:
            thread.join(patience)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        pass  # whoever read our output has gone; the job is not to notice
