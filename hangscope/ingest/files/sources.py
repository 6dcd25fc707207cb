"""Find the files of an incident: paths, folders, archives and URLs become an ordered list of files.

Archives are unpacked (`unpacking.py`) for as long as the analysis lasts; what a URL lists is fetched when it is read.
Names shown to people stay relative to the path that was given, so that a report says the same wherever it is made.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache

from hangscope.errors import NoSuchPathError, Note
from hangscope.ingest.files import remote, run_evidence, scratch
from hangscope.ingest.files.archives import is_named_so, may_be_archive
from hangscope.ingest.files.run_evidence import RunEvidence
from hangscope.ingest.files.unpacking import Unpacking
from hangscope.model.dataclass import dataclass

MAX_DEPTH = 4  # archives inside archives


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read: where it lies (a local path or a URL), how it is shown, its size in bytes, and when it was last written.

    That time is in seconds since the epoch, None where it is not known. Copies are younger than what they are of, and never older.
    """

    path: str
    shown: str
    size: int
    written: float | None = None


@contextmanager
def find_files(
    paths: Iterable[str | os.PathLike[str]], notes: list[Note], *, max_unpacked: int | None = None
) -> Iterator[list[SourceFile]]:
    """Yield every regular file below `paths`, ordered by the name that is shown.

    `max_unpacked` is the most that archives may unpack to, in bytes (default: see `Unpacking`). Appends a Note for each thing that cannot be opened or is no regular file. Raises NoSuchPathError for a path
    that does not exist.
    """
    with ExitStack() as cleanup:
        search = _Search(notes, cleanup, max_unpacked)
        seen: set[str] = set()
        per_path: list[tuple[str, list[SourceFile]]] = []
        for given in paths:
            path, files = os.fspath(given), []
            for file in search.expand(path):
                place = file.path if remote.is_remote(file.path) else os.path.realpath(file.path)
                if place not in seen:
                    seen.add(place)
                    files.append(file)
            per_path.append((path, files))
        yield sorted(_distinguished(per_path), key=lambda f: f.shown)


