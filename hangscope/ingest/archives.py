"""Unpack archives: .tar in its compressions, and .zip. All archives of one analysis share one budget of bytes."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
MAX_UNPACKED = 64 * 2**30


def is_archive(path: str) -> bool:
    """Return whether a name is an archive's."""
    return path.lower().endswith(_ARCHIVES)


class Unpacker:
    """Unpacks one archive after another, as long as there are bytes left to unpack to."""

    def __init__(self) -> None:
        self._written = 0

    def unpack(self, path: str, folder: str) -> None:
        """Write the files of an archive below `folder`. Raises whatever a damaged archive makes its module raise."""
        if path.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                self._copy(
                    ((m.filename, archive.open(m)) for m in archive.infolist() if not m.is_dir()), folder
                )
        elif path.lower().endswith(".zst"):
            try:
                import zstandard
            except ImportError:
                raise ImportError(
                    "reading .zst needs the `zstandard` package: pip install 'hangscope[zstd]'"
                ) from None
            with open(path, "rb") as raw:
                plain = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                with tarfile.open(fileobj=plain, mode="r|") as tar:
                    self._copy_tar(tar, folder)
        else:
            with tarfile.open(path, "r|*") as tar:
                self._copy_tar(tar, folder)

    def _copy_tar(self, tar: tarfile.TarFile, folder: str) -> None:
        self._copy(((m.name, tar.extractfile(m)) for m in tar if m.isfile()), folder)

    def _copy(self, members: Iterable[tuple[str, IO[bytes] | None]], folder: str) -> None:
        """Write archive members below `folder`; a name that climbs out of it is refused, and so is a bomb."""
        root = os.path.realpath(folder)
        for name, stream in members:
            target = os.path.realpath(os.path.join(root, name.lstrip("/")))
            if stream is None or not target.startswith(root + os.sep):
                raise ValueError(f"member {name!r} points outside the archive")
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as out:
                while chunk := stream.read(1 << 20):
                    self._written += len(chunk)
                    if self._written > MAX_UNPACKED:
                        raise ValueError(f"the archives unpack to more than {MAX_UNPACKED >> 30} GiB")
                    out.write(chunk)
