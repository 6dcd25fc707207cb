"""What a rank prints, written to a file of its own as well."""

import io
import os
from typing import Any


class Doubled(io.FileIO):
    """A descriptor of which everything written goes to a second file too."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.count = 0  # bytes
        self.copy = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)

    def write(self, data: Any) -> Any:
        """Write to the one, and what it took to the other."""
        count = super().write(data)
        self.count += count or 0
        try:
            os.write(self.copy, bytes(data)[:count])
        except OSError:
            pass  # a full disk for evidence is not the job's concern
        return count


def text_of(raw: Doubled, stream: Any) -> Any:
    """Return a text stream like `stream` over a doubled descriptor."""
    direct = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if direct else io.BufferedWriter(raw),  # type: ignore[arg-type,unused-ignore]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=not direct,  # a pipe would keep the last lines of a rank that stands still
        write_through=direct,
    )
