"""What this process prints through Python's streams, copied to files of the run."""

import os
import socket
import sys
from typing import Dict

from .identity import Identity
from .printed import Printed


class Output:
    """The copies of stdout and stderr of one process."""

    def __init__(self, folder: str, identity: Identity) -> None:
        self.folder, self.identity = folder, identity
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
            if not stream.is_open and not stream.is_written:
                path = os.path.join(self.folder, name + "." + kind)
                try:
                    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                    stream.open(path)
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
        return all(each.is_written for each in self._streams.values()) or not self._name()

    def stop(self) -> None:
        """Leave the streams as they would be without an agent."""
        for stream in self._streams.values():
            stream.stop()
        self._streams = {}
