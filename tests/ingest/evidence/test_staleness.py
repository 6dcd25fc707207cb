"""Dumps of another attempt, and dumps that contradict themselves or each other: nobody is named with high confidence because of them."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hangscope.report.report import Report
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.small_jobs import due
from tests.verdicts import culprits

STEPS = 60
MS = 1_000_000


def timed(recorder: Recorder, random: Random, steps: list[int], behind: int) -> None:
    """Give a recorder's calls the times at which all made them, by a clock that is `behind` ns late, and some jitter of its own."""
    at = 0
    for entry, step in zip(recorder.entries, steps, strict=False):
        at += step
        moved = at - behind + random.randrange(2 * MS) - int(entry["time_created_ns"]) + 10**18
        for key, value in entry.items():
            if key.startswith("time_") and value:
                entry[key] = value + moved


@pytest.mark.parametrize(("same_run", "stale"), [(True, False), (False, True)])
def test_a_clock_that_is_three_minutes_behind_makes_no_dump_an_earlier_one(
    tmp_path: Path, same_run: bool, stale: bool
) -> None:
    random, recorders = Random(7), job(4)
    paces = [[random.randrange(20 * MS, 30 * MS) for _ in range(2 * STEPS)] for _ in range(2)]
    for recorder in recorders:
        odd = recorder.rank == 3
        for _ in range(STEPS - 1):
            due(recorder, "completed")
        if not odd:
            due(recorder)
        timed(recorder, random, paces[int(odd and not same_run)], 180 * 10**9 if odd else 0)
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert any(note.code == "stale" for note in report.warnings) is stale
    assert culprits(report) == (3,)


RECORDED = 30


def recorders() -> list[Recorder]:
    """Return four ranks of which rank 3 does not make the last call."""
    ranks = job(4)
    for recorder in ranks:
        recorder.time_ns += 1_000 * recorder.rank
        for _ in range(RECORDED):
            due(recorder, "completed")
        if recorder.rank != 3:
            due(recorder)
    return ranks


def shift(dump: dict[str, Any]) -> None:
    for entry in dump["entries"]:
        entry["collective_seq_id"] += 1


def lose(dump: dict[str, Any]) -> None:
    del dump["entries"][RECORDED // 2]


@pytest.mark.parametrize(
    ("lie", "message"), [(shift, "entries end with 31"), (lose, "`record_id after 14` is 16")]
)
def test_a_dump_that_contradicts_itself_names_nobody_at_high(
    tmp_path: Path, lie: Callable[[dict[str, Any]], None], message: str
) -> None:
    write_all(recorders(), tmp_path)
    file = tmp_path / "nccl_trace_rank_3"
    dump = pickle.loads(file.read_bytes())
    lie(dump)
    file.write_bytes(pickle.dumps(dump, protocol=2))
    report = analyze(tmp_path)
    assert any(message in note.message and "rank_3" in (note.file or "") for note in report.warnings)
    assert report.verdict is not None and report.verdict.confidence != "high"


def test_a_copy_under_another_ranks_name_speaks_for_nobody(tmp_path: Path) -> None:
    write_all(recorders(), tmp_path)
    files = sorted(tmp_path.iterdir())
    assert culprits(analyze(tmp_path)) == (3,)
    shutil.copy(files[2], files[3])
    report: Report = analyze(tmp_path)
    said = {note.file for note in report.warnings if "one of them is a copy" in note.message}
    assert said == {files[2].name, files[3].name}
    assert report.verdict is not None and report.verdict.confidence == "low"
    assert set(report.verdict.culprit_ranks) <= {2, 3}


@pytest.mark.parametrize(
    ("lie", "message"), [("gap", "`record_id after 14` is 16"), ("seq 0", "collective_seq_id")]
)
def test_a_gap_and_a_number_below_one_are_noticed_in_dumps_of_gloo(
    tmp_path: Path, lie: str, message: str
) -> None:
    recorders = job(3, backend="gloo")
    for recorder in recorders:
        recorder.call("all_reduce", times=RECORDED)
    write_all(recorders, tmp_path)
    file = next(tmp_path.glob("*_1"))
    dump = pickle.loads(file.read_bytes())
    if lie == "gap":
        del dump["entries"][RECORDED // 2]
    else:
        for entry in dump["entries"]:
            entry["collective_seq_id"] -= 1
    file.write_bytes(pickle.dumps(dump, protocol=2))
    assert any(message in note.message for note in analyze(tmp_path).warnings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[rank1]: RuntimeError:[rank1]:     main()", "two lines of rank 1 are glued together"),
        (
            "n1:77:78 [1] NCCL INFO comm 0x1a rank 32768 nranks 8 cudaDev 1 busId 43000 commId 0x8f - Init COMPLETE",
            "a rank that its communicator cannot have",
        ),
    ],
)
def test_a_line_that_no_program_prints_is_noticed(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rank1.log").write_text(
        f'[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in main\n{line}\n'
    )
    assert message in str(analyze(tmp_path).warnings)


@pytest.mark.parametrize("p2p", [False, True])
def test_dumps_whose_names_were_swapped_are_of_the_ranks_that_they_hold(tmp_path: Path, p2p: bool) -> None:
    """Where two ranks are members of the same groups, only sends and receives tell them apart."""
    groups = {"0": ("default_pg", range(8)), "1": ("pp", range(4)), "2": ("pp", range(4, 8))}
    other = {f"t{n}": ("tp", (n, n + 4)) for n in range(4)}
    for rank in range(8):
        own = {n: g for n, g in {**groups, **({} if p2p else other)}.items() if rank in g[1]}
        recorder, pipe = Recorder(rank, own), "1" if rank < 4 else "2"
        for _ in range(6):
            recorder.call("all_reduce", pipe)
            if p2p:
                place = rank % 4
                recorder.send(rank + 1, pipe) if place < 3 else recorder.recv(rank - 1, pipe)
        recorder.call("all_reduce", "0", state="scheduled" if rank != 5 else "completed")
        if rank == 5:
            del recorder.entries[-1]
        recorder.write(tmp_path)
    names = [tmp_path / f"nccl_trace_rank_{rank}" for rank in (2, 5)]
    first, second = (name.read_bytes() for name in names)
    names[0].write_bytes(second), names[1].write_bytes(first)
    report = analyze(tmp_path)
    assert culprits(report) == (5,)
    assert [n.code for n in report.warnings].count("name_contradicts") == 2
