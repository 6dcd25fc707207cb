"""Which ranks are members of a group, where gloo's one nameless list is all that dumps tell."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangscope.api import Report
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import job

SUBGROUPS = FIXTURES / "subgroups_torch215" / "dumps"


def write(folder: Path, told: Mapping[int, Sequence[int]], size: int = 4) -> Path:
    """Write gloo dumps of a job that stands in its third call on the world, of the ranks in `told`, each with its list."""
    folder.mkdir()
    for recorder in job(size, backend="gloo"):
        if recorder.rank not in told:
            continue
        recorder.call("all_reduce", times=2)
        if recorder.rank != 3:
            recorder.call("all_reduce", state="scheduled")
        dump = recorder.dump()
        dump["pg_config"][""]["ranks"] = str(list(told[recorder.rank]))
        (folder / f"comm_lib_trace_rank_{recorder.rank}").write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def members(report: Report) -> list[list[int]]:
    """Return the member ranks of every group."""
    return [group["ranks"] for group in json.loads(report.to_json())["groups"]]


def test_the_nameless_list_of_one_group_is_the_world(tmp_path: Path) -> None:
    report = analyze(write(tmp_path / "dumps", dict.fromkeys(range(3), range(4))))
    assert members(report) == [[0, 1, 2, 3]]


def test_places_in_the_last_group_are_not_the_worlds_ranks(tmp_path: Path) -> None:
    """torch 2.15: the list is of the group that was made last, and starts from 0 on every rank."""
    report = analyze(write(tmp_path / "dumps", {0: [0, 1], 1: [0, 1, 2], 2: [0, 1, 2], 3: [0, 1, 2]}))
    assert members(report) == [[0, 1, 2, 3]]
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("stuck_rank", (3,))


def test_halves_that_tell_the_same_list_are_two_groups(tmp_path: Path) -> None:
    report = analyze(write(tmp_path / "dumps", {key: [0, 1] for key in range(4)}))
    assert members(report) == [[0, 1, 2, 3]]


def test_a_list_that_is_shorter_than_the_world_is_not_the_worlds(tmp_path: Path) -> None:
    folder = write(tmp_path / "dumps", {key: [0, 1] for key in range(2)})
    assert members(analyze(folder, world_size=4)) == [[0, 1, 2, 3]]


def test_the_rank_that_stands_still_in_a_group_of_its_own_places() -> None:
    """A real job: ranks 1 to 3 are places 0 to 2 of a group that rank 0 is not in."""
    verdict = analyze(SUBGROUPS / "recorder").verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks, verdict.in_call) == ("stuck_rank", (3,), (1, 2))
