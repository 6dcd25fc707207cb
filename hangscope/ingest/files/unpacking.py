"""Archives seen from outside: each is unpacked by a child, within what all archives of one analysis may take together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import IO, Any

from hangscope import isolated
from hangscope.errors import Note
from hangscope.ingest.files import unpacker
from hangscope.ingest.files.archives import is_named_so, may_be_archive
from hangscope.ingest.files.opening import UNPACKED_FLOOR, UNPACKED_TIMES

MAX_UNPACKED = 64 * 2**30  # bytes, of all archives together
MAX_MEMBERS = 200_000
DEADLINE = 60.0  # seconds for a small archive
BYTES_PER_SECOND = 2 * 2**20  # and this much more per byte
_ANSWER = 2**20


class Unpacking:
    """What one analysis may still unpack, and the child that does it.

    `max_unpacked` is the most that all archives together may unpack to, in bytes; by default 64 GiB, half of what is free where
    temporary files go, and for each archive 1 GiB or 250 times its size.
    """

    def __init__(self, max_unpacked: int | None = None) -> None:
        self._limit = max_unpacked
        self._bytes = self._members = 0
        self._child: subprocess.Popen[bytes] | None = None

    def unpack(self, path: str, folder: str, shown: str, notes: list[Note]) -> bool:
        """Write what is in an archive below `folder`; return whether it is one. Whatever goes wrong becomes a note."""
        try:
            if not may_be_archive(path):
                return False
            info = os.stat(path)
            size = min(info.st_size, info.st_blocks * 512)  # less for one with holes
            allowed = self._allowed(size, folder)
        except OSError:
            return False  # whoever reads it says why it cannot be
        request = {
            "path": os.path.abspath(path),
            "show": shown,
            "folder": folder,
            "bytes": allowed,
            "members": MAX_MEMBERS - self._members,
        }
        answer = self._ask(json.dumps(request).encode(), DEADLINE + size / BYTES_PER_SECOND)
        if isinstance(answer, str):
            if not is_named_so(path):
                return False
            notes.append(Note("bad_archive", answer, shown, hint="what came before that point is analysed"))
            return True
        self._bytes += answer["bytes"]
        self._members += answer["members"]
        notes += [Note(code, message, file, hint=hint) for code, message, file, hint in answer["notes"]]
        return bool(answer["archive"])

    def _allowed(self, size: int, folder: str) -> int:
        if self._limit is not None:
            return max(0, self._limit - self._bytes)
        free = shutil.disk_usage(folder).free // 2
        return max(0, min(MAX_UNPACKED - self._bytes, max(UNPACKED_FLOOR, UNPACKED_TIMES * size), free))

    def _ask(self, request: bytes, seconds: float) -> dict[str, Any] | str:
        """Return the child's answer, or in words why there is none."""
        try:
            if self._child is None or self._child.poll() is not None:
                self._child = isolated.start(unpacker.__name__)
        except (OSError, ValueError) as error:
            return f"found no process to unpack it ({error})"
        return isolated.ask(self._child, request, _receive, seconds, "unpacked")

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            isolated.discard(child)


def _receive(stream: IO[bytes]) -> dict[str, Any] | None:
    answer = isolated.receive(stream, _ANSWER)
    return None if answer is None else json.loads(answer)
