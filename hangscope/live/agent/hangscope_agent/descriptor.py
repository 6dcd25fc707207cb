"""A descriptor that the program may close or reuse at any time: its number is used only while it is still ours."""

import fcntl
import os
import resource
from typing import Tuple

_HIGH = 800  # programs that close all of their descriptors rarely go that far, and new ones get the lowest numbers
_SPARE = 64  # below the limit


class Descriptor:
    """Takes an open descriptor over, under a high number."""

    def __init__(self, number: int) -> None:
        self.number = _moved(number)
        self._identity = _identity(self.number)

    def get(self) -> int:
        """Return the number, or -1 if it is no longer ours."""
        try:
            return self.number if _identity(self.number) == self._identity else -1
        except OSError:
            return -1

    def close(self) -> None:
        """Close it, if it is still ours."""
        if self.get() >= 0:
            os.close(self.number)


def _identity(number: int) -> Tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


def _moved(number: int) -> int:
    try:
        lowest = max(3, min(_HIGH, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE))
        moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest)
    except (OSError, ValueError):
        return number
    os.close(number)
    return moved
