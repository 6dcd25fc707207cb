"""Failures of torch's analyzer: files that are damaged, named otherwise, of other versions or hostile.

What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth. Each docstring says
what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a verdict against a rank
that did nothing wrong.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import hangscope
from tests.conftest import analyze
from tests.dump_writer import VERSIONS, job, stuck, write_all
from tests.verdicts import blame, culprits, said

# -- F12 to F18: files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "op"),
    [
        ("nccl", "all_reduce_sparse"),
        ("gloo", "sparse_all_reduce"),
        ("nccl", "a_call_of_tomorrow"),
        ("newccl", "all_reduce"),
    ],
)
def test_f12_an_unknown_op_or_backend_ends_nothing(tmp_path: Path, backend: str, op: str) -> None:
    """AssertionError and nothing analysed for one name that is not in its list, or an unknown backend prefix."""
    recorders = job(4, backend=backend)
    for recorder in recorders:
        recorder.call(op, times=3).call("all_reduce", line=44)
        if recorder.rank != 1:
            recorder.call(op, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (1,)
    assert report.verdict is not None and report.verdict.op == op


def test_f13_a_missing_dump_says_where_the_others_wait(tmp_path: Path) -> None:
    """AssertionError, or "We cannot decide" eleven times, and never where the others wait."""
    recorders = stuck(4, culprit=2)
    report = analyze(write_all([r for r in recorders if r.rank != 2], tmp_path))
    verdict = report.verdict
    assert culprits(report) == (2,)
    assert verdict is not None
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_reduce", 25, (0, 1, 3))
    assert verdict.waiting_call is not None and any(f.line == 41 for f in verdict.waiting_call.frames)
    assert verdict.confidence != "high"  # that it left no dump is no proof of what it did
    assert "Rank 2 left no dump" in said(report)


def test_f13_a_missing_victim_is_not_blamed(tmp_path: Path) -> None:
    """A rank without a dump is unseen, not absent, as long as a seen one explains the wait."""
    recorders = stuck(4, culprit=2)
    report = analyze(write_all([r for r in recorders if r.rank != 1], tmp_path))
    assert culprits(report) == (2,)


@pytest.mark.parametrize(
    "damage", ["truncated", "empty", "no_entries", "garbage", "none", "entries_of_another_kind"]
)
def test_f14_one_bad_file_ends_nothing(tmp_path: Path, damage: str) -> None:
    """EOFError or KeyError and the whole run lost; a crash leaves such files."""
    folder = write_all(stuck(4, culprit=2), tmp_path)
    victim = folder / "nccl_trace_rank_1"
    data = victim.read_bytes()
    dump = pickle.loads(data)
    contents = {
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "no_entries": pickle.dumps({k: v for k, v in dump.items() if k != "entries"}, protocol=2),
        "garbage": b"\x80\x02" + bytes(range(256)),
        "none": pickle.dumps(None, protocol=2),
        "entries_of_another_kind": pickle.dumps(
            {**dump, "entries": [7, None, {"x": 1}, {"profiling_name": 3}]}, protocol=2
        ),
    }
    victim.write_bytes(contents[damage])
    report = analyze(folder)
    assert culprits(report) == (2,)
    of_file = [i for i in report.to_dict()["inputs"] if i["file"] == "nccl_trace_rank_1"]
    assert len(of_file) == 1
    told = of_file[0]["status"] != "used" or any(w.file == "nccl_trace_rank_1" for w in report.warnings)
    assert told or damage == "no_entries"


def test_f14_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A file that cannot be opened costs its rank and no other, and is named."""
    folder = write_all(stuck(4, culprit=2), tmp_path)
    (folder / "nccl_trace_rank_1").unlink()
    (folder / "nccl_trace_rank_1").symlink_to(tmp_path / "nowhere")
    report = analyze(folder)
    assert culprits(report) == (2,)
    assert any(w.file == "nccl_trace_rank_1" for w in report.warnings)


