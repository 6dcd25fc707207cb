"""A verdict that rests on a damaged line or file is not as sure as the same one on a whole one."""

from __future__ import annotations

import gzip
import pickle
import shutil
import time
from pathlib import Path

import pytest

from hangscope.api import Report
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import SCRIPT, TORCH, job, stuck, write_all

DEATH = (
    b"Traceback (most recent call last):\n"
    b'  File "/workspace/train.py", line 3, in <module>\n    main()\n'
    b"ValueError: sample 37 is broken\n"
)


def test_bytes_that_are_no_text_lower_it(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(DEATH)
    whole = analyze(log)
    log.write_bytes(DEATH.replace(b"sample 37", b"sa\xff\xfe\x80 37"))
    torn = analyze(log)
    assert whole.verdict is not None and torn.verdict is not None
    assert (whole.verdict.confidence, torn.verdict.confidence) == ("high", "medium")
    assert "invalid bytes" in " ".join(torn.to_dict()["confidence_why"])


def test_a_file_that_breaks_off_lowers_it(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log.gz"
    data = gzip.compress(
        DEATH + b"".join(b"[W1120 00:00:00.1 x.cpp:1] %d\n" % (n * n) for n in range(20_000))
    )
    log.write_bytes(data[:-2000])
    torn = analyze(log)
    assert torn.verdict is not None and torn.verdict.confidence == "medium"
    assert "is damaged" in " ".join(torn.to_dict()["confidence_why"])


def certainty(report: Report) -> tuple[str, str]:
    assert report.verdict is not None
    return report.verdict.cause, report.verdict.confidence


@pytest.mark.parametrize(
    ("key", "value"), [("version", 3), ("pg_config", 2**63), ("comm_lib_version", {}), (7, "2.10")]
)
def test_a_difference_in_a_dump_that_was_changed_is_not_sure(
    tmp_path: Path, key: object, value: object
) -> None:
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=9)
        recorder.call("all_reduce", dtype="Half" if recorder.rank == 1 else "Float", state="scheduled")
    write_all(recorders, tmp_path)
    assert certainty(analyze(tmp_path)) == ("dtype_mismatch", "high")
    dump = recorders[1].dump()
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({**dump, key: value}, protocol=2))
    changed = analyze(tmp_path)
    assert certainty(changed) == ("dtype_mismatch", "medium")
    assert "it rests on nccl_trace_rank_1, which is damaged" in " ".join(changed.to_dict()["confidence_why"])


def test_nothing_hangs_only_where_all_files_are_whole(tmp_path: Path, healthy: Path) -> None:
    for path in healthy.iterdir():
        shutil.copy(path, tmp_path)
    assert analyze(tmp_path).status == "no_hang"
    dump = pickle.loads((tmp_path / "nccl_trace_rank_1").read_bytes())
    dump["entries"][2]["retired"] = 2
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump, protocol=2))
    assert analyze(tmp_path).status == "inconclusive"


def test_a_dump_under_the_name_of_a_log_may_be_anybodys(tmp_path: Path) -> None:
    """As where two files changed places: the name alone says whose it is."""
    whole = FIXTURES / "dtype_mismatch" / "dumps"
    shutil.copytree(whole, tmp_path / "job")
    recorder, logs = tmp_path / "job" / "recorder", tmp_path / "job" / "logs"
    (recorder / "comm_lib_trace_rank_1").rename(logs / "rank0.err")
    report = analyze(tmp_path / "job")
    assert "odd_name" in {w.code for w in report.warnings}
    assert report.verdict is not None and report.verdict.confidence != "high"


@pytest.mark.slow
def test_many_open_calls_and_many_unseen_ranks_take_seconds(tmp_path: Path) -> None:
    """One rank with 1,000 open calls, in a world whose size is a single number: 32 million pairs, if each were an edge."""
    recorder = stuck(2, culprit=1)[0]
    recorder.call("all_reduce", times=1000, state="scheduled")
    recorder.write(tmp_path)
    (tmp_path / "job.log").write_text("[rank0]: Rank 0 of world_size=32768\n")
    began = time.process_time()
    report = analyze(tmp_path, world_size=32_768)
    report.to_html()
    assert report.to_dict()["world_size"] == 32_768
    assert time.process_time() - began < 20


STATUS = (
    "[rank{0}]:[E312 07:23:14.211955268 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank {1}] Received a dump signal due "
    "to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: {2}, last "
    "completed NCCL work: {3}.\n"
)


def test_a_number_of_a_line_against_every_dump_names_nobody_for_sure(tmp_path: Path) -> None:
    """A line of another job in a log: its rank seems to wait in a call that no dump has, and all its peers to be late."""
    shutil.copytree(FIXTURES / "dtype_mismatch_detail" / "dumps", tmp_path / "job")
    log = tmp_path / "job" / "logs" / "rank1.err"
    log.write_text(STATUS.format(2, 2, 11, 10) + log.read_text())
    report = analyze(tmp_path / "job")
    assert report.verdict is not None
    assert report.verdict.cause == "dtype_mismatch" or report.verdict.confidence != "high"
    assert "contradiction" in {w.code for w in report.warnings}


