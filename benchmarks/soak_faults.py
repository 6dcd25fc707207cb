"""What happens to the watcher of a job in the soak test (soak.py), and to the disk that its folder is on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Disk:
    """Where the folder of a run is: a tmpfs of its own if that can be had, which can then be filled and made read-only."""

    path: Path
    is_own: bool
    shim: Path | None

    def kill(self, pid: int) -> None:
        """Kill the watcher, as soon as there is one."""
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            with suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    if b"live.watch" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return os.kill(int(child), signal.SIGKILL)
            time.sleep(0.02)

    def remove(self, _: int) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path / "left", ignore_errors=True)

    def fill(self, _: int) -> None:
        """Fill the disk."""
        with suppress(OSError), open(self.path / "filler", "wb") as file:
            file.write(bytes(4 << 20))

    def fail(self, _: int) -> None:
        """From now on every write is an error, or takes a second; as the environment of the job says."""
        (self.path.parent / "now").touch()


#: What happens; and the errno, or the delay, that the disk then has.
FAULTS: dict[str, tuple[Callable[[Disk, int], None] | None, dict[str, str]]] = {
    "none": (None, {}),
    "watcher killed": (Disk.kill, {}),
    "folder removed": (Disk.remove, {}),
    "disk full": (Disk.fill, {}),
    "read-only": (Disk.fail, {"FAIL_ERRNO": "30"}),
    "input/output error": (Disk.fail, {"FAIL_ERRNO": "5"}),
    "slow disk": (Disk.fail, {"FAIL_SLOW": "1"}),
}
