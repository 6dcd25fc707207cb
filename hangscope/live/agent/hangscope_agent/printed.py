"""What a process prints through sys.stdout or sys.stderr, copied to a file of its own by the agent's thread.

The stream stays the program's own object, with its buffering: only its `write` is wrapped, which counts and keeps what went
through until the thread takes it.
"""

import os
from collections import deque
from typing import Any, Deque, Optional

from .descriptor import Descriptor

_MOST = 1 << 20  # characters that wait for a slow disk, or for a file to be known


class Printed:
    """The copy of one stream."""

    def __init__(self, stream: Any) -> None:
        self.count = 0  # characters
        self._stream = stream
        self._waiting: Deque[str] = deque()
        self._size = 0
        self._file: Optional[Descriptor] = None
        write = stream.write

        def copying(text: Any) -> Any:
            done = write(text)
            try:
                self._keep(text)
            except Exception:
                pass
            return done

        self._wrapper = copying
        stream.write = copying

    def _keep(self, text: str) -> None:
        self.count += len(text)
        self._size += len(text)
        self._waiting.append(text[-_MOST:])
        while self._size > _MOST and len(self._waiting) > 1:
            self._size -= len(self._waiting.popleft())

    def open(self, path: str) -> None:
        """Say where the copy goes. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = Descriptor(os.open(path, flags, 0o600))

    @property
    def is_open(self) -> bool:
        """Whether it is known where the copy goes."""
        return self._file is not None

    @property
    def is_written(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def write(self) -> None:
        """Write what waits. A full disk loses it."""
        if self._file is None:
            return
        parts = []
        while self._waiting:
            parts.append(self._waiting.popleft())
        self._size = 0
        number = self._file.get() if parts else -1
        if number >= 0:
            os.write(number, "".join(parts).encode("utf-8", "replace"))

    def stop(self) -> None:
        """Give the stream its own `write` back, unless somebody else has replaced it since; close the file."""
        if self._stream.__dict__.get("write") is self._wrapper:
            del self._stream.write
        if self._file is not None:
            self._file.close()
