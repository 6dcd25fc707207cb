"""A verdict that rests on a line which was torn, changed or stands in another rank's log is not as sure as on a whole one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, analyze
from tests.verdict.test_damage import STATUS, certainty

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
    assert "torn_table" in [w.code for w in torn.warnings]
    assert torn.verdict is None or torn.verdict.confidence != "high"


def test_a_store_that_is_gone_at_the_end_names_nobody(tmp_path: Path) -> None:
    """Its first line, which says that the job was over, is torn."""
    text = (FIXTURES / "text" / "harmless_store_gone.txt").read_text()
    log = tmp_path / "job.log"
    log.write_text("Tra" + text.partition("\n")[2])
    verdict = analyze(log).verdict
    assert verdict is None or (not verdict.culprit_ranks and verdict.confidence != "high")


DEATH_OF_RANK_1 = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/workspace/train.py", line 3, in <module>\n[rank1]:     main()\n'
    "[rank1]: ValueError: sample 37 is broken\n"
)


@pytest.mark.parametrize(
    "damaged",
    [
        DEATH_OF_RANK_1.partition("\n")[2],
        DEATH_OF_RANK_1.rpartition("[rank1]: ")[1] + DEATH_OF_RANK_1.rpartition("[rank1]: ")[2],
        DEATH_OF_RANK_1.replace("most recent call last):\n", "mo"),
        DEATH_OF_RANK_1.replace("[rank1]: Value", "[rank2]: Value"),
        DEATH_OF_RANK_1.replace('  File "/workspace', "  step 3"),
    ],
    ids=["no head", "last line", "torn head", "another's end", "no frame"],
)
def test_a_traceback_without_its_beginning_is_no_sure_death(tmp_path: Path, damaged: str) -> None:
    """Its last line may be of an error that was caught, of another rank, or of another job."""
    log = tmp_path / "job.log"
    log.write_text(DEATH_OF_RANK_1)
    assert certainty(analyze(log)) == ("crashed_rank", "high")
    log.write_text(damaged)
    torn = analyze(log)
    assert torn.verdict is None or torn.verdict.confidence != "high"


def test_a_launcher_that_saw_the_end_makes_a_torn_traceback_sure_again(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        DEATH_OF_RANK_1.partition("\n")[2] + "srun: error: node1: task 1: Exited with exit code 1\n"
    )
    (tmp_path / "more.log").write_text("[rank0]: step 1\n[rank1]: step 1\n")
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.cause == "crashed_rank"


def test_code_behind_a_changed_prefix_is_no_exception(tmp_path: Path) -> None:
    """`[rank1]scheduled:     main()` was read as an exception of the type `scheduled`."""
    log = tmp_path / "rank1.err"
    log.write_text(DEATH_OF_RANK_1.replace("[rank1]:     main()", "[rank1]scheduled:     main()"))
    verdict = analyze(log).verdict
    assert verdict is not None and "scheduled" not in verdict.summary and "sample 37" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]: RuntimeError: [Rank 0]: Rank 1 failed to pass m",
        "[rank0]: RuntimeError: Deteche following aspects:   Sequence number: 6vs 0  Op type: ALLREDUCEvs REDUCE",
        "[rank0]: RuntimeError: Detect6vs 0  Op type: ALLREDUCEvs REDUCE",
    ],
)
def test_what_is_left_of_the_wrappers_words_is_no_death(tmp_path: Path, line: str) -> None:
    log = tmp_path / "job.log"
    log.write_text(DEATH_OF_RANK_1.replace("[rank1]", "[rank0]").rpartition("[rank0]: ")[0] + line + "\n")
    verdict = analyze(log).verdict
    assert verdict is None or verdict.confidence != "high"


@pytest.mark.parametrize(
    "name",
    ["work_hccl", "glued_behind_bar"],
)
def test_a_timeout_without_any_dump_is_no_proof_that_the_call_completed(tmp_path: Path, name: str) -> None:
    """Whose it is was torn from the line: then no rank is known, and of none of them is there a dump with an open call."""
    text = (FIXTURES / "text" / f"{name}.txt").read_text()
    for damaged in (
        text.replace("[Rank ", "YRank ").replace("[rank", "Yrank"),
        text.replace("Rank 6", "Rank 262144"),
    ):
        log = tmp_path / "job.log"
        log.write_text(damaged)
        report = analyze(log)
        assert report.status != "no_hang"


def _logs(folder: Path, more: dict[int, str]) -> Path:
    folder.mkdir()
    for rank in range(4):
        (folder / f"rank{rank}.log").write_text(STATUS.format(rank, rank, 5, 4) + more.get(rank, ""))
    return folder


def test_a_line_in_the_log_of_another_rank_is_damage(tmp_path: Path) -> None:
    whole = analyze(_logs(tmp_path / "whole", {1: DEATH_OF_RANK_1}))
    assert not whole.warnings
    misplaced = analyze(_logs(tmp_path / "misplaced", {2: DEATH_OF_RANK_1}))
    assert [w.code for w in misplaced.warnings] == ["contradiction"]
    assert "rank 1 is in the log of rank 2" in misplaced.warnings[0].message
    assert misplaced.verdict is None or misplaced.verdict.confidence != "high"


def test_everybodys_output_under_the_name_of_one_is_none(tmp_path: Path) -> None:
    everybody = "".join(STATUS.format(rank, rank, 5, 4) for rank in range(4))
    folder = _logs(tmp_path / "job", {0: everybody})
    assert not analyze(folder).warnings


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (STATUS.format(3, 1, 5, 4), "of rank 3, and of rank 1"),
        (STATUS.format(9223372036854775808, 3, 5, 4), "which no job has"),
        (STATUS.format(-1, 3, 5, 4), "which no job has"),
    ],
)
def test_a_line_of_two_ranks_is_damage(tmp_path: Path, line: str, says: str) -> None:
    folder = _logs(tmp_path / "job", {3: line})
    report = analyze(folder)
    assert [w.code for w in report.warnings] == ["contradiction"] and says in report.warnings[0].message


RECORD = (
    '{"ts": "2026-03-02T11:00:21.902Z", "level": "error", "msg": "[rank2]: Traceback (most recent call last):\\n'
    '[rank2]:   File \\"/srv/train.py\\", line 88, in <module>\\n[rank2]: torch.OutOfMemoryError: CUDA out of memory."}\n'
)


@pytest.mark.parametrize(
    ("whole", "torn"),
    [
        (RECORD, "['python3', '-u', '--deepspeed_confi" + RECORD[RECORD.index('"level"') :]),
        (
            "[rank5]:[E716 02:44:10.881 ProcessGroupNCCL.cpp:629] ncclInvalidUsage: This usually reflects invalid usage of NCCL library. "
            "Last error: Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 1b000\n",
            "[rank5]:[ElidUsage: This usually reflects invalid usage of NCCL library. "
            "Last error: Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 1b000\n",
        ),
    ],
    ids=["JSON", "header"],
)
def test_a_record_without_its_beginning_is_not_sure(tmp_path: Path, whole: str, torn: str) -> None:
    log = tmp_path / "job.log"
    confidence = []
    for text in (whole, torn):
        log.write_text(text)
        verdict = analyze(log).verdict
        confidence.append(verdict and verdict.confidence)
    assert confidence == ["high", "medium"]


@pytest.mark.parametrize(
    ("name", "whole", "torn"),
    [
        ("slurm_task_exited", "srun: error: gpu-b07: task", "srun: task"),
        ("interrupted_srun_label", "2: KeyboardInterrupt\n3: ", "2: KeyboardInterrupt3: "),
    ],
)
def test_a_launchers_line_that_is_torn_or_glued_is_damage(
    tmp_path: Path, name: str, whole: str, torn: str
) -> None:
    text = (FIXTURES / "text" / f"{name}.txt").read_text()
    assert whole in text
    log = tmp_path / "job.log"
    log.write_text(text)
    assert "contradiction" not in {w.code for w in analyze(log).warnings}
    log.write_text(text.replace(whole, torn))
    report = analyze(log)
    assert "contradiction" in {w.code for w in report.warnings}
    assert report.verdict is None or report.verdict.confidence != "high"


def test_a_process_that_ended_and_never_started_is_damage(tmp_path: Path) -> None:
    text = (FIXTURES / "text" / "harmless_deepspeed_to_its_end.txt").read_text()
    log = tmp_path / "job.log"
    log.write_text(text)
    assert analyze(log).status == "no_hang"
    log.write_text("\n".join(text.split("\n")[2:]))
    assert analyze(log).status == "inconclusive"


def test_who_died_in_a_damaged_log_is_not_sure(tmp_path: Path) -> None:
    """What ended it, its watchdog, is said in lines that are changed; what is left is an abort as of a fault of its own."""
    srun = "srun: error: node1: task 3: Aborted (core dumped)\n"
    folder = _logs(tmp_path / "job", {3: STATUS.format(9223372036854775808, 3, 5, 4)})
    (folder / "slurm.out").write_text("[rank0]: step 1\n" + srun)
    verdict = analyze(folder).verdict
    assert verdict is None or verdict.cause != "crashed_rank" or verdict.confidence != "high"


def test_a_table_that_lacks_an_entry_is_torn(tmp_path: Path) -> None:
    table = TABLE[TABLE.index("  time") :]
    log = tmp_path / "job.log"
    log.write_text("Failures:\n[3]:\n" + table)
    assert [w.code for w in analyze(log).warnings] == ["torn_table"]
    log.write_text(TABLE)
    assert not analyze(log).warnings


def test_lines_glued_by_thousands_are_read_one_by_one(tmp_path: Path) -> None:
    """A port in use was put to the rank whose line stood before it."""
    head = (FIXTURES / "text" / "prefix_mpirun_merged.txt").read_text().splitlines()[0]
    bound = "[E socket.cpp:469] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
    log = tmp_path / "job.log"
    log.write_text((head + bound) * 100 + "\n")
    verdict = analyze(log).verdict
    assert verdict is None or 3 not in verdict.culprit_ranks


def test_a_launchers_line_in_a_ranks_own_log_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(4):
        (folder / f"rank{rank}.out").write_text(
            f"rank {rank} step 0 loss 0.75\nrank {rank} step 1 loss 0.74\n"
        )
    srun = "srun: error: node1: task 1: Aborted (core dumped)\n"
    (folder / "slurm-17.out").write_text(srun)
    assert not analyze(folder).warnings
    (folder / "slurm-17.out").unlink()
    (folder / "rank3.out").write_text(srun + (folder / "rank3.out").read_text())
    report = analyze(folder)
    assert [w.code for w in report.warnings] == ["contradiction"]
    assert report.verdict is None or report.verdict.confidence != "high"


@pytest.mark.parametrize("damaged", ["KeyboardOInterrupt", "\0eyboardInterrupt"])
def test_an_interrupt_of_another_spelling_is_no_sure_death(tmp_path: Path, damaged: str) -> None:
    text = (FIXTURES / "text" / "interrupted_srun_label.txt").read_text()
    log = tmp_path / "job.log"
    log.write_text(text.replace("2: KeyboardInterrupt", f"2: {damaged}"))
    verdict = analyze(log).verdict
    assert verdict is None or verdict.confidence != "high"
    log.write_text(text.replace("2: KeyboardInterrupt", "2: AssertionError"))
    assert certainty(analyze(log)) == ("crashed_rank", "high")


GPU_TWICE = (FIXTURES / "text" / "last_error_duplicate_gpu.txt").read_bytes()


@pytest.mark.parametrize(
    "damaged",
    [
        GPU_TWICE.replace(b"    main()\n", b"    main()\n\3\0(M\xd1\xb5t"),
        GPU_TWICE.replace(b'  File "/home/u/finetune/run.py", line 61, in <module>\n', b""),
    ],
    ids=["no text", "no frame"],
)
def test_a_traceback_with_a_hole_is_not_sure_evidence(tmp_path: Path, damaged: bytes) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(GPU_TWICE)
    assert certainty(analyze(log)) == ("init_hang", "high")
    assert damaged != GPU_TWICE
    log.write_bytes(damaged)
    assert certainty(analyze(log)) == ("init_hang", "medium")


def test_a_line_that_is_torn_in_one_of_two_files_says_nothing_of_its_rank(tmp_path: Path) -> None:
    """The launcher's own log holds it as well, and whole."""
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "uneven_loader_detail" / "dumps", job)
    (log,) = (job / "log_dir").glob("*/attempt_0/1/stdout.log")
    text = log.read_text()
    log.write_text(text.replace("rank 1 step 1 loss", "ranstep 1 loss"))
    assert log.read_text() != text
    assert certainty(analyze(job)) == ("uneven_loader", "medium")


def test_a_port_in_use_is_no_sure_cause_for_who_made_calls(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "stuck_loader_detail" / "dumps", job)
    assert certainty(analyze(job)) == ("stuck_rank", "high")
    log = job / "logs" / "rank3.out"
    bound = (
        "ddress. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    )
    log.write_text(log.read_text()[:30] + bound)
    assert certainty(analyze(job))[1] != "high"
