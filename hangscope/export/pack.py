"""`hangscope pack`: reduce a node's dumps and logs to one small file that is read in their place (`ingest/recorder/pack_file.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from hangscope.errors import NoInputError, Note
from hangscope.export import output as outputs
from hangscope.ingest.files.sniff import PACK
from hangscope.ingest.recorder.pack_file import Entry, write_pack
from hangscope.ingest.workers.reader import DEFAULT_MAX_BYTES
from hangscope.model.dataclass import dataclass

KIND = "pack of hangscope"


@dataclass(frozen=True, slots=True)
class Packed:
    """What was packed: how many files of how many bytes, into how many, and what could not be opened."""

    files: int
    bytes_before: int
    bytes_after: int
    notes: tuple[Note, ...]


def pack(
    paths: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_unpacked: int | None = None,
    force: bool = False,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> Packed:
    """Write what the files below `paths` say to the pack `output`, and return what was packed.

    The pack appears whole or not at all. `progress(files, of, bytes, of)` is called as reading goes on. Raises
    NoInputError where there are no files, UsageError where `output` is a file that is no pack and `force`
    is not given, OSError where it cannot be written.
    """
    from hangscope.ingest.files.sources import find_files
    from hangscope.ingest.workers.pool import read_files

    target = Path(output)
    outputs.check(target, _is_pack, KIND, force=force)
    notes: list[Note] = []
    with find_files(paths, notes, max_unpacked=max_unpacked) as found:
        files = [f for f in found if os.path.realpath(f.path) != os.path.realpath(target)]
        if not files:
            hint = "point hangscope at the folder that the job's dumps and logs were written to"
            raise NoInputError("there are no files to pack", hint)
        total = sum(f.size for f in files)
        named = [replace(f, shown=f"{target.name}/{f.shown}") for f in files]
        entries: list[Entry] = []
        for file, wire in read_files(named, jobs=jobs, max_bytes=max_bytes, progress=progress):
            packed_before = wire.pop("files", None)
            entries += [(file.shown, file.size, wire)] if packed_before is None else packed_before
    entries.sort(key=lambda entry: entry[0])
    size = outputs.write_file(target, lambda out: write_pack(out, entries), _is_pack, KIND, force=force)
    return Packed(len(files), total, size, tuple(notes))


def _is_pack(path: Path) -> bool:
    return outputs.head_of(path, len(PACK)) == PACK
