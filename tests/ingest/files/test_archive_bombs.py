"""Archives that ask for memory, disk, members or time without end: a note each, in a child, and the rest is read."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.ingest.files import unpacking
from hangscope.ingest.files.opening import UNPACKED, open_plain
from hangscope.ingest.files.scratch import PREFIX, scratch_folder
from hangscope.ingest.files.sources import find_files
from hangscope.ingest.workers.reader import read_file


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def found(path: Path, **options: int) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the files that are found, with their sizes, and the notes; within what a bomb may cost the parent."""
    notes: list[Note] = []
    began, before = time.monotonic(), _peak()
    with find_files([path], notes, **options) as files:
        shown = [(f.shown, f.size) for f in files]
    assert time.monotonic() - began < 30 and _peak() - before < 50_000
    return shown, [str(n) for n in notes]


def _peak() -> int:
    """Return the most memory that this process has had, in kB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("././@" + kind.decode())
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_gigabytes_costs_the_child_alone(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    with path.open("wb") as out:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        with tarfile.open(fileobj=(good := io.BytesIO()), mode="w") as tar:
            info = tarfile.TarInfo("rank0.log")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"one"))
        out.write(packer.compress(good.getvalue()[:1024] + _header(kind, 3 << 30)))
        for _ in range(2):
            more = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
            out.write(more)
        out.write(more * 1200)  # of three gigabytes; the child's limit is one
    assert path.stat().st_size < 2_000_000
    files, notes = found(path)
    assert files == [("a.tar.gz!/rank0.log", 3)]
    assert len(notes) == 1 and "more memory than an archive may take" in notes[0]


def test_a_zip_bomb_is_stopped_where_its_size_justifies_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "UNPACKED_FLOOR", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.log", b"one")
        for number in range(5):
            archive.writestr(f"bomb{number}", bytes(600_000))
    files, notes = found(tmp_path / "a.zip")
    assert [size for _, size in files] == [600_000, 3]
    assert "unpack to more than" in " ".join(notes) and "--max-unpacked" in " ".join(notes)
    assert len(found(tmp_path / "a.zip", max_unpacked=4_000_000)[0]) == 6


def test_a_zip_that_lies_about_a_size_is_stopped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(600_000))
    data = (
        (tmp_path / "a.zip").read_bytes().replace((600_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    )
    (tmp_path / "a.zip").write_bytes(data)
    files, notes = found(tmp_path / "a.zip", max_unpacked=1000)
    assert all(size <= 1000 for _, size in files) and notes


def test_a_zstd_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    monkeypatch.setattr(unpacking, "UNPACKED_FLOOR", 1 << 20)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("bomb")
        info.size = 5 << 20
        tar.addfile(info, io.BytesIO(bytes(5 << 20)))
    (tmp_path / "a.tar.zst").write_bytes(zstandard.compress((tmp_path / "a.tar").read_bytes(), 19))
    (tmp_path / "a.tar").unlink()
    files, notes = found(tmp_path / "a.tar.zst")
    assert files == [] and "claims more than" in notes[0]


def test_a_sparse_member_that_claims_a_terabyte_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge")
    info.size = 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:398], header[398:410] = b"00000000000\0", b"00000001000\0"  # one block at the start
    header[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    good = tarfile.TarInfo("rank0.log")
    good.size = 3
    (tmp_path / "a.tar").write_bytes(
        bytes(header) + b"x" * 512 + good.tobuf(tarfile.GNU_FORMAT) + b"one".ljust(512, b"\0") + bytes(1024)
    )
    files, notes = found(tmp_path / "a.tar")
    assert files == [("a.tar!/rank0.log", 3)]
    assert len(notes) == 1 and "may still be unpacked" in notes[0]


def test_members_without_end_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 50)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for number in range(45):
            tar.addfile(tarfile.TarInfo(f"{number:03}.log"))
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        for number in range(3000):
            info = tarfile.TarInfo(f"{number:04}")
            info.type = tarfile.DIRTYPE if number % 2 else tarfile.REGTYPE
            tar.addfile(info)
    files, notes = found(tmp_path)
    assert len(files) == 45 + 3 + 0 and "more than 5 members" in " ".join(notes)


def test_a_name_of_many_folders_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a/" * 500 + "x"))
        tar.addfile(tarfile.TarInfo("n" * 100_000))
        tar.addfile(tarfile.TarInfo("rank0.log"))
    files, notes = found(tmp_path / "a.tar")
    assert files == [("a.tar!/rank0.log", 0)] and len(notes) == 2 and max(map(len, notes)) < 800


def test_an_unpacker_that_is_late_is_called_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "DEADLINE", 0.0)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("rank0.log"))
    (tmp_path / "b.log").write_text("x")
    files, notes = found(tmp_path)
    assert ("b.log", 1) in files and "was not unpacked within 0 seconds" in notes[0]


def test_an_unpacker_that_dies_is_told_and_the_next_archive_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.tar", "b.tar"):
        with tarfile.open(tmp_path / name, "w") as tar:
            tar.addfile(tarfile.TarInfo("rank0.log"))
    notes: list[Note] = []
    unpacker, number = unpacking.Unpacking(), 0
    with scratch_folder() as folder:
        assert unpacker.unpack(str(tmp_path / "a.tar"), folder, "a.tar", notes)
        assert unpacker._child is not None
        unpacker._child.kill()
        unpacker._child.wait()
        for number in (1, 2):
            os.mkdir(f"{folder}/{number}")
            assert unpacker.unpack(str(tmp_path / "b.tar"), f"{folder}/{number}", "b.tar", notes)
            assert os.listdir(f"{folder}/{number}") == ["rank0.log"]
        unpacker.close()
    assert notes == []


def test_gzip_without_content_ends_early(tmp_path: Path) -> None:
    """Two million empty members, or a name of a hundred megabytes in the header, took minutes."""
    path = tmp_path / "rank0.log.gz"
    path.write_bytes(gzip.compress(b"") * 300_000)
    began = time.process_time()
    assert read_file(str(path), "rank0.log.gz")["status"] == "failed"
    header = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"n" * 30_000_000 + b"\0"
    path.write_bytes(header + gzip.compress(b"one\n", mtime=0)[10:])
    with open_plain(str(path)) as stream:
        assert stream.read() == b"one\n"
    assert time.process_time() - began < 5


def test_gzip_is_read_as_the_gzip_module_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    content = os.urandom(200_000) + b"x" * 3_000_000
    path.write_bytes(gzip.compress(content) + gzip.compress(b"") + gzip.compress(b"end") + bytes(1000))
    with open_plain(str(path)) as stream:
        assert stream.read(10) == content[:10]
        stream.seek(0)
        assert stream.read() == content + b"end"
    path.write_bytes(gzip.compress(content)[:-2000])
    with open_plain(str(path)) as stream, pytest.raises(EOFError):
        stream.read()
    path.write_bytes(gzip.compress(content) + b"garbage")
    with open_plain(str(path)) as stream, pytest.raises(OSError, match="not whole as gzip"):
        stream.read()


def test_a_packed_log_that_unpacks_without_end_is_read_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangscope.ingest.files.opening.UNPACKED_FLOOR", 1 << 20)
    monkeypatch.setattr("hangscope.ingest.files.opening.UNPACKED_TIMES", 2)
    path = tmp_path / "rank0.log.gz"
    path.write_bytes(gzip.compress(b"step 1 loss 2.0\n" * 500_000))
    told = read_file(str(path), "rank0.log.gz")
    assert told["kind"] == "log" and "does not justify" in str(told["log"]["notes"])
    assert UNPACKED[b"\x1f\x8b"](path.open("rb")).read(16) == b"step 1 loss 2.0\n"


def test_what_a_killed_process_left_is_removed_by_the_next(own_temporary_folder: Path) -> None:
    left, young, foreign = (
        own_temporary_folder / name for name in (PREFIX + "old", PREFIX + "young", "other")
    )
    for folder in (left, young, foreign):
        (folder / "deep").mkdir(parents=True)
    os.utime(left, (1, 1))
    os.utime(foreign, (1, 1))
    with scratch_folder() as running:
        os.utime(running, (1, 1))
        with scratch_folder():
            assert Path(running).is_dir() and young.is_dir() and foreign.is_dir() and not left.exists()
    for folder in (young, foreign):
        (folder / "deep").rmdir()
        folder.rmdir()
