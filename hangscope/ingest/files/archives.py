"""Archives of an incident's files: recognised by content, and read member by member.

Nothing here but `may_be_archive` is called outside the child that unpacks (`unpacking.py`): a few bytes of any of these formats can
ask for any amount of memory.
"""

from __future__ import annotations

import bz2
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, Any

from hangscope.ingest.files.opening import UNPACKED
from hangscope.ingest.files.sniff import sniff
from hangscope.model.dataclass import dataclass

_NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
_ZIP, _TAR_AT = b"PK\x03\x04", 257
_USTAR = slice(_TAR_AT, _TAR_AT + 5)
_PACKED: dict[bytes, Callable[[Any], Any]] = {**UNPACKED, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
# Zip files that hold no logs: torch's checkpoints, numpy's arrays, Python's and Java's packages.
_OTHER_ZIPS = ("/data.pkl", ".npy", ".dist-info/WHEEL", "META-INF/MANIFEST.MF")
HEAD = 512  # bytes: one header of a tar
SPARSE_FLOOR, SPARSE_TIMES = 64 * 2**20, 16  # what a sparse member may claim to be, by what it holds


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive: how it is opened, or which member before it has the same content (a hard link).

    `size` is what it claims to unpack to, in bytes; a member that is no file has no way to be opened.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes] | None] | None
    same_as: str | None = None
    alone: bool = True  # what is wrong with it says nothing of those after it


def is_named_so(path: str) -> bool:
    """Return whether a name is an archive's."""
    return path.lower().endswith(_NAMES)


def may_be_archive(path: str) -> bool:
    """Return whether a file could be an archive, by its name and first bytes; of one that cannot be opened, its reader says why."""
    head = b""
    with suppress(OSError):
        head = _head(path)
    return is_named_so(path) or head[_USTAR] == b"ustar" or head.startswith((_ZIP, *_PACKED))


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its content; its name counts where the content is nothing that is read.

    `dumps.tar.old` is one, a log, dump or pack of the name `dumps.tar.gz` is none, a damaged `dumps.tar.gz` is one.
    """
    named = is_named_so(path)
    try:
        head = _head(path)
        if head.startswith(_ZIP):
            if named:
                return True
            with zipfile.ZipFile(path) as archive:
                return not any(name.endswith(_OTHER_ZIPS) for name in archive.namelist())
        with ExitStack() as cleanup:
            head = bytes(_plain(path, cleanup).read(HEAD))
    except Exception:  # damaged, or compressed by what is not installed: the reader says so
        return named
    return head[_USTAR] == b"ustar" or (named and sniff(head) in ("binary", "empty"))


def members(path: str, cleanup: ExitStack) -> Iterator[Member]:
    """Yield the members of an archive one by one; a tar's are opened before the next is asked for. Raises anything."""
    head = _head(path)
    is_tar = head[_USTAR] == b"ustar" or head.startswith(tuple(_PACKED))
    if head.startswith(_ZIP) or (path.lower().endswith(".zip") and not is_tar):
        archive = cleanup.enter_context(zipfile.ZipFile(path))
        for info in archive.infolist():
            opened = None if info.is_dir() else partial(archive.open, info)
            yield Member(info.filename, info.file_size, opened)
        return
    tar: Any = cleanup.enter_context(tarfile.TarFile.open(fileobj=_plain(path, cleanup), mode="r|"))
    for info in tar:
        tar.members = []  # it keeps them all, though the stream goes one way
        if info.isfile() or info.islnk():
            same_as = info.linkname if info.islnk() else None
            yield Member(info.name, _claimed(info), partial(tar.extractfile, info), same_as, False)
        else:
            yield Member(info.name, 0, None)


def _claimed(info: Any) -> int:
    """Return the size of a member; of one with holes that are much larger than what it holds, more than any limit."""
    if info.sparse is None or info.size <= SPARSE_FLOOR + SPARSE_TIMES * sum(size for _, size in info.sparse):
        return int(info.size)
    return 1 << 62


def _head(path: str) -> bytes:
    with open(path, "rb") as raw:
        return raw.read(HEAD)


def _plain(path: str, cleanup: ExitStack) -> Any:
    raw = cleanup.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes it)
    head = raw.read(8)
    raw.seek(0)
    opened = next((opened for magic, opened in _PACKED.items() if head.startswith(magic)), None)
    return raw if opened is None else cleanup.enter_context(opened(raw))
