"""The folder of a run, analysed again after its report: what came later does not count, what somebody added does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.history.store import open_store
from hangscope.ingest.files.run_evidence import NAME, read_evidence
from hangscope.ingest.files.sources import find_files
from hangscope.live.folder import RunFolder
from hangscope.live.watch.link import Options
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.reporting import Reporting, write_evidence
from tests.conftest import FIXTURES, analyze

FIXTURE = FIXTURES / "rank_conditional_barrier" / "dumps"


def found(folder: Path) -> dict[str, bytes]:
    with find_files([folder], []) as files:
        return {file.shown: Path(file.path).read_bytes() for file in files}


def test_only_what_was_there_is_read_of_what_is_the_runs_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "rank_0.err").write_text("waits\n")
    (run / "logs" / ".stack_rank_1.4711").write_text("Thr")
    (run / "launcher").mkdir()
    write_evidence(run, [run], 4)
    (run / "logs" / "rank_0.err").write_text("waits\nkilled by SIGTERM\n")
    (run / "launcher" / "node.err").write_text("job cancelled\n")
    (run / "dmesg.txt").write_text("Xid 79\n")
    assert found(run) == {"dmesg.txt": b"Xid 79\n", "logs/rank_0.err": b"waits\n"}
    assert found(tmp_path).keys() == {"run/dmesg.txt", "run/logs/rank_0.err"}


def test_a_list_that_is_not_ours_lists_nothing(tmp_path: Path) -> None:
    for text in ("[]", '{"schema": "hangscope.evidence/1", "world_size": 2, "files": {"a": [-1, 0]}}', "x"):
        (tmp_path / NAME).write_text(text)
        assert read_evidence(str(tmp_path)) is None
    (tmp_path / NAME).write_text(
        json.dumps({"schema": "hangscope.evidence/1", "world_size": 10**12, "files": {}})
    )
    listed = read_evidence(str(tmp_path))
    assert listed is not None and listed.world_size is None


@pytest.mark.slow
def test_the_folder_of_a_run_gives_its_verdict_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    shutil.copytree(FIXTURE / "recorder", tmp_path / "capture_01")
    shutil.copytree(FIXTURE / "logs", tmp_path / "logs")
    (tmp_path / "launcher").mkdir()
    reporting = Reporting(folder, Nodes(tmp_path), Options(quiet=True))
    reporting.world_size = 4
    reporting.problem("rank 3 did not start here")
    (tmp_path / "launcher" / "node.7.run").write_text("program: python\n")
    (tmp_path / "capture_01" / "activity_rank_2.txt").write_text(
        "process 7 is computing: 90% of a processor\n"
    )
    reporting.report(60.0, wait=0.0, hurry=lambda: True, ended=True)
    (tmp_path / "launcher" / "node.err").write_text(
        "slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-11-23T10:00:00 ***\n"
        "srun: error: gpu01: task 2: Killed\n"
    )
    with open(tmp_path / "logs" / "rank2.err", "a") as log:
        log.write(
            'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyboardInterrupt\n'
        )
    first = json.loads((folder.path / "report.json").read_text())
    again = json.loads(analyze(tmp_path).to_json())
    assert first["verdict"] is not None and again["verdict"] == first["verdict"]
    assert "rank 3 did not start here" in [warning["message"] for warning in first["warnings"]]
    assert again["warnings"] == first["warnings"]
    printed = [path for path in (tmp_path / "logs").glob("*.out") if path.stat().st_size]
    assert first["sources"]["log"] == len(printed), "what the watcher noted is no log of the job"


def test_what_asks_for_a_capture_is_no_log_of_the_job(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE / "recorder", tmp_path / "capture_01")
    (tmp_path / "trigger").write_text("1\n")
    assert json.loads(analyze(tmp_path).to_json())["sources"]["log"] == 0


def test_the_folder_of_a_requeued_job_is_that_of_its_first_run(tmp_path: Path) -> None:
    for _ in range(2):
        run = RunFolder(tmp_path / "run").make().path
        Nodes(run)  # what they say to each other is no evidence
        (run / "launcher" / "node.err").write_text(f"{run.name}\n")
    notes: list[Note] = []
    with find_files([tmp_path / "run"], notes) as files:
        assert [Path(file.path).read_text() for file in files] == ["run\n"]
    assert [(note.code, note.file) for note in notes] == [("later_run", "attempt-2")]
    assert found(tmp_path / "run" / "attempt-2") == {"launcher/node.err": b"attempt-2\n"}


def test_a_run_knows_its_hosts_and_how_long_it_was_stalled(tmp_path: Path) -> None:
    run, place = tmp_path / "run", str(tmp_path / "store.db")
    shutil.copytree(FIXTURE / "recorder", run / "stall")
    for number, path in enumerate(sorted(run.rglob("comm_lib_trace_rank_*"))):
        os.utime(path, (0, 1_795_194_306 + 600 + number))  # ten minutes after the job stalled
    nodes = Nodes(run)
    nodes.has([0, 1, 2, 3])
    for began in (5.0, 5.0, 6.0):
        write_evidence(run, [run / "stall"], 4, began=began, hosts=nodes.ranks())
        told = analyze(run, store=place).to_dict()
    assert [culprit["host"] for culprit in told["verdict"]["culprits"]] == [nodes.name.split(".")[0]]
    with open_store(place) as store:
        again, first = sorted(store.entries(), key=lambda entry: entry.analyses)
        assert (first.analyses, again.analyses) == (2, 1) and first.hosts == nodes.name.split(".")[0]
        assert [use.host for use in store.uses(first.id)] == [first.hosts]
    assert 600 <= first.duration_s < 610 and first.rank_hours > 0.6
