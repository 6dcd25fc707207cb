"""Find the files of an incident: paths, folders, archives and URLs become an ordered list of files.

Archives are unpacked into a temporary folder that lives as long as the analysis; what a URL lists is fetched when it is
read. Names shown to people stay relative to the path that was given, so that a report says the same wherever it is made.
"""

from __future__ import annotations

import os
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hangscope.errors import NoSuchPathError, Note
from hangscope.ingest import remote

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
MAX_UNPACKED = 64 * 2**30


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read: where it lies (a local path or a URL), how it is shown, and its size in bytes."""

    path: str
    shown: str
    size: int


@contextmanager
def find_files(paths: Iterable[str | os.PathLike[str]], notes: list[Note]) -> Iterator[list[SourceFile]]:
    """Yield every regular file below `paths`, ordered by the name that is shown.

    Appends a Note for each thing that cannot be opened or is no regular file. Raises NoSuchPathError for a path
    that does not exist.
    """
    with ExitStack() as cleanup:
        found: dict[str, SourceFile] = {}
        for path in paths:
            for file in _expand(os.fspath(path), notes, cleanup):
                found.setdefault(
                    file.path if remote.is_remote(file.path) else os.path.realpath(file.path), file
                )
        yield sorted(found.values(), key=lambda f: f.shown)


def _expand(path: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    if remote.is_remote(path):
        yield from _fetch(path, notes, cleanup)
    elif os.path.isdir(path):
        yield from _walk(path, "", notes, cleanup)
    elif os.path.lexists(path):
        yield from _one(path, os.path.basename(path), notes, cleanup)
    else:
        raise NoSuchPathError(
            f"there is no file or folder {path!r}", "check the spelling, or whether the job wrote elsewhere"
        )


def _walk(folder: str, prefix: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    def unreadable(error: OSError) -> None:
        notes.append(
            Note(
                "unreadable",
                f"the folder cannot be listed: {error.strerror}",
                _relative(error.filename, folder),
            )
        )

    for base, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
        for name in sorted(names):
            path = os.path.join(base, name)
            yield from _one(path, prefix + os.path.relpath(path, folder), notes, cleanup)


def _relative(path: Any, folder: str) -> str:
    return os.path.relpath(str(path), folder)


def _one(path: str, shown: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    shown = os.fsencode(shown).decode("utf-8", "replace")  # a name is bytes, and need not be UTF-8
    try:
        info = os.stat(path)
    except OSError as error:
        notes.append(Note("unreadable", f"cannot be opened: {error.strerror}", shown))
        return
    if not stat.S_ISREG(info.st_mode):
        notes.append(Note("not_a_file", "is a pipe, socket or device and was not read", shown))
    elif path.lower().endswith(_ARCHIVES):
        yield from _unpack(path, shown, notes, cleanup)
    else:
        yield SourceFile(path, shown, info.st_size)


def _unpack(path: str, shown: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="hangscope-"))
    try:
        if path.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                _copy_members(
                    (
                        (m.filename, m.file_size, archive.open(m))
                        for m in archive.infolist()
                        if not m.is_dir()
                    ),
                    folder,
                )
        else:
            with _open_tar(path, cleanup) as tar:
                _copy_members(((m.name, m.size, tar.extractfile(m)) for m in tar if m.isfile()), folder)
    except (
        Exception
    ) as error:  # a damaged archive can make these modules raise anything, TypeError from tarfile included
        notes.append(
            Note(
                "bad_archive",
                f"the archive could not be read to its end: {error}",
                shown,
                hint="what came before that point is analysed",
            )
        )
    yield from _walk(folder, f"{shown}!/", notes, cleanup)


def _open_tar(path: str, cleanup: ExitStack) -> tarfile.TarFile:
    if not path.lower().endswith(".zst"):
        return tarfile.open(path, "r|*")
    try:
        import zstandard
    except ImportError:
        raise ImportError(
            "reading .zst needs the `zstandard` package: pip install 'hangscope[zstd]'"
        ) from None
    raw = cleanup.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes it)
    return tarfile.open(fileobj=zstandard.ZstdDecompressor().stream_reader(raw), mode="r|")


def _copy_members(members: Iterable[tuple[str, int, IO[bytes] | None]], folder: str) -> None:
    """Write archive members below `folder`; a name that climbs out of it is refused, and so is a bomb."""
    written = 0
    root = os.path.realpath(folder)
    for name, _, stream in members:
        target = os.path.realpath(os.path.join(root, name.lstrip("/")))
        if stream is None or not target.startswith(root + os.sep):
            raise ValueError(f"member {name!r} points outside the archive")
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as out:
            while chunk := stream.read(1 << 20):
                written += len(chunk)
                if written > MAX_UNPACKED:
                    raise ValueError(f"the archive unpacks to more than {MAX_UNPACKED >> 30} GiB")
                out.write(chunk)


def _fetch(url: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    """Yield the files below a URL; only archives are fetched now, as what is in them must be known."""
    for address, shown, size in remote.listed(url):
        if not shown.lower().endswith(_ARCHIVES):
            yield SourceFile(address, shown, size)
            continue
        try:
            copy = cleanup.enter_context(remote.local_copy(address))
        except OSError as error:
            notes.append(Note("unreadable", f"could not be fetched: {error}", shown))
            continue
        yield from _unpack(copy, shown, notes, cleanup)
