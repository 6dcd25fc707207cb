"""Several faults at once: each root without which ranks would still wait is named, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import EPOCH_NS, Recorder, job, write_all
from tests.text_lines import raised, timeout
from tests.verdicts import blame, culprits, judged, level, said

GROUPS: dict[str, tuple[str, Sequence[int]]] = {
    "0": ("default_pg", range(6)), "1": ("pp", (0, 1, 2)), "2": ("pp", (3, 4, 5)),
}  # fmt: skip


def two_pipelines(*, lagging: int | None = None, gone: int | None = None) -> list[Recorder]:
    """Return a job of two groups of three, of which one waits for rank 1, and the other for what is given."""
    recorders = job(6, groups=GROUPS)
    for recorder in recorders:
        own = "1" if recorder.rank < 3 else "2"
        for _ in range(10):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        if recorder.rank < 3:
            if recorder.rank != 1:
                recorder.call("all_reduce", own, line=41, state="started")
        elif recorder.rank == lagging:
            for _ in range(3):
                recorder.call("all_reduce", own, line=41, state="started")
        elif recorder.rank != gone:
            if lagging is not None:
                recorder.call("all_reduce", own, line=41, times=2)
            recorder.call("all_reduce", own, line=41, state="started")
    return [recorder for recorder in recorders if recorder.rank != gone]


def test_a_stuck_host_and_a_stalled_device_are_two_faults(tmp_path: Path) -> None:
    report = analyze(write_all(two_pipelines(lagging=4), tmp_path))
    assert culprits(report) == (1, 4) and level(report) == "medium"
    assert (
        "the GPU of rank 4 has not completed all_reduce seq 11 on group 2 (pp), which 2 other members have (gpu_stall)"
        in said(report)
    )
    assert report.verdict is not None
    assert report.verdict.explains.ranks == len(report.verdict.waiting_ranks)


def test_a_stuck_host_and_a_dead_process_are_two_faults(tmp_path: Path) -> None:
    lines = {f"rank{r}": [f"[rank{r}]: step 5"] for r in range(6)}
    report = judged(tmp_path, two_pipelines(gone=4), **{**lines, "rank4": raised(4, "ValueError: no target")})
    assert culprits(report) == (1, 4)


def test_two_faults_that_do_not_explain_all_are_a_part_at_best(tmp_path: Path) -> None:
    """A third group waits for rank 7's device, which lags by one call, or whose dump is older."""
    recorders = job(9, groups={**GROUPS, "0": ("default_pg", range(9)), "3": ("pp", (6, 7, 8))})
    for recorder in recorders:
        rank, own = recorder.rank, str(recorder.rank // 3 + 1)
        for _ in range(10):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        lags = {4: 3, 7: 1}.get(rank, 0)
        for _ in range({"1": 0, "2": 2, "3": 1}[own]):
            recorder.call("all_reduce", own, line=41, state="started" if lags else "completed")
        if rank not in (1, 7):
            recorder.call("all_reduce", own, line=41, state="started")
    report = judged(tmp_path, recorders)
    assert (culprits(report), level(report)) == ((1, 4), "low")


def test_beside_a_dead_rank_a_lag_in_counts_accuses_nobody(tmp_path: Path) -> None:
    """The peers of a rank that died abort their communicators, which finishes calls of some and not of others."""
    recorders = job(6)
    for recorder in recorders:
        recorder.call("all_reduce", times=10, line=41)
        for _ in range(3):
            recorder.call("all_reduce", line=41, state="started" if recorder.rank == 2 else "completed")
        recorder.call("all_reduce", line=41, state="started")
    alive = [recorder for recorder in recorders if recorder.rank != 4]
    report = judged(tmp_path, alive, rank4=raised(4, "ValueError: no target"))
    assert blame(report) == ("hang", "crashed_rank", (4,))


def test_one_fault_that_explains_all_stays_one(tmp_path: Path) -> None:
    """Rank 3's recorder shows a call behind a finished one as started; nobody waits for it."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=10, line=41)
        if recorder.rank != 2:
            recorder.call("all_reduce", line=41, state="started")
    recorders[3].entries[-2]["state"] = "started"
    assert culprits(analyze(write_all(recorders, tmp_path))) == (2,)


def test_dumps_of_an_attempt_before_contradict_in_time(tmp_path: Path) -> None:
    """Collectives were over in the older dumps minutes before the newer dumps' ranks made them."""
    recorders = job(4)
    for recorder in recorders:
        recorder.time_ns = EPOCH_NS + (0 if recorder.rank < 2 else 1800 * 10**9)
        recorder.call("all_reduce", times=20, line=41)
        if recorder.rank != 0:
            recorder.call("all_reduce", line=41, state="started")
    report = judged(tmp_path, recorders)
    assert [note.message for note in report.warnings if "earlier attempt" in note.message] == [
        f"rank {rank}'s dump is from an earlier attempt or another job and was set aside" for rank in (0, 1)
    ]
    assert report.verdict is None or report.verdict.culprit_ranks != (0,)


def test_clocks_of_hosts_that_disagree_are_no_other_attempt(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.time_ns = EPOCH_NS + (0 if recorder.rank < 2 else 20 * 10**9)
        recorder.call("all_reduce", times=20, line=41)
        if recorder.rank != 0:
            recorder.call("all_reduce", line=41, state="started")
    assert blame(judged(tmp_path, recorders)) == ("hang", "stuck_rank", (0,))


def _last_numbers(recorders: Sequence[Recorder], rank: int) -> str:
    """Return the line of a rank's watchdog about the first call that is open in its dump."""
    entries = next(r for r in recorders if r.rank == rank).entries
    seq = next(e["collective_seq_id"] for e in entries if e["state"] != "completed")
    return timeout(rank, group="PG ID 1 PG GUID 2(pp) ", local=rank - 3, seq=seq, n=8)


def test_the_own_watchdog_of_a_device_that_lags_by_one_call_tells_that_its_dump_is_no_older(
    tmp_path: Path,
) -> None:
    """Rank 1 is stuck and rank 4's device lags by one call, in a group where nobody waits for rank 1."""
    recorders = two_pipelines()
    for recorder in recorders[3:]:
        if recorder.rank != 4:
            recorder.entries[-1].update(
                state="completed", retired=True, time_discovered_completed_ns=recorder.time_ns
            )
            recorder.call("all_reduce", "2", line=41, state="started")
    assert 4 not in culprits(judged(tmp_path / "dumps", recorders))
    lines = [_last_numbers(recorders, 4)]
    assert culprits(judged(tmp_path / "told", recorders, rank4=lines)) == (1, 4)


def test_a_death_explains_no_lag_in_a_group_that_it_is_no_member_of(tmp_path: Path) -> None:
    recorders = two_pipelines(lagging=4)
    alive = [recorder for recorder in recorders if recorder.rank != 1]
    lines = {f"rank{r}": [f"[rank{r}]: step 5"] for r in range(6)}
    lines |= {"rank1": raised(1, "ValueError: no target"), "rank4": [_last_numbers(recorders, 4)]}
    assert culprits(judged(tmp_path / "other", alive, **lines)) == (1, 4)
    assert culprits(judged(tmp_path / "untold", alive, **{**lines, "rank4": ["[rank4]: step 5"]})) == (1,)


def test_a_death_in_its_group_explains_a_lag_that_only_a_watchdog_reports(tmp_path: Path) -> None:
    """The peers of a dead rank abort their communicators, which completes collectives of some and not of others."""
    recorders = two_pipelines(lagging=4)
    lines = {"rank3": raised(3, "ValueError: no target"), "rank4": [_last_numbers(recorders, 4)]}
    assert 4 not in culprits(judged(tmp_path, recorders, **lines))
