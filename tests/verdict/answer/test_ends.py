"""How processes ended: signals, exit codes and exceptions, with what to collect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told


@pytest.mark.parametrize(
    ("line", "phrases", "absent"),
    [
        (
            "E0311 18:40:03.701000 50090 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 2 (pid: 50102) of binary: python",
            ["pid 50102", "core dump"],
            "out-of-memory",
        ),
        ("[1]    40211 killed     torchrun --nproc_per_node 2 train.py", ["40211"], "nothing here shows"),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29531, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            ["29531"],
            "wait",
        ),
    ],
)
def test_an_end_says_what_to_collect(tmp_path: Path, line: str, phrases: list[str], absent: str) -> None:
    explanation = judged(told(tmp_path, [line])).explanation
    assert not [phrase for phrase in phrases if phrase not in explanation] and absent not in explanation


def test_an_exception_that_is_a_timeout_is_not_to_be_fixed(tmp_path: Path) -> None:
    error = [
        "Traceback (most recent call last):",
        '  File "train.py", line 4, in <module>',
        "RuntimeError: Waiting for local rank 0, bailing out: 60 < 61 sec.",
    ]
    verdict = judged(told(tmp_path, error))
    assert verdict.cause == "unknown"
    assert verdict.explanation.startswith("A process raised RuntimeError at train.py:4")
    assert not any("Fix" in step for step in verdict.advice)


def test_the_process_that_the_kernel_killed_has_the_rank_of_its_id(tmp_path: Path) -> None:
    lines = [
        "20:15:02 [rank5] pid 78808 writing shard",
        "[ 10.5] Out of memory: Killed process 78808 (python) total-vm:1kB",
    ]
    assert judged(told(tmp_path, lines)).culprit_ranks == (5,)


def test_whom_the_launcher_ended_after_the_first_death_is_no_second_death(tmp_path: Path) -> None:
    table = [
        "[0]:",
        "  time      : 2026-03-02_10:00:00",
        "  host      : n1",
        "  rank      : {rank} (local_rank: {rank})",
        "  exitcode  : {code} (pid: 50{rank})",
        "  error_file: <N/A>",
    ]
    lines = ["train.py FAILED", "Failures:"]
    for rank in (0, 1, 3):
        lines += [line.format(rank=rank, code=-15) for line in table]
    lines += ["Root Cause (first observed failure):", *(line.format(rank=2, code=-7) for line in table)]
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == (2,)
    assert "The launcher ended ranks 0, 1 and 3 after it (SIGTERM)" in verdict.explanation
