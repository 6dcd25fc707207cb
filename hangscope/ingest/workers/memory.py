"""How much memory readers may take: each by what its file really holds, all together by what the machine or the cgroup has."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FLOOR, LEAST = 3 * 2**30, 2**30  # bytes of address space for a small file: what is enough, and what must do
PER_BYTE = 40  # a loaded dump takes about twelve times its size on disk
_SHARE = 0.75  # of what is there, for all readers together
_HOLES = 4  # times what lies on the disk: file systems may compress


def real_size(path: str, size: int) -> int:
    """Return how large a local file of `size` bytes is without its holes, for which it earns no memory."""
    try:
        blocks = os.stat(path).st_blocks
    except (OSError, AttributeError):
        return size
    return min(size, 512 * blocks * _HOLES + 2**20)


def available() -> int:
    """Return the bytes of memory that readers may take together: of the machine's and of every cgroup above this process."""
    known = [_of_machine(), *_of_cgroups()]
    return max(LEAST, int(_SHARE * min(found for found in known if found is not None)))


def _of_machine() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 8 * 2**30


def _of_cgroups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Iterator[int | None]:
    """Yield the limits of the cgroups that this process is in, of version 2 or 1."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            base = root / "memory" if controllers else root
            limit = "memory.limit_in_bytes" if controllers else "memory.max"
            if controllers and "memory" not in controllers.split(","):
                continue
            place = Path(name.lstrip("/"))
            for folder in (place, *place.parents):
                with suppress(OSError, ValueError):
                    yield int((base / folder / limit).read_text())


class Memory:
    """What all readers share. `take` waits until there is enough; one reader alone never waits."""

    def __init__(self, readers: int, total: int | None = None) -> None:
        self.total = available() if total is None else total
        self._floor = max(LEAST, min(FLOOR, self.total // max(1, readers)))
        self._taken = 0
        self._changed = threading.Condition()

    def limit(self, size: int) -> int:
        """Return the limit of a reader of so many bytes."""
        return min(self._floor + PER_BYTE * size, max(self.total, self._floor))

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Hold so much memory."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + amount <= self.total)
            self._taken += amount
        try:
            yield
        finally:
            with self._changed:
                self._taken -= amount
                self._changed.notify_all()
