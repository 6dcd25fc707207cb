"""No child outlives its parent, however that ends, and nothing it unpacked stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hangscope
from hangscope.ingest.files.scratch import PREFIX

SCRIPT = """
import sys, time
from hangscope.ingest.files.unpacking import Unpacking
from hangscope.ingest.workers.pool import Pool
from hangscope import isolated
pool = Pool(2, 2**30)
print(*[pool._start().pid for _ in range(2)], isolated.start("hangscope.ingest.files.unpacking").pid, flush=True)
time.sleep(60)
"""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_readers_die_with_their_parent(environment: dict[str, str], number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        assert len(children) == 3 and all(map(_alive, children))
        time.sleep(0.3)  # until they have begun
        parent.send_signal(number)
        parent.wait(10)
        assert _wait(lambda: not any(map(_alive, children)))


def _slow_archive(folder: Path) -> Path:
    path = folder / "job.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(20_000):
            tar.addfile(tarfile.TarInfo(f"rank{number}.log"))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_command_that_is_ended_leaves_no_temporary_files(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    archive, place = _slow_archive(tmp_path), tmp_path / "temporary"
    place.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "hangscope", "analyze", str(archive), "-o", str(tmp_path / "x.html")],
        env={**environment, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert _wait(lambda: any(place.glob(f"{PREFIX}*/1/rank9.log")))
        process.send_signal(number)
        process.wait(20)
        assert process.returncode == 128 + number
        assert process.stderr is not None and b"Traceback" not in process.stderr.read()
    assert _wait(lambda: not list(place.iterdir()))


def test_analyze_safely_leaves_nothing_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, place = _slow_archive(tmp_path), tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    report = hangscope.analyze_safely(archive, deadline=1.0)
    assert report.status == "inconclusive" and "within 1 seconds" in report.warnings[0].message
    assert os.listdir(place) == []
