"""What a text shows beyond the lines that parsers know, and what an answer does not ask for."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, told


def test_an_unknown_error_is_quoted_before_those_who_wait(tmp_path: Path) -> None:
    lines = [
        "2025-03-02 08:10:00 4410:4411 [0] plugin.c:88 XCCL WARN NET/OFI fabric plugin initialization failed"
    ]
    lines += [
        f"2025-03-02 08:1{n}:10 441{n % 2}:4420 [0] sock.h:5 XCCL WARN Timeout waiting for RX - retrying, [init, rank: {n % 2}/8/-1]"
        for n in range(4)
    ]
    explanation = judged(told(tmp_path, lines)).explanation
    assert explanation.startswith(
        "A network adapter or its plug-in reports an error: 'NET/OFI fabric plugin initialization failed'"
    )
    assert "(4 such lines from 08:10:10 to 08:13:10, 180 s)" in explanation
    assert "ranks 2-7 are not in this text" in explanation and "fi_info" in explanation


def test_the_worker_that_did_not_print_a_line_is_named(tmp_path: Path) -> None:
    lines = [
        f"(Worker_TP{n} pid=90{n}) INFO 09-03 14:22:3{n} [loader.py:262] Loading weights took 2{n}.10 seconds"
        for n in (0, 1, 3)
    ]
    lines.append(
        "(EngineCore_0 pid=900) INFO 09-03 14:24:31 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds."
    )
    assert "rank 2 is not in this text" in judged(told(tmp_path, lines)).explanation


def test_what_was_pasted_is_not_asked_for(tmp_path: Path) -> None:
    lines = [
        "HW Exception by GPU node-2 (Agent handle: 0x21a) reason :GPU Hang",
        "[68214.119320] amdgpu 0000:5d:00.0: uncorrectable hardware error detected!",
        "[68216.902155] amdgpu 0000:5d:00.0: amdgpu: GPU reset begin!",
    ]
    verdict = judged(told(tmp_path, lines))
    assert "dmesg" not in " ".join((verdict.explanation, *verdict.advice))
    assert "uncorrectable hardware error" in verdict.explanation