@pytest.mark.parametrize("version", VERSIONS)
def test_f15_every_version(tmp_path: Path, version: str) -> None:
    """KeyError on v1.5 (`seq_id`) and on dumps without is_p2p or dtypes."""
    report = analyze(write_all(stuck(4, culprit=2), tmp_path, version))
    assert culprits(report) == (2,)
    assert report.verdict is not None and (report.verdict.op, report.verdict.seq) == ("all_reduce", 25)


@pytest.mark.parametrize(
    "versions",
    [("2.10", "1.5", "2.3", "2.0"), ("bare", "bare", "2.10", "2.4"), ("2.9", "2.10", "bare", "2.1")],
)
def test_f15_mixed_versions_in_one_job(tmp_path: Path, versions: tuple[str, ...]) -> None:
    """AssertionError; a job whose nodes run different containers leaves such a folder."""
    for recorder, version in zip(stuck(4, culprit=2), versions, strict=True):
        recorder.write(tmp_path, version=version)
    report = analyze(tmp_path)
    assert culprits(report) == (2,)
    assert report.verdict is not None and report.verdict.seq == 25


def test_f16_json_dumps(tmp_path: Path) -> None:
    """UnpicklingError, though torch itself writes JSON dumps."""
    for recorder in stuck(4, culprit=2):
        recorder.write_json(tmp_path)
    assert culprits(analyze(tmp_path)) == (2,)


def test_f16_json_beside_pickles(tmp_path: Path) -> None:
    """ValueError int('0.json') for a JSON file beside the pickles; as a dump of the same moment it changes nothing."""
    recorders = stuck(4, culprit=2)
    plain = analyze(write_all(recorders, tmp_path))
    for recorder in recorders:
        recorder.write_json(tmp_path)
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    both = analyze(tmp_path)
    assert blame(both) == blame(plain)
    assert [i["status"] for i in both.to_dict()["inputs"] if i["file"] == "settings.json"] == ["ignored"]


@pytest.mark.parametrize(
    "names",
    [
        "nccl_trace_rank_{r}",
        "comm_lib_trace_rank_{r}",
        "_dump_{r}",
        "nccl_trace_rank_container-node07_{r}",
        "rank{r}.json",
        "rank_{r}.pkl",
        "node{n}/nccl_trace_rank_{r}",
        "node-{n}/rank{r}/trace",
        "trace.{r}",
    ],
)
def test_f17_names_folders_and_neighbours(tmp_path: Path, names: str) -> None:
    """ "Unable to automatically determine the common prefix" for host names, sub-folders, any other file that ends in a digit."""
    for recorder in stuck(4, culprit=2):
        recorder.write(tmp_path, names.format(r=recorder.rank, n=recorder.rank // 2 + 10))
    (tmp_path / "core.4242").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    (tmp_path / "events.out.tfevents.1712").write_bytes(bytes(range(200)))
    (tmp_path / "notes-2").write_text("restart after lunch\n")
    report = analyze(tmp_path)
    assert culprits(report) == (2,)
    assert report.to_dict()["world_size"] == 4


class _Payload:
    """Pickles itself as a command to run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_f18_a_hostile_pickle_is_refused_named_and_not_run(tmp_path: Path) -> None:
    """It runs the payload of a pickle and goes on with rc 0."""
    mark = tmp_path / "ran"
    folder = write_all(stuck(4, culprit=2), tmp_path / "dumps")
    for name, protocol in (("nccl_trace_rank_1", 2), ("extra_7.pkl", 4)):
        (folder / name).write_bytes(
            pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [_Payload(mark)]}, protocol=protocol)
        )
    report = hangscope.analyze(folder)
    assert not mark.exists()
    assert culprits(report) == (2,)
    hostile = {w.file: w.message for w in report.warnings if w.code == "hostile"}
    assert set(hostile) == {"nccl_trace_rank_1", "extra_7.pkl"}
    assert all("system" in message for message in hostile.values())
