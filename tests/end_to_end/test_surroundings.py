"""Disks that fail, files that change or go while they are read, no room for temporary files, no threads: each is one clear message."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import hangscope
from tests.conftest import analyze
from tests.in_thread import InThisThread

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

pytestmark = pytest.mark.slow


def copied(hang: Path, folder: Path) -> Path:
    shutil.copytree(hang, folder / "job")
    return folder / "job"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
@pytest.mark.parametrize("name", ["noise.log", "nccl_trace_rank_1", "job.tar.gz"])
def test_a_file_whose_reading_fails_costs_itself(hang: Path, tmp_path: Path, name: str) -> None:
    """/proc/self/mem calls itself a regular file, and its first byte is an input/output error: it is not opened."""
    job = copied(hang, tmp_path)
    (job / name).unlink(missing_ok=True)
    (job / name).symlink_to("/proc/self/mem")
    report = hangscope.analyze(job)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    told = [w for w in report.warnings if w.file == name]
    assert told and "a file of the kernel" in " ".join(w.message for w in told)


class Flaky(LocalFileSystem):  # type: ignore[misc]
    """A file system whose n-th operation fails, as over a network whose server has been restarted."""

    protocol = "flaky"
    cachable = False
    left = 0

    def _count(self) -> None:
        Flaky.left -= 1
        if Flaky.left == 0:
            raise OSError(errno.ESTALE, "Stale file handle")

    def info(self, path: str, **options: Any) -> Any:
        self._count()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        self._count()
        return super().ls(path, detail=detail, **options)

    def get_file(self, *args: Any, **options: Any) -> Any:
        self._count()
        return super().get_file(*args, **options)

    def _open(self, *args: Any, **options: Any) -> Any:
        self._count()
        return super()._open(*args, **options)


@pytest.mark.parametrize("operation", range(1, 14))
def test_a_remote_file_system_may_fail_at_any_moment(hang: Path, operation: int) -> None:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.left = operation
    try:
        report = hangscope.analyze(f"flaky://{hang}")
    except hangscope.HangscopeError as error:
        assert "Stale file handle" in error.message or "there is nothing" in error.message
        return
    told = [w for w in report.warnings if "Stale file handle" in w.message]
    assert told or Flaky.left > 0
    assert report.verdict is None or set(report.verdict.culprit_ranks) <= {2}


class Breaking(LocalFileSystem):  # type: ignore[misc]
    """A file system that loses its handle in the middle of one file: half of it is there, and an error."""

    protocol = "breaking"
    cachable = False
    name = ""

    def get_file(self, path: str, copy: str, **options: Any) -> None:
        super().get_file(path, copy, **options)
        if os.path.basename(path) == Breaking.name:
            os.truncate(copy, os.path.getsize(copy) // 2)
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", ["nccl_trace_rank_1", "rank0.log", "more.tar.gz"])
def test_half_of_a_remote_file_is_none(hang: Path, tmp_path: Path, name: str) -> None:
    job = copied(hang, tmp_path)
    (job / "rank0.log").write_text("[rank0]: step 3\n" * 1000)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rank1.log").write_text("[rank1]: step 3\n")
    shutil.make_archive(str(job / "more"), "gztar", tmp_path / "more")
    fsspec.register_implementation("breaking", Breaking, clobber=True)
    Breaking.name = name
    report = hangscope.analyze(f"breaking://{job}")
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    assert [w.file for w in report.warnings] == [name] and "Input/output error" in report.warnings[0].message
    used = {i["file"] for i in report.to_dict()["inputs"] if i["status"] == "used"}
    assert name not in used


class Changing(InThisThread):
    """Changes a file between its finding and its reading."""

    def __init__(self, name: str, change: Any) -> None:
        self._name, self._change = name, change

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Change one file, then read."""
        if os.path.basename(args[0]) == self._name:
            self._change(Path(args[0]))
        return super().submit(fn, *args, **kwargs)


def _grow(path: Path) -> None:
    with path.open("ab") as out:
        out.write(b"more\n" * 10_000)


@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda path: os.truncate(path, path.stat().st_size // 2), _grow],
    ids=["gone", "cut", "grown"],
)
def test_a_file_may_change_before_it_is_read(hang: Path, tmp_path: Path, change: Any) -> None:
    report = hangscope.analyze(copied(hang, tmp_path), executor=Changing("nccl_trace_rank_1", change))
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    (told,) = [i for i in report.to_dict()["inputs"] if i["file"] == "nccl_trace_rank_1"]
    assert told["status"] in (("used",) if change is _grow else ("failed",))


def test_files_may_grow_and_go_all_the_time(hang: Path, tmp_path: Path) -> None:
    job = copied(hang, tmp_path)
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(0.001):
            number += 1
            with (job / "rank0.log").open("ab") as out:
                out.write(b"step %d loss 0.1\n" % number * 50)
            extra = job / f"part{number % 7}.log"
            extra.unlink() if extra.exists() else extra.write_bytes(b"[rank1]: x\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            verdict = hangscope.analyze(job).verdict
            assert verdict is not None and verdict.culprit_ranks == (2,)
    finally:
        over.set()
        writer.join()


def test_standard_input_without_room_is_read_as_far_as_it_was_kept(
    environment: dict[str, str], tmp_path: Path
) -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        + '[rank0]:   File "/workspace/train.py", line 3, in main\n'
    )
    text += "[rank0]: ValueError: sample 37 is broken\n" + "step\n" * 400_000
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 256; exec {sys.executable} -m hangscope analyze - -o r.html"],
        input=text, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        "was kept up to" in " ".join(done.stdout.split())
        and "internal error" not in done.stdout + done.stderr
    )


def test_without_threads_there_is_one_clear_message(hang: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(hangscope.HangscopeError, match="no more processes or threads") as raised:
        hangscope.analyze(hang)
    assert "ulimit -u" in raised.value.hint


def test_without_processes_every_file_says_so(hang: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(hangscope.NoInputError, match="found no process to read it"):
        hangscope.analyze(hang)
    report = hangscope.analyze_safely(hang)
    assert report.status == "inconclusive" and "temporarily unavailable" in str(report.warnings[0])


@pytest.mark.parametrize("function", ["mkdtemp", "gettempdir"])
def test_without_temporary_files_an_archive_says_so(
    hang: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    job = copied(hang, tmp_path)
    shutil.make_archive(str(job / "more"), "gztar", hang)

    def full(*args: Any, **options: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"hangscope.ingest.files.scratch.tempfile.{function}", full)
    report = analyze(job)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    (told,) = [w for w in report.warnings if w.code == "bad_archive"]
    assert "no room" in told.message and "No space left" in told.message and told.hint == "set TMPDIR"
