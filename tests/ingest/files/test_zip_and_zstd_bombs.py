"""Zip and zstd files that ask for memory, bytes, entries or frames without end, against the whole path that a file takes."""

from __future__ import annotations

import io
import resource
import struct
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hangscope
from hangscope.errors import Note
from hangscope.ingest.files import unpacking
from hangscope.ingest.files.sources import find_files
from hangscope.ingest.workers.reader import read_file

DEATH = b"[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: sample 37 is broken\n"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """None of them may cost the parent memory, or anybody minutes."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - began < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def told(path: Path, **options: int) -> tuple[list[str], str]:
    """Return the names of what is found below a path, and all notes in one text."""
    notes: list[Note] = []
    with find_files([path], notes, **options) as files:
        return [file.shown for file in files], " ".join(map(str, notes))


def overlapping(entries: int, size: int) -> bytes:
    """Return a zip of which every entry is the same few bytes, that unpack to `size` each."""
    with zipfile.ZipFile(one := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kernel000000", bytes(size))
    data = one.getvalue()
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    central = bytearray(data[at:end])
    rows = []
    for number in range(entries):
        central[46 : 46 + 12] = b"kernel%06d" % number
        rows.append(bytes(central))
    directory = b"".join(rows)
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, entries, entries, len(directory), at, 0)
    return data[:at] + directory + tail


@pytest.mark.slow
def test_entries_that_share_their_bytes_count_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip whose entries overlap unpacks to any size; Python refuses other names, the budget the rest."""
    monkeypatch.setattr(unpacking, "UNPACKED_FLOOR", 10 << 20)
    (tmp_path / "a.zip").write_bytes(overlapping(30_000, 1 << 20))
    files, notes = told(tmp_path / "a.zip")
    assert len(files) <= 11 and ("could not be unpacked" in notes or "unpack to more than" in notes)


@pytest.mark.slow
def test_a_directory_of_more_entries_than_may_be_is_cut_off(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(5000):
            archive.writestr(f"{number:05}", b"")
    files, notes = told(tmp_path / "a.zip")
    assert len(files) == 5000 and not notes


def test_more_entries_than_members_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 100)
    (tmp_path / "a.zip").write_bytes(overlapping(60_000, 0))
    files, notes = told(tmp_path / "a.zip")
    assert len(files) <= 100 and ("more than 100 members" in notes or "could not be unpacked" in notes)


def test_a_size_of_zip64_that_no_disk_has_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        with archive.open("bomb", "w", force_zip64=True) as out:
            out.write(b"x" * 10)
        archive.writestr("rank1.log", DEATH)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = b"\xff\xff\xff\xfe"  # 4 GB, of ten bytes
    (tmp_path / "a.zip").write_bytes(data)
    files, notes = told(tmp_path / "a.zip", max_unpacked=1 << 20)
    assert files == ["a.zip!/rank1.log"] and "claims more than" in notes


def test_zips_within_zips_end_at_the_depth(tmp_path: Path) -> None:
    data = DEATH
    name = "rank1.log"
    for depth in range(9):
        with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
            for copy in range(2):
                archive.writestr(f"{copy}-{name}", data)
        data, name = out.getvalue(), f"{depth}.zip"
    (tmp_path / "a.zip").write_bytes(data)
    files, notes = told(tmp_path / "a.zip")
    assert files == [] and notes.count("lies inside 4 archives") == 2**4


@pytest.mark.slow
def test_a_whole_zip_bomb_beside_a_job(tmp_path: Path) -> None:
    """Of ten gigabytes, in ten megabytes: what came before the limit is analysed, and so is the rest of the folder."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank1.log", DEATH)
        for number in range(3):
            with archive.open(f"bomb{number}", "w") as out:
                for _ in range(100):
                    out.write(bytes(1 << 20))
    (tmp_path / "rank0.log").write_text("[rank0]: step 3\n")
    report = hangscope.analyze(tmp_path, max_unpacked=150 << 20)
    assert report.verdict is not None and report.verdict.culprit_ranks == (1,)
    assert "unpack to more than" in " ".join(str(w) for w in report.warnings)


zstandard = pytest.importorskip("zstandard")


def test_a_zstd_log_that_unpacks_without_end_is_read_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangscope.ingest.files.opening.UNPACKED_FLOOR", 8 << 20)
    path = tmp_path / "rank1.log.zst"
    packer = zstandard.ZstdCompressor(level=19).compressobj()
    with path.open("wb") as out:
        out.write(packer.compress(DEATH))
        for _ in range(200):
            out.write(packer.compress(b"step 1 loss 2.0\n" * (1 << 16)))
        out.write(packer.flush())
    assert path.stat().st_size < 100_000
    answer = read_file(str(path), path.name)
    assert "does not justify" in str(answer)


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    """A frame's header may ask for two gigabytes before the first byte is there."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0x00, (31 - 10) << 3])  # no content size; windowLog 31
    block = struct.pack("<I", 1 | (3 << 3))[:3] + b"log"  # the last block, raw, three bytes
    for name in ("rank1.log.zst", "job.tar.zst"):
        (tmp_path / name).write_bytes(header + block)
    (tmp_path / "rank0.log").write_bytes(DEATH.replace(b"rank1", b"rank0"))
    report = hangscope.analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (0,)
    warned = {w.file for w in report.warnings}
    assert warned == {"rank1.log.zst", "job.tar.zst"}


@pytest.mark.parametrize("frame", ["empty", "skippable"])
def test_frames_without_content_end(tmp_path: Path, frame: str) -> None:
    empty = zstandard.compress(b"")
    frames = empty if frame == "empty" else struct.pack("<II", 0x184D2A50, 0)
    path = tmp_path / "rank1.log.zst"
    path.write_bytes(empty + frames * 500_000 + zstandard.compress(DEATH))
    began = time.process_time()
    read_file(str(path), path.name)
    assert time.process_time() - began < 20


def test_a_frame_that_lies_about_its_content_is_a_note(tmp_path: Path) -> None:
    data = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(DEATH * 10))
    data[6] ^= 0x40  # its claimed size
    (tmp_path / "rank1.log.zst").write_bytes(data)
    answer = read_file(str(tmp_path / "rank1.log.zst"), "rank1.log.zst")
    assert answer["status"] == "failed" or answer["notes"] or answer["log"]["notes"]
