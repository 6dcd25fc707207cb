"""What is in archives and behind links is read, each once, and one bad member costs only itself."""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.ingest.files.sources import find_files

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip", ".TAR.GZ")


def found(*paths: Path) -> tuple[dict[str, bytes], list[str]]:
    notes: list[Note] = []
    with find_files(paths, notes) as files:
        return {f.shown: Path(f.path).read_bytes() for f in files}, [n.code for n in notes]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "rank0.log").write_bytes(b"zero" * 300)
    return folder


def tar_of(folder: Path, to: Path) -> Path:
    with tarfile.open(to, "w") as tar:
        tar.add(folder, "job")
    return to


def test_hard_links_in_a_tar_are_files(job: Path, tmp_path: Path) -> None:
    os.link(job / "rank0.log", job / "rank1.log")
    files, notes = found(tar_of(job, tmp_path / "a.tar"))
    assert set(files) == {"a.tar!/job/rank0.log", "a.tar!/job/rank1.log"} and not notes
    assert len(set(files.values())) == 1


def test_linked_folders_are_followed_once(job: Path, tmp_path: Path) -> None:
    node = tmp_path / "elsewhere" / "node1"
    node.mkdir(parents=True)
    (node / "rank1.log").write_bytes(b"one")
    (job / "b").symlink_to(node)
    (job / "a").symlink_to(node)
    (node / "back").symlink_to(node.parent)
    (job / "up").symlink_to(tmp_path)
    (tmp_path / "foreign.log").write_bytes(b"x")
    files, notes = found(job)
    assert sorted(files) == ["a/rank1.log", "rank0.log"] and not notes


@pytest.mark.parametrize("name", ["dumps.tar.old", "dumps"])
def test_an_archive_is_known_by_its_content(job: Path, tmp_path: Path, name: str) -> None:
    plain = tar_of(job, tmp_path / name)
    packed = tmp_path / "dumps_tar.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with zipfile.ZipFile(tmp_path / "upload.bin", "w") as archive:
        archive.write(job / "rank0.log", "rank0.log")
    for path in (plain, packed, tmp_path / "upload.bin"):
        files, notes = found(path)
        assert [shown.split("!/")[0] for shown in files] == [path.name] and not notes


def test_other_zips_and_packed_logs_stay_as_they_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"x")
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(b"x" * 2000))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(2000))[:50])
    files, notes = found(tmp_path)
    assert set(files) == {"model.pt", "rank0.log.gz", "cut.gz"} and not notes


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_only_bears_an_archives_name_is_read_as_what_it_is(tmp_path: Path, suffix: str) -> None:
    contents = {
        "log": b"[rank0]: Traceback (most recent call last):\n" * 50,
        "short": b"x",
        "dump": pickle.dumps({"version": "2.10", "entries": []}, protocol=2),
        "json": b'{"version": "2.10", "entries": []}',
        "pack": b"\x89hangscope.pack 2\n" + bytes(600),
        "packed": gzip.compress(b"step 1\n" * 200),
    }
    for name, data in contents.items():
        (tmp_path / f"{name}{suffix}").write_bytes(data)
    files, notes = found(tmp_path)
    assert files == {f"{name}{suffix}": data for name, data in contents.items()} and not notes


@pytest.mark.parametrize("suffix", [".tar", ".zip", ".TAR.GZ"])
def test_an_archive_of_one_kind_under_the_name_of_another_is_unpacked(
    job: Path, tmp_path: Path, suffix: str
) -> None:
    plain = tar_of(job, tmp_path / "job-tar").read_bytes()
    with zipfile.ZipFile(tmp_path / "job-zip", "w") as archive:
        archive.write(job / "rank0.log", "job/rank0.log")
    for data in (plain, gzip.compress(plain), (tmp_path / "job-zip").read_bytes()):
        path = tmp_path / f"job{suffix}"
        path.write_bytes(data)
        files, notes = found(path)
        assert files == {f"job{suffix}!/job/rank0.log": b"zero" * 300} and not notes


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_archive_is_told_by_its_name(tmp_path: Path, suffix: str) -> None:
    for name, data in {"noise": bytes(range(256)) * 4, "nothing": b"", "zeros": bytes(100)}.items():
        (tmp_path / f"{name}{suffix}").write_bytes(data)
    files, notes = found(tmp_path)
    assert not files and set(notes) == {"bad_archive"}


def test_a_bad_member_ends_nothing(job: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../climbed", "out")
        archive.writestr("rank0.log", b"unique-content")
        archive.write(job / "rank0.log", "rank1.log")
    data = (tmp_path / "a.zip").read_bytes().replace(b"unique-content", b"Unique-content")
    (tmp_path / "a.zip").write_bytes(data)
    files, notes = found(tmp_path / "a.zip")
    assert "a.zip!/rank1.log" in files and notes == ["bad_member", "bad_member"]
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        tar.add(job / "rank0.log", "../climbed")
        tar.add(job / "rank0.log", "rank0.log")
    files, notes = found(tmp_path / "b.tar")
    assert list(files) == ["b.tar!/rank0.log"] and notes == ["bad_member"]
    (tmp_path / "c.tar").write_bytes((tmp_path / "b.tar").read_bytes()[:1800])
    assert found(tmp_path / "c.tar")[1] == ["bad_member", "bad_archive"]
