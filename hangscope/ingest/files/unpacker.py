"""The child process that recognises and unpacks archives, one after another.

A request is a JSON object: the archive's `path` and the name to `show`, the `folder` to write to, and how many `bytes` and `members`
there may be. The answer says whether it is an `archive`, how many of both there were, and the `notes`. A member whose header alone asks
for more memory than there is ends in MemoryError here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hangscope import isolated
from hangscope.ingest.files import archives

MEMORY = 2**29  # bytes; an archive is streamed, and xz takes the most for its window
MAX_NAME, MAX_FOLDERS = 1024, 64
_NOTES_OF_MEMBERS = 5
_HINT = "what came before that point is analysed"


class _Enough(Exception):
    """The archive holds more than may be unpacked."""


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may reach the pipe
    isolated.limit_memory(MEMORY)
    while (request := isolated.receive(requests)) is not None:
        isolated.send(answers, json.dumps(unpack(**json.loads(request))).encode())


def unpack(path: str, show: str, folder: str, bytes: int, members: int) -> dict[str, Any]:
    """Write the members of an archive below `folder`, and answer. A damaged member or end leaves a note and what came before."""
    run = _Run(show, folder, bytes, members)
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
                for member in self._counted(archives.members(path, cleanup)):
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

    def _counted(self, found: Iterator[archives.Member]) -> Iterator[archives.Member]:
        for member in found:
            self.seen += 1
            if self.seen > self._max_members:
                raise _Enough(f"the archives hold more than {self._max_members:,} members")
            yield member

    def _one(self, member: archives.Member) -> None:
        """Write one member. What is wrong with it costs it alone, but where the stream ends in it."""
        try:
            if member.size > self._max_bytes:
                raise ValueError(
                    f"it claims more than the {self._max_bytes:,} bytes that may still be unpacked"
                )
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