def test_a_status_far_beyond_the_entries_is_no_sure_wait(tmp_path: Path, healthy: Path) -> None:
    for path in healthy.iterdir():
        shutil.copy(path, tmp_path)
    dump = pickle.loads((tmp_path / "nccl_trace_rank_1").read_bytes())
    dump["pg_status"]["0"]["last_enqueued_collective"] = 32768
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump, protocol=2))
    report = analyze(tmp_path)
    assert report.status != "no_hang"
    assert report.verdict is None or report.verdict.confidence != "high"


@pytest.mark.parametrize(
    ("seqs", "odd"),
    [
        ((12, 14, 14), True),
        ((12, 4, 14), True),
        ((12, 12, 14), True),
        ((12, 13, 13), False),
        ((9, 12, 15), False),
    ],
)
def test_a_number_out_of_its_row_is_damage(tmp_path: Path, seqs: tuple[int, int, int], odd: bool) -> None:
    """`coalesced` calls share a number and DETAIL leaves some out; none stands where another belongs."""
    recorders = job(2)
    for recorder in recorders:
        recorder.call("all_reduce", times=15)
        recorder.write(tmp_path)
    dump = recorders[1].dump()
    for entry, seq in zip(dump["entries"][11:14], seqs, strict=True):
        entry["collective_seq_id"] = seq
    dump["entries"][11:] = dump["entries"][11:14]
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump, protocol=2))
    assert ("odd_values" in {w.code for w in analyze(tmp_path).warnings}) == odd


def test_a_job_whose_calls_did_not_fit_was_not_surely_ended_from_outside(tmp_path: Path) -> None:
    text = (FIXTURES / "text" / "wrapped_detail_majority.txt").read_text()
    log = tmp_path / "job.log"
    log.write_text(
        text[: text.index("[rank1]: RuntimeError")]
        + "slurmstepd: error: *** JOB 88125 ON node03 CANCELLED AT 2026-03-02T11:00:21 DUE TO TIME LIMIT ***\n"
    )
    assert certainty(analyze(log))[1] != "high"


def test_an_abort_among_watchdogs_is_no_sure_fault_of_its_own(tmp_path: Path) -> None:
    """Its watchdog's lines are lost: what is left of the rank is that it was aborted, as its peers were."""
    recorders = stuck(4, culprit=3)
    write_all(recorders, tmp_path)
    timed_out = "[rank{0}]:[E312 07:30:14.211955268 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600002 milliseconds before timing out.\n"
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(timed_out.format(rank))
    (tmp_path / "slurm.out").write_text(
        "".join(f"srun: error: node1: task {rank}: Aborted (core dumped)\n" for rank in range(4))
    )
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and (verdict.cause != "crashed_rank" or verdict.confidence != "high")


def test_a_size_that_invalid_bytes_hide_makes_no_sure_mismatch(tmp_path: Path) -> None:
    text = (FIXTURES / "text" / "watchdog_all_of_four.txt").read_bytes()
    log = tmp_path / "job.log"
    log.write_bytes(text.replace(b"NumelOut", b"Nume\xb0Out", 1))
    assert certainty(analyze(log))[1] != "high"


def _in_a_barrier(folder: Path, skips: int) -> Path:
    """Write dumps and logs of four ranks, of which rank 1 is in a barrier; the log of rank `skips` says that it skipped a batch."""
    recorders = job(4)
    for recorder in recorders:
        odd = recorder.rank == 1
        for _ in range(9):
            recorder.call("all_reduce", sizes=[[64]], line=27)
        recorder.call("barrier" if odd else "all_reduce", line=41 if odd else 27, state="scheduled")
        lines = [f"rank {recorder.rank} step {step} loss 0.{9 - step}" for step in range(5)]
        lines += [f"rank {skips} step 5 loss is nan, skipping batch"] if recorder.rank == skips else []
        (folder / f"rank_{recorder.rank}.log").write_text("\n".join(lines) + "\n")
    return write_all(recorders, folder)


@pytest.mark.parametrize(("skips", "sure"), [(1, "high"), (2, "medium")])
def test_another_rank_that_alone_printed_something_right_before_lowers_it(
    tmp_path: Path, skips: int, sure: str
) -> None:
    report = analyze(_in_a_barrier(tmp_path, skips))
    assert report.verdict is not None
    assert (report.verdict.culprit_ranks, report.verdict.confidence) == ((1,), sure)


@pytest.mark.parametrize(
    ("third", "sure"), [((27, "all_reduce"), "high"), ((41, "barrier"), "medium")], ids=["its own", "another"]
)
def test_a_stack_that_does_not_fit_the_dump_of_its_rank_lowers_it(
    tmp_path: Path, third: tuple[int, str], sure: str
) -> None:
    """The dump of rank 2 may be older, or exchanged for that of another rank."""
    folder = _in_a_barrier(tmp_path, 1)
    head = "Current thread 0x00007f4b7d1296c0 (most recent call first):\n"
    for rank, (line, op) in enumerate([(27, "all_reduce"), (41, "barrier"), third, (27, "all_reduce")]):
        frames = f'  File "{TORCH}/distributed/distributed_c10d.py", line 99 in {op}\n  File "{SCRIPT}", line {line} in step\n'
        (folder / f"stack_rank_{rank}.txt").write_text(head + frames)
    report = analyze(folder)
    assert report.verdict is not None
    assert (report.verdict.culprit_ranks, report.verdict.confidence) == ((1,), sure)
