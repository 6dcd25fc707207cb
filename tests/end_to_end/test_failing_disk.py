"""A disk that fails, or a server that has forgotten a handle, in the calls of the real readers: each costs its file and a warning.

The failure comes from a library that is loaded before the C library (`failing_disk/failing_disk.c`): there is no such disk at hand.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("failing_disk") / "failing_disk.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("THE FAILING DISK WAS NOT TRIED: it takes Linux and a C compiler (cc)")
    built = tmp_path_factory.mktemp("library") / "failing_disk.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(SOURCE), "-ldl"], check=True, timeout=60
    )
    return built


@pytest.fixture(scope="module")
def job(hang: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a job's files, which no test changes."""
    parent = tmp_path_factory.mktemp("parent")
    folder = parent / "job"
    shutil.copytree(hang, folder)
    (folder / "rank0.log").write_text("[rank0]: step 3 loss 2.0\n" * 60_000)
    (folder / "rank1.log.gz").write_bytes(
        gzip.compress(b"".join(b"step %d\n" % (n * n) for n in range(300_000)))
    )
    (parent / "more").mkdir()
    (parent / "more" / "rank3.log").write_bytes(os.urandom(200_000).hex().encode() + b"\n[rank3]: step 3\n")
    shutil.make_archive(str(folder / "more"), "gztar", parent / "more")
    (folder / "logs").mkdir()
    (folder / "logs" / "rank2.log").write_text("[rank2]: step 3 loss 2.0\n")
    return folder


def analyzed(job: Path, environment: dict[str, str], library: Path, **failing: Any) -> dict[str, Any]:
    """Return the JSON report of the command, whose calls fail as `failing` says."""
    told = {f"FAIL_{name.upper()}": str(value) for name, value in failing.items()}
    done = subprocess.run(
        [sys.executable, "-m", "hangscope", "analyze", str(job), "--format", "json", "-o", str(job.parent / "r.html")],
        env={**environment, "LD_PRELOAD": str(library), **told}, cwd=job.parent, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_library_fails_nothing_by_itself(job: Path, environment: dict[str, str], library: Path) -> None:
    report = analyzed(job, environment, library)
    assert report["verdict"]["culprit_ranks"] == [2] and not report["warnings"]


@pytest.mark.parametrize(
    ("call", "name", "after", "number"),
    [
        ("read", "nccl_trace_rank_1", 0, errno.EIO),
        ("read", "rank0.log", 2, errno.ESTALE),
        ("read", "rank1.log.gz", 3, errno.EIO),
        ("read", "more.tar.gz", 1, errno.ESTALE),
        ("open", "more.tar.gz", 0, errno.EIO),
        ("stat", "nccl_trace_rank_1", 0, errno.ESTALE),
        ("list", "logs", 0, errno.EIO),
    ],
)
def test_what_fails_is_told_and_costs_itself(
    job: Path, environment: dict[str, str], library: Path, call: str, name: str, after: int, number: int
) -> None:
    report = analyzed(job, environment, library, call=call, name=name, after=after, errno=number)
    said = os.strerror(number)
    told = [w for w in report["warnings"] if said in w["message"] and name in (w["file"] or "")]
    assert told, report["warnings"]
    assert report["verdict"]["culprit_ranks"] == [2]
    assert {w["file"].split("!/")[0].split("/")[0] for w in report["warnings"]} <= {name}