class _Search:
    """One search: what could not be opened, and the archives that were unpacked in it."""

    def __init__(self, notes: list[Note], cleanup: ExitStack, max_unpacked: int | None) -> None:
        self._notes, self._cleanup = notes, cleanup
        self._unpacking = Unpacking(max_unpacked)
        self._scratch: str | None = None
        self._archives = 0

    def expand(self, path: str) -> Iterator[SourceFile]:
        """Yield the files of one path that was given."""
        if path == scratch.STANDARD_INPUT:
            copy = scratch.copy_of_input(self._cleanup, self._notes)
            yield from self._one(copy, scratch.SHOWN, 0)
        elif remote.is_remote(path):
            yield from self._fetch(path)
        elif os.path.isdir(path):
            yield from self._walk(path, "", 0)
        elif os.path.lexists(path):
            yield from self._one(path, os.path.basename(path), 0)
        else:
            hint = "check the spelling, or whether the job wrote elsewhere"
            raise NoSuchPathError(f"there is no file or folder {path!r}", hint)

    def _walk(self, folder: str, prefix: str, depth: int) -> Iterator[SourceFile]:
        """Yield the files of a folder that lies inside `depth` archives."""

        def unreadable(error: OSError) -> None:
            shown = prefix + os.path.relpath(str(error.filename), folder)
            self._note("unreadable", f"the folder cannot be listed: {error.strerror}", shown)

        given = os.path.realpath(folder)
        visited: set[str] = set()
        runs: dict[str, RunEvidence] = {}
        links = [folder]
        for start in links:  # grows: what is linked comes after what lies here, and each folder once
            if start != folder and os.path.realpath(start) in visited:
                continue
            for base, folders, names in os.walk(start, onerror=unreadable):
                real = os.path.realpath(base)
                if real in visited or (base != folder and _holds(real, given)):
                    folders.clear()
                    continue
                visited.add(real)
                passed = {".git", "__pycache__"} | run_evidence.passed_over(base, folders)
                for later in sorted(f for f in passed & {*folders} if f.startswith(run_evidence.LATER)):
                    where = prefix + os.path.relpath(os.path.join(base, later), folder)
                    text = "a later run of the job, with a report of its own, is not read"
                    self._note("later_run", text, where)
                folders[:] = sorted(f for f in folders if f not in passed)
                if run_evidence.NAME in names and (listed := run_evidence.read_evidence(base)) is not None:
                    runs[base] = listed
                links += [path for f in folders if os.path.islink(path := os.path.join(base, f))]
                for name in sorted(names):
                    path = os.path.join(base, name)
                    shown = prefix + os.path.relpath(path, folder)
                    run = next((top for top in runs if _holds(top, base)), None)
                    below = os.path.relpath(path, run) if run is not None else ""
                    if run_evidence.is_unfinished(name):
                        continue
                    if run is None or not runs[run].covers(below):
                        yield from self._one(path, shown, depth)
                    elif below in runs[run].files:
                        yield from self._as_it_was(path, shown, *runs[run].files[below])

    def _one(self, path: str, shown: str, depth: int) -> Iterator[SourceFile]:
        shown = os.fsencode(shown).decode("utf-8", "replace")  # a name is bytes, and need not be UTF-8
        try:
            info = os.stat(path)
        except OSError as error:
            self._note("unreadable", f"cannot be opened: {error.strerror}", shown)
            return
        if not stat.S_ISREG(info.st_mode):
            self._note("not_a_file", "is a pipe, socket or device and was not read", shown)
        elif info.st_dev in _kernels_own():
            self._note("not_a_file", "is a file of the kernel (/proc, /sys) and was not read", shown)
        elif not may_be_archive(path):
            yield SourceFile(path, shown, info.st_size, info.st_mtime)
        elif depth >= MAX_DEPTH and is_named_so(path):
            self._note("bad_archive", f"lies inside {depth} archives and was not unpacked", shown)
        elif depth >= MAX_DEPTH or (folder := self._unpacked(path, shown)) is None:
            yield SourceFile(path, shown, info.st_size)
        else:
            yield from self._walk(folder, f"{shown}!/", depth + 1)

    def _as_it_was(self, path: str, shown: str, size: int, written: float) -> Iterator[SourceFile]:
        """Yield a file of a run as its report read it: its first `size` bytes, from a copy if it has grown since."""
        try:
            if os.stat(path).st_size > size:
                copy = os.path.join(self._new_folder(), "0")
                with open(path, "rb") as source, open(copy, "xb") as target:
                    while size > target.tell() and (data := source.read(min(1 << 20, size - target.tell()))):
                        target.write(data)
                path = copy
        except OSError as error:
            self._note("unreadable", f"cannot be opened: {error.strerror}", shown)
            return
        yield SourceFile(path, shown, size, written)

    def _new_folder(self) -> str:
        """Return a new temporary folder, which goes with the search. Raises OSError."""
        if self._scratch is None:
            self._scratch = self._cleanup.enter_context(scratch.scratch_folder())
            self._cleanup.callback(self._unpacking.close)  # before the folder goes
        self._archives += 1
        folder = os.path.join(self._scratch, str(self._archives))
        os.mkdir(folder)
        return folder

    def _unpacked(self, path: str, shown: str) -> str | None:
        try:
            folder = self._new_folder()
        except OSError as error:
            text = f"there is no room to unpack it: {error.strerror or error}"
            self._note("bad_archive", text, shown, "set TMPDIR")
            return None
        return folder if self._unpacking.unpack(path, folder, shown, self._notes) else None

    def _fetch(self, url: str) -> Iterator[SourceFile]:
        """Yield the files below a URL; only archives are fetched now, as what is in them must be known."""
        lost: list[str] = []
        for address, shown, size in remote.listed(url, lost):
            if not is_named_so(shown):
                yield SourceFile(address, shown, size)
                continue
            try:
                copy = self._cleanup.enter_context(remote.local_copy(address))
            except OSError as error:
                self._note("unreadable", f"could not be fetched: {error}", shown)
                continue
            if (folder := self._unpacked(copy, shown)) is not None:
                yield from self._walk(folder, f"{shown}!/", 1)
            else:
                yield SourceFile(address, shown, size)
        for why in lost:
            self._note("unreadable", f"a folder below it cannot be listed: {why}", url)

    def _note(self, code: str, message: str, shown: str, hint: str = "") -> None:
        self._notes.append(Note(code, message, shown, hint=hint))


@cache
def _kernels_own() -> frozenset[int]:
    """Return the devices of file systems whose files are the kernel's answers: reading one may block, or never end."""
    found = set()
    for folder in ("/proc", "/sys", "/sys/kernel/debug", "/sys/kernel/tracing"):
        with suppress(OSError):
            if os.path.ismount(folder):
                found.add(os.stat(folder).st_dev)
    return frozenset(found)


def _holds(folder: str, other: str) -> bool:
    """Return whether a folder is another one or above it: a link up there would bring in what was not given."""
    return os.path.commonpath([folder, other]) == folder


def _distinguished(per_path: list[tuple[str, list[SourceFile]]]) -> list[SourceFile]:
    """Return the files of all paths; where paths have a file's name in common, their own last parts go before it."""
    count = Counter(shown for _, files in per_path for shown in {file.shown for file in files})
    clashing = [n for n, (_, files) in enumerate(per_path) if any(count[f.shown] > 1 for f in files)]
    prefixes = dict(zip(clashing, _last_parts([_folder(*per_path[n]) for n in clashing]), strict=True))
    return [
        replace(file, shown=f"{prefixes[number]}/{file.shown}") if number in prefixes else file
        for number, (_, files) in enumerate(per_path)
        for file in files
    ]


def _folder(path: str, files: list[SourceFile]) -> str:
    if remote.is_remote(path):
        path = path.rstrip("/")
        return os.path.dirname(path) if any(file.path == path for file in files) else path
    path = os.path.abspath(path)
    return path if os.path.isdir(path) else os.path.dirname(path)


def _last_parts(folders: list[str]) -> list[str]:
    """Return for each folder as few of its last parts as tell them all apart; equal folders get a number."""
    parts = [[part for part in folder.split("/") if part] or ["root"] for folder in folders]
    names: list[str] = []
    for length in range(1, 1 + max(map(len, parts), default=0)):
        names = ["/".join(own[-length:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{number} {name}" for number, name in enumerate(names, start=1)]
