"""What readers may take: by what a file holds and what the machine has, alone and together."""

from __future__ import annotations

import threading
from pathlib import Path

from hangscope.ingest.files.sources import SourceFile
from hangscope.ingest.workers import memory
from hangscope.ingest.workers.memory import FLOOR, LEAST, Memory, available, real_size
from hangscope.ingest.workers.pool import Pool

GIB = 2**30


def test_holes_earn_nothing(tmp_path: Path) -> None:
    sparse, full = tmp_path / "sparse", tmp_path / "full"
    with sparse.open("wb") as out:
        out.truncate(400 * 2**20)
    full.write_bytes(b"x" * 2**20)
    assert real_size(str(sparse), 400 * 2**20) <= 2 * 2**20
    assert real_size(str(full), 2**20) == 2**20
    assert real_size(str(tmp_path / "gone"), 5) == 5


def test_one_reader_gets_no_more_than_there_is() -> None:
    assert Memory(1, 64 * GIB).limit(2**20) == FLOOR + 40 * 2**20
    assert Memory(1, 64 * GIB).limit(2**31) == 64 * GIB
    assert Memory(64, 16 * GIB).limit(0) == LEAST
    assert Memory(4, 8 * GIB).limit(0) == 2 * GIB


def test_all_readers_together_get_no_more_than_there_is() -> None:
    shared, most, running = Memory(8, 4 * GIB), 0, 0
    lock, hold = threading.Lock(), threading.Event()

    def read() -> None:
        nonlocal most, running
        with shared.take(shared.limit(0)):
            with lock:
                running += 1
                most = max(most, running)
            hold.wait(0.05)
            with lock:
                running -= 1

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 4


def test_a_reader_that_wants_more_than_all_is_alone_and_does_not_wait_for_ever() -> None:
    shared = Memory(1, GIB)
    with shared.take(5 * GIB):
        pass


def test_the_limits_of_cgroups_are_heeded(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    for text, file in (
        ("0::/a/b\n", "a/memory.max"),
        ("5:cpu:/a\n4:memory:/a/b\n", "memory/a/b/memory.limit_in_bytes"),
    ):
        own.write_text(text)
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1234567\n")
        assert list(memory._of_cgroups(tmp_path, own)) == [1234567]
    own.write_text("0::/\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert list(memory._of_cgroups(tmp_path, own)) == []
    assert available() >= LEAST


def test_a_sparse_file_is_read_within_the_floor(tmp_path: Path) -> None:
    """A pickle that asks for six gigabytes behind 400 MB of holes."""
    path = tmp_path / "nccl_trace_rank_0"
    with path.open("wb") as out:
        out.write(b"\x80\x02]r\xff\xff\xff\x2f")
        out.truncate(400 * 2**20)
    pool = Pool(1, 2**31)
    try:
        told = pool.read(SourceFile(str(path), path.name, 400 * 2**20))
    finally:
        pool.close()
    assert told["status"] == "failed" and told["notes"][0][0] == "too_much_memory"
