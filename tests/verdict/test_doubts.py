"""Each doubt lowers what it is about: jobs on which nothing but that one doubt does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder
from tests.simulator import Remains, collect, simulate
from tests.text_lines import CLOSED
from tests.verdicts import blame, judged, level, said


def test_a_doubt_about_what_was_not_seen(tmp_path: Path) -> None:
    left = Remains(simulate("missing_bucket", 100, world_size=8))
    left.write(tmp_path, collect(left, "one node only"))
    report = analyze(tmp_path)
    assert level(report) == "medium" and "members of the group were not seen" in said(report)


@pytest.mark.parametrize(
    ("fault", "seed", "most"),
    [("handler_barrier", 52003, "low"), ("rebuilt_group", 52003, "low"), ("uneven_loader", 52002, "medium")],
)
def test_one_rank_behind_the_lines_of_the_loop_is_a_guess_where_it_is_still_in_the_function_of_the_loop(
    fault: str, seed: int, most: str, tmp_path: Path
) -> None:
    """A call of an exception's handler, or an extra one, stands there as well."""
    left = Remains(simulate(fault, seed))
    left.write(tmp_path, collect(left, "dumps only"))
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "uneven_loader", tuple(left.job.truth.culprits))
    assert level(report) == most


def test_a_rank_beside_whom_another_root_keeps_the_same_ranks_waiting_is_a_guess(tmp_path: Path) -> None:
    """Rank 1 sits in its host code and rank 6's device stopped: by dumps alone, that may be a dump of a moment before."""
    left = Remains(simulate("several_roots", 52000))
    left.write(tmp_path, collect(left, "dumps only"))
    report = analyze(tmp_path)
    assert level(report) == "low" and "rank 6 would keep" in said(report)


def test_the_only_known_end_of_a_path_that_failed_may_be_the_one_that_suffers(tmp_path: Path) -> None:
    left = Remains(simulate("network_stall", 52000))
    for way, found, most in (
        ("full", left.job.truth.culprits, ("medium", "high")),
        ("one node only", (), ("medium",)),
    ):
        folder = tmp_path / way
        folder.mkdir()
        left.write(folder, collect(left, way))
        report = analyze(folder)
        assert blame(report) == ("hang", "network_stall", tuple(found)) and level(report) in most


def test_a_device_that_lags_in_a_group_not_all_of_whose_members_were_seen_may_be_a_victim(
    tmp_path: Path,
) -> None:
    """Rank 0, whose dump is gone, sends buckets of another size: completions of its peers are uneven by that."""
    left = Remains(simulate("other_buckets", 36003))
    left.write(tmp_path, collect(left, "mixed losses"))
    report = analyze(tmp_path)
    assert level(report) != "high" and "members of the group were not seen (ranks 0, 6 and 10)" in said(
        report
    )


def test_who_lacks_a_call_may_have_an_older_dump_where_another_one_is_known_to_be_older(
    tmp_path: Path,
) -> None:
    """Dumps of a timer: rank 0's is two calls behind, rank 1's one, and no line tells of trouble."""
    recorders = [Recorder(rank, {"0": ("default_pg", range(5))}, backend="gloo") for rank in range(5)]
    for recorder, calls in zip(recorders, (10, 11, 12, 12, 12), strict=True):
        for number in range(calls):
            recorder.call(
                "all_reduce", "0", state="scheduled" if number == calls - 1 else "completed", line=15
            )
    assert level(judged(tmp_path / "timer", recorders)) in ("low", "none")


def test_a_call_that_its_rank_makes_in_every_round_accuses_nobody(tmp_path: Path) -> None:
    """Rank 0 is the leader of its node, and waits for those of nodes that nobody collected."""
    groups = {"0": ("default_pg", range(8)), "1": ("node", range(4)), "2": ("leaders", (0, 4))}
    recorders = [Recorder(rank, groups, backend="gloo") for rank in range(4)]
    for recorder in recorders:
        for number in range(8):
            last = number == 7
            recorder.call("reduce", "1", line=20)
            if recorder.rank == 0:
                recorder.call("all_reduce", "2", line=21, state="scheduled" if last else "completed")
            if recorder.rank or not last:
                recorder.call("broadcast", "1", line=22, state="scheduled" if last else "completed")
    assert blame(judged(tmp_path / "node0", recorders))[2] == ()


def test_a_rank_whose_last_words_are_its_own_probably_exited_by_itself(tmp_path: Path) -> None:
    """Rank 2 left no dump, peers lost their connection to it, and the last line of its log is its own."""
    recorders = [Recorder(rank, {"0": ("default_pg", range(4))}, backend="gloo") for rank in range(4)]
    for recorder in recorders:
        for _ in range(6):
            recorder.call("all_reduce", "0", line=12)
        recorder.call("all_reduce", "0", line=12, state="scheduled")
    logs = {f"rank{r}": ["loading the shards", f"[rank{r}]: {CLOSED}"] for r in (0, 1, 3)}
    logs["rank2"] = ["loading the shards", "no samples are left after filtering"]
    report = judged(tmp_path, [r for r in recorders if r.rank != 2], **logs)
    assert blame(report) == ("hang", "early_exit", (2,)) and level(report) == "low"
