"""Why a job does not start: which ranks are here, and who reaches the store."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from hangscope.live.folder import RunFolder
from hangscope.live.look.meeting import diagnosis, leave_meetings
from hangscope.live.look.processes import job_of
from hangscope.live.watch.link import Link, Options
from hangscope.live.watch.watcher import Watcher
from tests.conftest import analyze
from tests.live.jobs import Place

RANKS = r"""
import os, socket, subprocess, sys, time
if len(sys.argv) == 1:
    for rank, port in ((0, "PORT"), (1, "PORT"), (3, "1")):
        more = {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        subprocess.Popen([sys.executable, __file__, str(rank)], env={**os.environ, **more})
if sys.argv[1:] == ["0"]:
    store = socket.create_server(("127.0.0.1", PORT))
elif sys.argv[1:] == ["1"]:
    while True:
        try:
            store = socket.create_connection(("127.0.0.1", PORT))
            break
        except OSError:
            time.sleep(0.05)
os.write(1, b"ready\n")
time.sleep(60)
"""


def test_who_has_arrived_and_who_connects_where(here: Place) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (here / "job.py").write_text(
        RANKS.replace("PORT", str(port)).replace(f'"MASTER_{port}"', '"MASTER_PORT"')
    )
    with here.started([sys.executable, "job.py"]) as job:
        assert job.stdout is not None and [job.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
        assert diagnosis(job_of([job.pid])) == [
            "ranks 0, 1 and 3 of 4 started on this node; rank 2 did not start here",
            "rank 3: no connection to the store at 127.0.0.1:1",
            f"rank 1: connected to the store at 127.0.0.1:{port}",
            f"rank 0: serving the store at 127.0.0.1:{port}",
        ]


def test_a_launcher_that_waits_for_others_says_for_whom(here: Place) -> None:
    (here / "torchrun").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with here.started([sys.executable, "torchrun"]) as job:
        assert isinstance(job, subprocess.Popen) and job.stdout is not None and job.stdout.readline()
        (told,) = diagnosis(job_of([job.pid]))
        assert told == f"the launcher (process {job.pid}) has started no rank; it connects to nobody"


@pytest.mark.parametrize("started", [False, True])
def test_what_a_launcher_prints_counts_only_once_it_has_started_a_process(here: Place, started: bool) -> None:
    child = "subprocess.Popen(['sleep', '60'])" if started else ""
    program = f"import subprocess, time\n{child}\nprint('ready', flush=True)\ntime.sleep(60)\n"
    (here / "torchrun").write_text(program)
    folder = RunFolder(here.left).make()
    watcher = Watcher(Link.pair()[1], Options(quiet=True), folder, os.getpid())
    with here.started([sys.executable, "torchrun"], first="ready\n") as process:
        watcher.job.pid = process.pid
        watcher.job.search(now=True)
        assert watcher.job.look().launching != started


def test_a_node_whose_torchrun_was_given_another_address_is_named(here: Place) -> None:
    (here / "torchrun").write_text(
        "import socket, time\nstore = socket.socket()\nstore.bind(('127.0.0.1', 0))\nstore.listen()\n"
        "print(store.getsockname()[1], flush=True)\ntime.sleep(60)\n"
    )
    words = [sys.executable, "torchrun", "--nnodes=3", "--nproc_per_node", "2", "--node-rank"]
    where = {"PET_MASTER_ADDR": "127.0.0.1"}
    folder = here.left / "capture_01"
    folder.mkdir(parents=True)
    with here.started([*words, "0"], {**here.environment, **where}) as first:
        assert first.stdout is not None
        port = first.stdout.readline().strip()
        (process,) = job_of([first.pid])
        leave_meetings(folder, [replace(process, command=(*process.command, f"--master-port={port}"))])
        away = (*words, "1", "--master-addr", "127.0.0.9", "--master-port", port)
        leave_meetings(folder, [replace(process, pid=os.getpid(), command=away)])
    assert len(list(folder.iterdir())) == 4
    report = analyze(here.left, world_size=6)
    verdict = report.verdict
    assert verdict is not None and (verdict.cause, verdict.culprit_ranks) == ("init_hang", (2, 3))
    assert f"127.0.0.9:{port}" in verdict.summary and f"127.0.0.1:{port}" in verdict.summary
    assert socket.gethostname().split(".")[0] in report.to_text()
