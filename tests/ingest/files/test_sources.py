"""Finding the files of an incident: archives inside archives, and paths that hold files of the same name."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

import hangscope
from hangscope.errors import Note
from hangscope.ingest.files import sources, unpacking
from hangscope.ingest.files.opening import open_plain


def _zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def _shown(*paths: Path) -> tuple[list[str], list[Note]]:
    notes: list[Note] = []
    with sources.find_files(paths, notes) as files:
        return [file.shown for file in files], notes


def test_archives_inside_archives_have_an_end(hang: Path, tmp_path: Path) -> None:
    data, name = b"x", "a.log"
    for _ in range(200):
        data, name = _zipped({name: data}), "a.zip"
    (tmp_path / "nest.zip").write_bytes(data)
    shown, notes = _shown(tmp_path / "nest.zip")
    assert shown == [] and "lies inside 4 archives" in notes[0].message
    assert hangscope.analyze([tmp_path / "nest.zip", hang]).status == "hang"


def test_an_archive_inside_an_archive_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(_zipped({"node1.zip": _zipped({"rank0.log": b"x"})}))
    assert _shown(tmp_path / "a.zip") == (["a.zip!/node1.zip!/rank0.log"], [])


def test_all_archives_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED", 15)
    for name in ("a.zip", "b.zip"):
        (tmp_path / name).write_bytes(_zipped({"x.log": b"0123456789"}))
    _, notes = _shown(tmp_path)
    assert [note.file for note in notes] == ["b.zip!/x.log"] and "may still be unpacked" in notes[0].message


def test_a_tar_of_several_zstd_frames_is_read_to_its_end(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "x.log").write_bytes(os.urandom(5000))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.add(tmp_path / "x.log", "x.log")
        tar.add(tmp_path / "x.log", "y.log")
    raw, compressor = plain.getvalue(), zstandard.ZstdCompressor()
    (tmp_path / "a.tar.zst").write_bytes(compressor.compress(raw[:3000]) + compressor.compress(raw[3000:]))
    assert _shown(tmp_path / "a.tar.zst") == (["a.tar.zst!/x.log", "a.tar.zst!/y.log"], [])


def test_files_of_two_paths_are_told_apart(tmp_path: Path) -> None:
    for folder, name in (
        ("node0", "worker.log"),
        ("node1", "worker.log"),
        ("node1", "x.log"),
        ("other", "y.log"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("x")
    folders = [tmp_path / "node0", tmp_path / "node1", tmp_path / "other"]
    assert _shown(*folders)[0] == ["node0/worker.log", "node1/worker.log", "node1/x.log", "y.log"]
    assert _shown(*folders[:2], folders[0])[0] == ["node0/worker.log", "node1/worker.log", "node1/x.log"]
    files = [tmp_path / "node0" / "worker.log", tmp_path / "node1" / "worker.log"]
    assert _shown(*files)[0] == ["node0/worker.log", "node1/worker.log"]


def test_as_many_parts_of_a_path_are_shown_as_tell_it_apart(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "dumps", tmp_path / "b" / "dumps"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "rank_0").write_text("x")
    assert _shown(*folders)[0] == ["a/dumps/rank_0", "b/dumps/rank_0"]


def test_a_gzip_file_is_closed_with_its_stream(tmp_path: Path) -> None:

    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x"))
    before = len(os.listdir("/proc/self/fd"))
    stream = open_plain(str(tmp_path / "a.gz"))
    assert stream.read() == b"x" and len(os.listdir("/proc/self/fd")) == before + 1
    stream.close()
    assert len(os.listdir("/proc/self/fd")) == before
