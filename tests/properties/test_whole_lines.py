"""What the search of `benchmarks/fuzz.py` calls damage without a trace: the rule, on inputs of both kinds."""

from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, analyze

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from whole_lines import WholeLines

JOB = FIXTURES / "raising_rank" / "dumps"
FOREIGN = (
    "slurmstepd: error: *** JOB 88125 ON node03 CANCELLED AT 2026-03-02T11:00:21 DUE TO TIME LIMIT ***\n"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeLines:
    other = tmp_path_factory.mktemp("other")
    (other / "job.log").write_text(FOREIGN + "a line of nothing\n")
    return WholeLines([JOB, FIXTURES / "dtype_mismatch" / "dumps", other])


def log(folder: Path, text: str) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "job.log").write_text(text)


def swapped(folder: Path) -> None:
    one, other = folder / "recorder" / "comm_lib_trace_rank_0", folder / "recorder" / "comm_lib_trace_rank_1"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def renumbered(folder: Path) -> None:
    path = folder / "logs" / "rank2.err"
    path.write_text(path.read_text().replace("rank2", "rank1").replace("37", "9"))


def torn(folder: Path) -> None:
    path = folder / "logs" / "rank2.err"
    path.write_text(path.read_text().replace("ValueError: sample", "ValueError: sa\u202eple"))


def glued(folder: Path) -> None:
    path = folder / "logs" / "rank2.err"
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:-2], rows[-2] + rows[-1]]) + "\n[rank2]: ValueError: sample 37: la\n")


def behind(folder: Path) -> None:
    path = folder / "logs" / "rank2.err"
    path.write_text(path.read_text().replace("[rank2]: ValueError", "[rank0]: step 5 lo[rank2]: ValueError"))


@pytest.mark.parametrize(
    ("damage", "untraced"),
    [
        (lambda folder: None, True),
        (lambda folder: log(folder, FOREIGN), True),
        (lambda folder: log(folder, FOREIGN.replace("88125", "1").replace("node03", "node4")), True),
        (swapped, True),
        (renumbered, True),
        (torn, False),
        (glued, False),
        (behind, True),
        (lambda folder: log(folder, FOREIGN.replace("CANCELLED", "CANCLLED")), True),
    ],
    ids=[
        "none",
        "another job's line",
        "with other numbers",
        "files swapped",
        "digits",
        "a mark within",
        "torn",
        "behind another record",
        "a line that tells nothing",
    ],
)
def test_what_shows_no_damage(
    tmp_path: Path, whole: WholeLines, damage: Callable[[Path], None], untraced: bool
) -> None:
    folder = tmp_path / "job"
    shutil.copytree(JOB, folder)
    damage(folder)
    report = analyze(folder)
    assert report.verdict is not None
    assert whole.carry(report, folder) == untraced


def test_a_changed_value_of_a_dump_shows_and_another_number_does_not(
    tmp_path: Path, whole: WholeLines
) -> None:
    folder = tmp_path / "job"
    shutil.copytree(FIXTURES / "dtype_mismatch" / "dumps", folder)
    path = folder / "recorder" / "comm_lib_trace_rank_1"
    dump = pickle.loads(path.read_bytes())
    report = analyze(folder)
    assert report.verdict is not None and whole.carry(report, folder)
    dump["entries"][-1]["time_created_ns"] += 1
    path.write_bytes(pickle.dumps(dump, protocol=2))
    assert whole.carry(report, folder)
    dump["entries"][-1]["profiling_name"] = "gloo:all_to_all"
    path.write_bytes(pickle.dumps(dump, protocol=2))
    assert not whole.carry(analyze(folder), folder)


def test_nothing_hangs_where_all_of_every_file_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(FIXTURES / "healthy" / "dumps", folder)
    whole = WholeLines([FIXTURES / "healthy" / "dumps"])
    report = analyze(folder)
    assert report.status == "no_hang" and whole.carry(report, folder)
    with next((folder / "logs").iterdir()).open("a") as out:
        out.write("rank 0 st\u0000ep\n")
    assert not whole.carry(report, folder)
