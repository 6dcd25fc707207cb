"""Children that read files: what one of them costs when it dies, is late, or is not wanted any more."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope import isolated
from hangscope.ingest.files.opening import plain_size
from hangscope.ingest.files.sources import SourceFile
from hangscope.ingest.workers import child
from hangscope.ingest.workers import pool as pool_module
from hangscope.ingest.workers.pool import Pool, read_files
from tests.hostile_dumps import nested_key


@pytest.fixture
def log(tmp_path: Path) -> SourceFile:
    path = tmp_path / "a.log"
    path.write_text("hello\n")
    return SourceFile(str(path), "a.log", 6)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(2, 1 << 30)
    yield pool
    pool.close()


def test_idle_children_that_died_cost_nothing(pool: Pool, log: SourceFile) -> None:
    dead = [pool._start(), pool._start()]
    for process in dead:
        process.kill()
        process.wait()
    pool._idle += dead
    assert pool.read(log)["status"] == "used"
    assert not set(dead) & set(pool._all)


def test_closing_ends_all_children_though_one_is_gone_with_words_unsent(pool: Pool, log: SourceFile) -> None:
    first, second = pool._start(), pool._start()
    first.kill()
    first.wait()
    assert first.stdin is not None
    first.stdin.write(b"x")  # kept in the buffer; closing the pipe cannot send it
    pool.close()
    assert second.returncode is not None and not pool._all


def test_the_second_try_is_in_a_fresh_child(
    pool: Pool, log: SourceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, number = pool._start, []

    def count() -> subprocess.Popen[bytes]:
        number.append(1)
        return start()

    monkeypatch.setattr(pool, "_start", count)
    pool._idle += [start(), start()]
    bomb = Path(log.path).with_name("bomb")
    bomb.write_bytes(nested_key())
    answer = pool.read(SourceFile(str(bomb), "bomb", bomb.stat().st_size))
    assert answer["status"] == "failed" and len(number) == 1


def test_what_is_said_of_a_reader_that_died_is_what_is_known(pool: Pool, log: SourceFile) -> None:
    bomb = Path(log.path).with_name("bomb")
    bomb.write_bytes(nested_key())
    answer = pool.read(SourceFile(str(bomb), "bomb", bomb.stat().st_size))
    assert "signal 11, SIGSEGV" in answer["reason"] and "twice" in answer["reason"]
    assert "hostile" not in answer["reason"] and answer["notes"][0][0] == "killed_reader"


def test_a_reader_that_is_late_is_called_late(
    pool: Pool, log: SourceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "DEADLINE", 0.3)
    monkeypatch.setattr(
        isolated, "command", lambda module: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    answer = pool.read(log)
    assert answer["reason"] == "was not read within 0 seconds, twice, and was set aside"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/python"], "found no process to read it"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "exit code 3"),
    ],
)
def test_a_reader_that_does_not_start_is_told(
    command: list[str], words: str, pool: Pool, log: SourceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "command", lambda module: command)
    assert words in pool.read(log)["reason"]


def test_an_answer_that_is_too_long_is_not_taken(
    pool: Pool, log: SourceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "ANSWER_FLOOR", 10)
    monkeypatch.setattr(pool_module, "ANSWER_PER_BYTE", 0)
    assert "gave an answer of" in pool.read(log)["reason"]


def test_stopping_does_not_wait_for_a_file_nor_try_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    code = f"import time; open({str(started)!r}, 'a').write('x'); time.sleep(60)"
    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    files = [SourceFile(str(tmp_path / name), name, 1) for name in ("a", "b")]

    def interrupt() -> None:
        while not started.exists() or not started.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(isolated, "command", lambda module: [sys.executable, "-c", code])
    began = time.monotonic()
    thread = threading.Thread(target=interrupt)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background starts without it
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            list(read_files(files, jobs=1))
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 20
    assert started.read_text() == "x"


def test_a_child_starts_one_thread_for_linear_algebra_and_no_module_of_the_folder() -> None:
    process = isolated.start(child.__name__)
    environ = Path(f"/proc/{process.pid}/environ")
    until = time.monotonic() + 10
    while not (found := environ.read_bytes()) and time.monotonic() < until:
        time.sleep(0.01)  # the kernel shows it only when the program has begun
    isolated.discard(process)
    assert b"\0OPENBLAS_NUM_THREADS=1\0" in found
    command = isolated.command(child.__name__)
    assert command[1] == "-I" and "hangscope.ingest.workers.child" in command[-1]


def test_limits_are_by_what_a_compressed_file_unpacks_to(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.log", tmp_path / "b.log"
    plain.write_bytes(b"x" * 1000)
    packed.write_bytes(gzip.compress(b"x" * 1000))
    assert plain_size(str(plain)) == 1000
    assert plain_size(str(packed)) > packed.stat().st_size
    assert plain_size(str(tmp_path / "missing")) == 0
