"""Archives of an incident's files: recognised by name or by content, and unpacked member by member.

All archives of one analysis share one budget of bytes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hangscope.errors import Note

_NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
_ZIP, _ZSTD, _TAR_AT = b"PK\x03\x04", b"\x28\xb5\x2f\xfd", 257
_PACKED: dict[bytes, Callable[[str], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
# Zip files that hold no logs: torch's checkpoints, numpy's arrays, Python's and Java's packages.
_OTHER_ZIPS = ("/data.pkl", ".npy", ".dist-info/WHEEL", "META-INF/MANIFEST.MF")
_NOTES_OF_MEMBERS = 5
MAX_UNPACKED = 64 * 2**30


class _TooLarge(Exception):
    """The archive unpacks to more than any incident holds."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A file in an archive: how it is opened, or which member before it has the same content (a hard link)."""

    name: str
    open: Callable[[], IO[bytes] | None]
    same_as: str | None = None


def is_named_so(path: str) -> bool:
    """Return whether a name is an archive's."""
    return path.lower().endswith(_NAMES)


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its name, or by its content where it was renamed (`dumps.tar.old`)."""
    if is_named_so(path):
        return True
    try:
        head = _head(path)
        if head.startswith(_ZIP):
            with zipfile.ZipFile(path) as archive:
                return not any(name.endswith(_OTHER_ZIPS) for name in archive.namelist())
        for magic, opened in _PACKED.items():
            if head.startswith(magic):
                with opened(path) as plain:
                    head = plain.read(512)
                break
        if head.startswith(_ZSTD):
            with ExitStack() as cleanup:
                head = _zstd(path, cleanup).read(512)
    except Exception:  # damaged, or compressed by what is not installed: the reader says so
        return False
    return head[_TAR_AT : _TAR_AT + 5] == b"ustar"


def _head(path: str) -> bytes:
    with open(path, "rb") as raw:
        return raw.read(512)


class Unpacker:
    """Unpacks one archive after another, as long as there are bytes left to unpack to."""

    def __init__(self) -> None:
        self._written = 0

    def unpack(self, path: str, folder: str, shown: str, notes: list[Note]) -> None:
        """Write the members of an archive below `folder`. A damaged member or end leaves a note and what came before."""
        try:
            with ExitStack() as cleanup:
                if path.lower().endswith(".zip") or _head(path).startswith(_ZIP):
                    archive = cleanup.enter_context(zipfile.ZipFile(path))
                    self._write(_of_zip(archive), folder, shown, notes, (Exception,))
                else:
                    tar = cleanup.enter_context(_open_tar(path, cleanup))
                    self._write(_of_tar(tar), folder, shown, notes, (ValueError, OSError))
        except (
            Exception
        ) as error:  # a damaged archive makes its modules raise anything, TypeError from tarfile included
            text = f"the archive could not be read to its end: {error}"[:300]
            notes.append(Note("bad_archive", text, shown, hint="what came before that point is analysed"))

    def _write(
        self,
        members: Iterable[_Member],
        folder: str,
        shown: str,
        notes: list[Note],
        skipped: tuple[type[Exception], ...],
    ) -> None:
        """Write members below `folder`; a name that climbs out of it is refused, and so is a bomb.

        An error of a kind in `skipped` costs its member alone.
        """
        failed = 0
        for member in members:
            try:
                target = _place(folder, member.name)
                if member.same_as is not None:
                    os.link(_place(folder, member.same_as), target)
                else:
                    self._copy(member, target)
            except _TooLarge:
                raise
            except skipped as error:
                failed += 1
                if failed <= _NOTES_OF_MEMBERS:
                    notes.append(
                        Note("bad_member", f"could not be unpacked: {error}", f"{shown}!/{member.name}")
                    )
        if failed > _NOTES_OF_MEMBERS:
            notes.append(Note("bad_member", f"{failed} members could not be unpacked", shown))

    def _copy(self, member: _Member, target: str) -> None:
        stream = member.open()
        if stream is None:
            raise ValueError("it has no content")
        with stream, open(target, "wb") as out:
            while chunk := stream.read(1 << 20):
                self._written += len(chunk)
                if self._written > MAX_UNPACKED:
                    raise _TooLarge(f"the archives unpack to more than {MAX_UNPACKED >> 30} GiB")
                out.write(chunk)


def _of_zip(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for info in archive.infolist():
        if not info.is_dir():
            yield _Member(info.filename, lambda info=info: archive.open(info))  # type: ignore[misc]


def _of_tar(tar: tarfile.TarFile) -> Iterator[_Member]:
    for info in tar:
        if info.isfile() or info.islnk():
            same_as = info.linkname if info.islnk() else None
            yield _Member(info.name, lambda info=info: tar.extractfile(info), same_as)  # type: ignore[misc]


def _open_tar(path: str, cleanup: ExitStack) -> tarfile.TarFile:
    if not _head(path).startswith(_ZSTD):
        return tarfile.open(path, "r|*")
    return tarfile.open(fileobj=_zstd(path, cleanup), mode="r|")


def _zstd(path: str, cleanup: ExitStack) -> Any:
    try:
        import zstandard
    except ImportError:
        raise ImportError(
            "reading .zst needs the `zstandard` package: pip install 'hangscope[zstd]'"
        ) from None
    raw = cleanup.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes it)
    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)


def _place(folder: str, name: str) -> str:
    root = os.path.realpath(folder)
    target = os.path.realpath(os.path.join(root, name.lstrip("/")))
    if not target.startswith(root + os.sep):
        raise ValueError(f"member {name!r} points outside the archive")
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    return target
