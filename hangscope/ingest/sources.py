"""Find the files of an incident: paths, folders, archives and URLs become an ordered list of files.

Archives are unpacked into a temporary folder that lives as long as the analysis; what a URL lists is fetched when it is
read. Names shown to people stay relative to the path that was given, so that a report says the same wherever it is made.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from hangscope.errors import NoSuchPathError, Note
from hangscope.ingest import archives, remote

_NESTED = 8  # archives within archives


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

    given = os.path.realpath(folder)
    visited: set[str] = set()
    links = [folder]
    for start in links:  # grows: what is linked comes after what lies here, and each folder once
        for base, folders, names in os.walk(start, onerror=unreadable):
            real = os.path.realpath(base)
            if real in visited or (base != folder and _holds(real, given)):
                folders.clear()
                continue
            visited.add(real)
            folders[:] = sorted(f for f in folders if f not in (".git", "__pycache__"))
            links += [path for f in folders if os.path.islink(path := os.path.join(base, f))]
            for name in sorted(names):
                path = os.path.join(base, name)
                yield from _one(path, prefix + os.path.relpath(path, folder), notes, cleanup)


def _holds(folder: str, other: str) -> bool:
    """Return whether a folder is another one or above it: a link up there would bring in what was not given."""
    return os.path.commonpath([folder, other]) == folder


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
    elif archives.is_archive(path):
        yield from _unpack(path, shown, notes, cleanup)
    else:
        yield SourceFile(path, shown, info.st_size)


def _unpack(path: str, shown: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    if shown.count("!/") >= _NESTED:
        notes.append(Note("bad_archive", "lies in too many archives and was not unpacked", shown))
        return
    folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="hangscope-"))
    archives.unpack(path, folder, shown, notes)
    yield from _walk(folder, f"{shown}!/", notes, cleanup)


def _fetch(url: str, notes: list[Note], cleanup: ExitStack) -> Iterator[SourceFile]:
    """Yield the files below a URL; only archives are fetched now, as what is in them must be known."""
    for address, shown, size in remote.listed(url):
        if not archives.is_named_so(shown):
            yield SourceFile(address, shown, size)
            continue
        try:
            copy = cleanup.enter_context(remote.local_copy(address))
        except OSError as error:
            notes.append(Note("unreadable", f"could not be fetched: {error}", shown))
            continue
        yield from _unpack(copy, shown, notes, cleanup)
