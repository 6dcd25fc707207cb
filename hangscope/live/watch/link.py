"""What `hangscope run`, which starts the command and passes signals on, and its watcher tell each other, and what the user asked of them.

They share a pair of sockets. A message is a JSON object; a single byte is the number of a signal that the watcher
received itself, written by Python's signal handler (`signal.set_wakeup_fd`) whatever the watcher is doing.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from contextlib import suppress
from typing import Any

from hangscope.model.dataclass import dataclass

_LONGEST = 1 << 20


class Link:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self.closed = False

    @classmethod
    def pair(cls) -> tuple[Link, Link]:
        """Return both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end; the other one sees it."""
        self.closed = True
        self._end.close()

    def send(self, **message: Any) -> None:
        """Send a message. A full or closed link loses it, never blocks."""
        with suppress(OSError):
            self._end.send(json.dumps(message).encode())

    def receive(self, timeout: float = 0.0) -> dict[str, Any]:
        """Return the next message within `timeout` seconds, empty without one; `closed` says that there will be none.

        A signal that the other end received is {"received": number}.
        """
        if self.closed or not select.select([self._end], [], [], timeout)[0]:
            return {}
        try:
            data = self._end.recv(_LONGEST)
            self.closed = not data
            return {"received": data[0]} if len(data) == 1 else dict(json.loads(data or b"{}"))
        except (BlockingIOError, ValueError, TypeError):
            pass
        except OSError:
            self.closed = True
        return {}


@dataclass(frozen=True, slots=True)
class Options:
    """Timeouts are in seconds; `hang_timeout` None is off. `on_hang` is report, kill or continue."""

    directory: str | None = None
    hang_timeout: float | None = None
    init_timeout: float = 900.0
    on_hang: str = "report"
    summary: str | None = None
    quiet: bool = False
    store: str | None = None

    def say(self, text: str) -> None:
        """Print a line on stderr, unless it is to be quiet; one that cannot be printed is lost."""
        if not self.quiet:
            with suppress(OSError, ValueError):
                print(f"hangscope: {text}", file=sys.stderr, flush=True)
