"""Archives, recognised and unpacked by a child, one after another, within what all of one analysis may take together.

A request is a JSON list: the archive's path and the name to show, the folder to write to, and how many bytes and members there may be.
The answer says whether it is an `archive`, how many of both there were, and the `notes`. A member whose header alone asks
for more memory than there is ends in MemoryError in the child.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from hangscope import isolated
from hangscope.errors import Note
from hangscope.ingest.files import archives
from hangscope.ingest.files.opening import UNPACKED_FLOOR, UNPACKED_TIMES

MAX_UNPACKED = 64 * 2**30  # bytes, of all archives together
MAX_MEMBERS = 200_000
DEADLINE = 60.0  # seconds for a small archive
BYTES_PER_SECOND = 2 * 2**20  # and this much more per byte
MEMORY = 2**29  # bytes; an archive is streamed, and xz takes the most for its window
MAX_NAME, MAX_FOLDERS = 1024, 64
_ANSWER = 2**20
_NOTES_OF_MEMBERS = 5
_HINT = "what came before that point is analysed"


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
        """Write what is in a file that may be an archive below `folder`; return whether it is one. Whatever goes wrong becomes a note."""
        try:
            info = os.stat(path)
            size = min(info.st_size, info.st_blocks * 512)  # less for one with holes
            allowed = self._allowed(size, folder)
        except OSError:
            return False  # whoever reads it says why it cannot be
        request = (os.path.abspath(path), shown, folder, allowed, MAX_MEMBERS - self._members)
        answer = self._ask(json.dumps(request).encode(), DEADLINE + size / BYTES_PER_SECOND)
        if isinstance(answer, str):
            if not archives.is_named_so(path):
                return False
            notes.append(Note("bad_archive", answer, shown, hint=_HINT))
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
        try:
            if self._child is None or self._child.poll() is not None:
                self._child = isolated.start(__name__)
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
    return None if answer is None else dict(json.loads(answer))


class _Enough(Exception):
    """The archive holds more than may be unpacked."""


def main() -> None:
    """Answer requests in the child until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may reach the pipe
    isolated.limit_memory(MEMORY)
    while (request := isolated.receive(requests)) is not None:
        isolated.send(answers, json.dumps(unpack(*json.loads(request))).encode())


def unpack(path: str, show: str, folder: str, max_bytes: int, max_members: int) -> dict[str, Any]:
    """Write the members of an archive below `folder`, and answer. A damaged member or end leaves a note and what came before."""
    run = _Run(show, folder, max_bytes, max_members)
    try:
        is_one = archives.is_archive(path)
        if is_one:
            run.unpack(path)
    except MemoryError:
        is_one = True
        run.note("bad_archive", "its headers ask for more memory than an archive may take", _HINT)
    return {"archive": is_one, "bytes": run.written, "members": run.seen, "notes": run.notes}


class _Run:
    """One archive: what was written, and what could not be."""

    def __init__(self, show: str, folder: str, max_bytes: int, max_members: int) -> None:
        self.show, self.root = show, os.path.realpath(folder)
        self.written = self.seen = self.failed = 0
        self.notes: list[tuple[str, str, str, str]] = []
        self._max_bytes, self._max_members = max_bytes, max_members

    def note(self, code: str, message: str, hint: str = "", member: str = "") -> None:
        file = f"{self.show}!/{member[:200]}" if member else self.show
        self.notes.append((code, message[:300], file.encode("utf-8", "replace").decode(), hint))

    def unpack(self, path: str) -> None:
        try:
            with ExitStack() as cleanup:
                for member in archives.members(path, cleanup):
                    self.seen += 1
                    if self.seen > self._max_members:
                        raise _Enough(f"the archives hold more than {self._max_members:,} members")
                    if member.open is not None:
                        self._one(member)
        except MemoryError:
            raise
        except _Enough as error:
            self.note("bad_archive", str(error), _HINT + "; --max-unpacked raises the limit")
        except Exception as error:  # a damaged archive makes its modules raise anything
            self.note("bad_archive", f"the archive could not be read to its end: {error}", _HINT)
        if self.failed > _NOTES_OF_MEMBERS:
            self.note("bad_member", f"{self.failed:,} members could not be unpacked")

    def _one(self, member: archives.Member) -> None:
        """Write one member. What is wrong with it costs it alone, but where the stream ends in it."""
        try:
            if member.size > self._max_bytes:
                what = f"it claims more than the {self._max_bytes:,} bytes that may still be unpacked"
                raise ValueError(what)
            target = _place(self.root, member.name)
            if member.same_as is not None:
                os.link(_place(self.root, member.same_as), target)
            else:
                self._copy(member, target)
        except (_Enough, MemoryError):
            raise
        except Exception as error:
            if not member.alone and not isinstance(error, (ValueError, OSError)):
                raise
            self.failed += 1
            if self.failed <= _NOTES_OF_MEMBERS:
                self.note("bad_member", f"could not be unpacked: {error}", member=member.name)

    def _copy(self, member: archives.Member, target: str) -> None:
        stream = member.open() if member.open is not None else None
        if stream is None:
            raise ValueError("it has no content")
        with stream, open(target, "wb") as out:
            while chunk := stream.read(1 << 20):
                self.written += len(chunk)
                if self.written > self._max_bytes:
                    os.unlink(target)
                    raise _Enough(f"the archives unpack to more than {self._max_bytes:,} bytes")
                out.write(chunk)


def _place(root: str, name: str) -> str:
    if len(name) > MAX_NAME or name.count("/") > MAX_FOLDERS:
        raise ValueError(f"its name has {len(name):,} characters and {name.count('/'):,} folders")
    target = os.path.realpath(os.path.join(root, name.lstrip("/")))
    if not target.startswith(root + os.sep):
        raise ValueError(f"member {name!r} points outside the archive")
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    return target
