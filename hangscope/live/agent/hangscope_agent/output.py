"""What this process prints through sys.stdout and sys.stderr, copied to files of the run by the agent's thread.

The streams stay the program's own objects, with their buffering: only `write` is wrapped, which counts and keeps what went
through until the thread takes it.
"""

import os
import socket
import sys
from collections import deque
from typing import Any, Deque, Dict, Optional

from .descriptor import Descriptor
from .identity import Identity

_MOST = 1 << 20  # characters that wait for a slow disk, or for a file to be known


class Printed:
    """The copy of one stream."""

    def __init__(self, stream: Any) -> None:
        self.count = 0  # characters
        self._stream = stream
        self.waiting: Deque[str] = deque()
        self._size = 0
        self.file: Optional[Descriptor] = None  # None while it is not known where the copy goes
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
        self.waiting.append(text[-_MOST:])
        while self._size > _MOST and len(self.waiting) > 1:
            self._size -= len(self.waiting.popleft())

    def open(self, path: str) -> None:
        """Say where the copy goes. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.file = Descriptor(os.open(path, flags, 0o600))

    def write(self) -> None:
        """Write what waits. A full disk loses it."""
        if self.file is None:
            return
        parts = []
        while self.waiting:
            parts.append(self.waiting.popleft())
        self._size = 0
        number = self.file.get() if parts else -1
        if number >= 0:
            os.write(number, "".join(parts).encode("utf-8", "replace"))

    def stop(self) -> None:
        """Give the stream its own `write` back, unless somebody else has replaced it since; close the file."""
        if self._stream.__dict__.get("write") is self._wrapper:
            del self._stream.write
        if self.file is not None:
            self.file.close()


class Output:
    """The copies of stdout and stderr of one process."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._streams: Dict[str, Printed] = {}

    def copy(self) -> None:
        """Begin to copy what is printed."""
        for name, kind in (("stdout", "out"), ("stderr", "err")):
            try:
                self._streams[kind] = Printed(getattr(sys, name))
            except Exception:
                pass  # there is none, or it is nobody's to change

    @property
    def count(self) -> int:
        """Return how many characters were printed."""
        return sum(stream.count for stream in self._streams.values())

    def write(self) -> None:
        """Write the copies to where they belong, as soon as that is known; a stream that printed nothing gets no file."""
        name = self._name()
        for kind, stream in self._streams.items() if name else ():
            if stream.file is None and stream.waiting:
                folder, _, file = name.rpartition("/")
                try:
                    stream.open(os.path.join(self.identity.made(folder), file + "." + kind))
                except OSError:
                    return self.stop()
            stream.write()

    def _name(self) -> str:
        """Return where the copies go, "" while that is not known."""
        rank = self.identity.global_rank()
        if rank is not None:
            return "logs/restart_%d/rank_%d" % (self.identity.restart, rank)
        if self.identity.launcher:
            return "launcher/%s.%d" % (socket.gethostname().split(".")[0], self.identity.pid)
        return ""

    @property
    def is_copied(self) -> bool:
        """Whether all that was printed is in its file, or will never be."""
        return not any(each.waiting for each in self._streams.values()) or not self._name()

    def stop(self) -> None:
        """Leave the streams as they would be without an agent."""
        for stream in self._streams.values():
            stream.stop()
        self._streams = {}
