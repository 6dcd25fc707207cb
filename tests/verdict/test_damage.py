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
from tests.dump_writer import job, stuck, write_all

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
    assert "no text" in " ".join(torn.to_dict()["confidence_why"])


def test_a_file_that_breaks_off_lowers_it(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log.gz"
    data = gzip.compress(DEATH + b"".join(b"line %d\n" % (n * n) for n in range(20_000)))
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
    assert "nccl_trace_rank_1, on which it rests, is damaged" in " ".join(changed.to_dict()["confidence_why"])


def test_nothing_hangs_only_where_all_files_are_whole(tmp_path: Path, healthy: Path) -> None:
    for path in healthy.iterdir():
        shutil.copy(path, tmp_path)
    assert analyze(tmp_path).status == "no_hang"
    dump = pickle.loads((tmp_path / "nccl_trace_rank_1").read_bytes())
    dump["entries"][2]["retired"] = 2
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump, protocol=2))
    assert analyze(tmp_path).status == "inconclusive"


SAME_GPU = (FIXTURES / "text" / "last_error_same_partition.txt").read_text()


@pytest.mark.parametrize(
    "damaged",
    [
        SAME_GPU.replace("[rank0]: Last error: \n", ""),
        SAME_GPU.replace("DistBackendError: NCCL", "DistBackendError  NCCL"),
        SAME_GPU[: SAME_GPU.index("ncclInvalidUsage") + 20],
        SAME_GPU[: SAME_GPU.index("2.30.7")] + "venv/lib/python3.11/site-packages/torch/_tensor.py",
    ],
)
def test_an_error_of_the_communication_layer_is_no_sure_death(tmp_path: Path, damaged: str) -> None:
    """Whole, it names two ranks that share a GPU; what tells so may be torn off."""
    log = tmp_path / "job.log"
    log.write_text(SAME_GPU)
    assert certainty(analyze(log)) == ("init_hang", "high")
    log.write_text(damaged)
    verdict = analyze(log).verdict
    assert verdict is None or verdict.cause == "init_hang" or verdict.confidence != "high"


@pytest.mark.parametrize(
    ("name", "word", "damaged"),
    [
        ("zero_params_gather", "same model across all ranks", "same modul across all rafks"),
        ("detail_fingerprint_one_rank", "between collectives", "between colletives"),
        ("detail_failed_to_pass_but_in_call", "monitoredBarrier", "monmtoredBarrier"),
    ],
)
def test_a_changed_letter_makes_no_death_of_it(tmp_path: Path, name: str, word: str, damaged: str) -> None:
    text = (FIXTURES / "text" / f"{name}.txt").read_text()
    assert word in text
    log = tmp_path / "job.log"
    log.write_text(text.replace(word, damaged))
    verdict = analyze(log).verdict
    assert verdict is None or verdict.cause != "crashed_rank" or verdict.confidence != "high"


TABLE = (FIXTURES / "text" / "table_exit1_before_sigkill.txt").read_text()


@pytest.mark.parametrize(
    "damaged",
    [
        TABLE.replace("  rank      : 4 (local_rank: 4)\n", ""),
        TABLE[: TABLE.index("[2]:") + 30],
        TABLE.replace(
            "  exitcode  : -9 (pid: 416)\n", "  exitcode  : -9 (pid: 416)\n  exitcode  : 1 (pid: 415)\n"
        ),
    ],
)
def test_a_torn_table_of_failures_is_not_sure(tmp_path: Path, damaged: str) -> None:
    log = tmp_path / "job.log"
    log.write_text(TABLE)
    whole = analyze(log)
    assert certainty(whole) == ("crashed_rank", "high") and not whole.warnings
    log.write_text(damaged)
    torn = analyze(log)
    assert [w.code for w in torn.warnings] == ["torn_table"]
    assert torn.verdict is None or torn.verdict.confidence != "high"


def test_a_dump_under_the_name_of_a_log_may_be_anybodys(tmp_path: Path) -> None:
    """As where two files changed places: the name alone says whose it is."""
    whole = FIXTURES / "dtype_mismatch" / "dumps"
    shutil.copytree(whole, tmp_path / "job")
    recorder, logs = tmp_path / "job" / "recorder", tmp_path / "job" / "logs"
    (recorder / "comm_lib_trace_rank_1").rename(logs / "rank0.err")
    report = analyze(tmp_path / "job")
    assert "odd_name" in {w.code for w in report.warnings}
    assert report.verdict is not None and report.verdict.confidence != "high"


def test_a_store_that_is_gone_at_the_end_names_nobody(tmp_path: Path) -> None:
    """Its first line, which says that the job was over, is torn."""
    text = (FIXTURES / "text" / "harmless_store_gone.txt").read_text()
    log = tmp_path / "job.log"
    log.write_text("Tra" + text.partition("\n")[2])
    verdict = analyze(log).verdict
    assert verdict is None or (not verdict.culprit_ranks and verdict.confidence != "high")


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
