"""What no program printed, what a log breaks off in, and what is of none of the ranks makes no verdict sure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hangscope.explain.statements.torn_lines import is_garbled
from tests.conftest import FIXTURES, analyze
from tests.verdict.test_damage import certainty

TEXT = FIXTURES / "text"
CAUGHT = (TEXT / "harmless_caught_error.txt").read_text()
WATCHED = (TEXT / "nccl2_exception.txt").read_text()
ENDED = (TEXT / "harmless_deepspeed_to_its_end.txt").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "[waAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "ranranranranranranranranranranranran",
        "rank 1 step 2 loss 0.5rank 1 step 2 loss 0.5rank 1 step 2 loss 0.5rank 1 step 2",
        "[rank9]: RuntimeError: WatchdimeError: WatchdimeError: WatchdimeError: WatchdimeError",
        "rank 0 s\ufffdep 1",
        "Timed out after 601 seconds. 1/2 joined.Timed out after 601 seconds. 3/2 joined.Timed out after 601 seconds.",
    ],
)
def test_a_piece_that_follows_itself_is_no_text(line: str) -> None:
    assert is_garbled(line)


@pytest.mark.parametrize(
    "line",
    [
        "grad norms [nan, nan, nan, nan, nan, nan, nan, nan, nan, nan]",
        "weights 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0",
        "<pad><pad><pad><pad><pad><pad><pad><pad><pad><pad>",
        "the the the the the the the the the the",
        "========================================",
        "[rank0]:            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "address 0x0000000000000000000000000000000000000",
        "rank 1 step 2 loss 0.5rank 1 step 3 loss 0.4",
        "{'lr': 1}, {'lr': 1}, {'lr': 1}, {'lr': 1}",
    ],
)
def test_a_list_of_equal_items_is_text(line: str) -> None:
    assert not is_garbled(line)


@pytest.mark.parametrize(
    "line",
    [
        "[wa" + "A" * 500,
        '  File "/usr/lib/python3.11/threading.py", line 9 in run',
        "\0\0default_pgq\tX\5\0\0\0ranksq",
    ],
)
def test_what_no_program_prints_says_nothing_of_its_rank(tmp_path: Path, line: str) -> None:
    """It made a collective inside the loop of what is a loop that ended early, and that for certain."""
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "uneven_loader_later_epoch" / "dumps", job)
    assert certainty(analyze(job)) == ("uneven_loader", "medium")
    log = job / "logs" / "rank3.out"
    *lines, _ = log.read_text().splitlines()
    log.write_text("\n".join([*lines, line, ""]))
    assert certainty(analyze(job)) == ("uneven_loader", "medium")


@pytest.mark.parametrize(
    "message",
    ["WatchdimeError: " * 20, "Watchdog caught coll 3 loss 0.3789", "WatchdQZ"],
)
def test_what_is_left_of_a_watchdogs_words_is_no_sure_death(tmp_path: Path, message: str) -> None:
    log = tmp_path / "job.log"
    log.write_text(WATCHED[: WATCHED.index("Watchdog")] + message + "\n")
    verdict = analyze(log).verdict
    assert verdict is None or verdict.confidence != "high"


def test_an_error_in_which_a_log_breaks_off_is_no_sure_death(tmp_path: Path) -> None:
    """What the log goes on with shows that the error was caught."""
    log = tmp_path / "job.log"
    log.write_text(CAUGHT[: CAUGHT.index(" timed out")])
    cut = analyze(log)
    assert "open_end" in {w.code for w in cut.warnings}
    assert cut.verdict is None or cut.verdict.confidence != "high"
    log.write_text(CAUGHT[: CAUGHT.index("[rank0]: step 41")])
    whole = analyze(log)
    assert not whole.warnings and certainty(whole) == ("crashed_rank", "high")


@pytest.mark.parametrize(("message", "sure"), [("read w2 loss 3.05", "medium"), ("no loss 3.05", "high")])
def test_an_error_that_ends_as_another_line_is_torn(tmp_path: Path, message: str, sure: str) -> None:
    log = tmp_path / "job.log"
    log.write_text(CAUGHT[: CAUGHT.index("read timed out")] + message + "\n")
    assert certainty(analyze(log)) == ("crashed_rank", sure)


def test_a_log_with_pieces_of_a_dump_says_nothing_of_its_rank(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "shape_mismatch" / "dumps", job)
    assert certainty(analyze(job)) == ("shape_mismatch", "medium")
    log = job / "logs" / "rank2.out"
    first, *lines, last = log.read_bytes().splitlines(keepends=True)
    pieces = b"usX\x07entriesq]q(}q(X\x06framesq]q(}q(hX\n"
    log.write_bytes(b"".join([first.rstrip() * 12 + b"\n", *lines, pieces, last]))
    assert certainty(analyze(job)) == ("shape_mismatch", "medium")


def test_a_quiet_line_without_a_line_feed_is_no_damage(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(CAUGHT.rstrip("\n"))
    assert not analyze(log).warnings


@pytest.mark.parametrize(
    "line", ["[rank2]:[E1102 19:05:51.300711023 ProcessGroupNCCLUtils.cpp:455] [TC][rank=2][name=me"]
)
def test_a_launcher_whose_processes_ended_says_nothing_of_another_rank(tmp_path: Path, line: str) -> None:
    log = tmp_path / "job.log"
    log.write_text(ENDED)
    assert analyze(log).status == "no_hang"
    log.write_text(line + ENDED)
    assert analyze(log).status == "inconclusive"


def test_a_line_of_a_rank_without_a_log_in_that_of_another_is_damage(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "early_return_torchrun_torch215" / "dumps", job)
    assert "contradiction" not in {w.code for w in analyze(job).warnings}
    (log,) = (job / "log_dir").glob("*/attempt_0/2/stdout.log")
    text = log.read_text()
    death = (
        "2026/03/02 11:00:21 [rank4]: RuntimeError: DataLoader worker (pid(s) 7123, 7127) exited unexpectedly"
    )
    log.write_text(death + text)
    report = analyze(job)
    assert "a line of rank 4 is in the log of rank 2" in [w.message for w in report.warnings]
    assert report.verdict is None or report.verdict.confidence != "high"
