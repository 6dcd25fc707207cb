"""Failures of torch's analyzer: real gloo dumps, and the order of files.

What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth. Each docstring says
what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a verdict against a rank
that did nothing wrong.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, analyze
from tests.dump_writer import job, write_all
from tests.verdicts import blame, culprits, recorder_of

# -- F1, F2: real gloo dumps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks", "op"),
    [
        ("stuck_loader", (3,), "all_reduce"),
        ("rank_conditional_barrier", (0,), "all_reduce"),
        ("mesh_stuck_loader", (6,), "all_gather_into_tensor"),
    ],
)
def test_f1_gloo_dumps_with_one_group_or_several(name: str, ranks: tuple[int, ...], op: str) -> None:
    """KeyError ('0', r): gloo writes one nameless group into `pg_config`, whatever groups its entries name."""
    report = analyze(recorder_of(name))
    assert culprits(report) == ranks
    assert report.verdict is not None and report.verdict.op is not None and report.verdict.seq is not None


def test_f1_gloo_dumps_with_files_missing(tmp_path: Path) -> None:
    """First AssertionError, then KeyError with --allow-incomplete-ranks; a missing victim changes nobody's blame."""
    shutil.copytree(recorder_of("stuck_loader"), tmp_path / "dumps")
    (tmp_path / "dumps" / "comm_lib_trace_rank_1").unlink()
    report = analyze(tmp_path / "dumps", world_size=4)
    assert culprits(report) == (3,)
    assert report.to_dict()["partial"]["missing_ranks"] == "1"


def test_f2_gloo_under_detail_is_not_a_healthy_job() -> None:
    """No output and rc 0 for a job that hung: under DETAIL the call that mismatches never reaches the recorder."""
    with_logs = analyze(FIXTURES / "rank_conditional_detail" / "dumps")
    assert blame(with_logs) == ("hang", "rank_conditional_collective", (0,))
    alone = analyze(recorder_of("rank_conditional_detail"))
    assert alone.status != "no_hang"
    assert {g["name"] for g in alone.to_dict()["groups"]} <= {"", "0"}
    assert all(g["ranks"] for g in alone.to_dict()["groups"])


# -- F3: the order of files ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"), [("rank_conditional_barrier", (0,)), ("uneven_loader_later_epoch", (3,))]
)
def test_f3_the_order_of_files_never_changes_the_blame(name: str, ranks: tuple[int, ...]) -> None:
    """Blames [3,1,2], [0] or [0] for the same four files, as the directory happens to list them."""
    files = sorted(recorder_of(name).iterdir())
    reports = {analyze(order).to_json() for order in itertools.permutations(files)}
    assert len(reports) == 1
    assert culprits(analyze(files)) == ranks


@pytest.mark.slow
def test_f3_an_uneven_loader_in_any_order(tmp_path: Path) -> None:
    """Blames [1] or [0,2,3] for a rank that left the loop before its peers, depending on the order of files."""
    recorders = job(4)
    for recorder in recorders:
        for _ in range(9):
            recorder.call("broadcast", sizes=[[5]], line=38).call("all_reduce", sizes=[[640]], line=40)
        if recorder.rank == 1:
            recorder.call("barrier", sizes=[], line=77, state="scheduled")
        else:
            recorder.call("broadcast", sizes=[[5]], line=38, state="scheduled")
    folder = write_all(recorders, tmp_path)
    files = sorted(folder.iterdir())
    assert len({analyze(order).to_json() for order in itertools.permutations(files)}) == 1
    assert culprits(analyze(files)) == (1,)
