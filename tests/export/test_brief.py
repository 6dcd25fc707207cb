"""`hangscope brief`: everything that decides, in order, in a bounded number of bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hangscope.export.brief import _shares
from tests.conftest import FIXTURES, Run, analyze
from tests.dump_writer import job, stuck, write_all


def titles(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_what_decides_comes_first_with_file_and_line() -> None:
    text = analyze(FIXTURES / "rank_conditional_barrier").to_brief()
    assert titles(text)[:3] == [
        "Verdict",
        "Also possible, and ruled out",
        "First difference between the ranks",
    ] or (titles(text)[0] == "Verdict" and "First difference between the ranks" in titles(text))
    assert "at: /workspace/train/train.py:20 in save_checkpoint" in text
    assert re.search(r"^why: .*barrier seq 9.* \[\S*comm_lib_trace_rank_0\]$", text, re.MULTILINE)
    assert re.search(r"A: all_reduce seq 9 .* at train.py:13 .* \| B: barrier seq 9 ", text)
    assert "waits for rank 0" in text


def test_deaths_have_their_file_and_line() -> None:
    text = analyze(FIXTURES / "raising_rank_torchrun").to_brief()
    ends = text.partition("## Deaths and timeouts\n")[2].partition("\n\n")[0].splitlines()
    assert ends and all(re.search(r"\[\S+:\d+\]$", line) for line in ends)


def test_it_fits_at_any_length_and_says_what_is_left_out(tmp_path: Path) -> None:
    recorders = job(40)
    for recorder in recorders:
        recorder.call("all_reduce", times=3)
        if recorder.rank:
            recorder.call("all_reduce", sizes=[[recorder.rank]], state="scheduled", line=recorder.rank)
    report = analyze(write_all(recorders, tmp_path))
    whole = report.to_brief(1_000_000)
    for limit in (1_000, 3_000, 9_000):
        text = report.to_brief(limit)
        assert limit * 0.5 < len(text.encode()) <= limit
        assert ("more line" in text or "left out: " in text) and titles(text)[0] == "Verdict"
    assert "more line" not in whole and len(titles(whole)) > len(titles(report.to_brief(1_000)))


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    folder = write_all(stuck(8, culprit=3), tmp_path)
    assert analyze(folder).to_brief() == analyze(folder).to_brief()


def test_no_sentence_is_repeated(hang: Path) -> None:
    sentences = [
        line.split(": ", 1)[-1]
        for line in analyze(hang).to_brief().splitlines()
        if line and line[0] not in " #"
    ]
    assert len(sentences) == len(set(sentences))


def test_secrets_and_paths_are_hidden_as_in_the_report(tmp_path: Path) -> None:
    folder = write_all(stuck(3, culprit=1), tmp_path)
    (folder / "rank1.log").write_text("step 3\nonly here: password=hunter2hunter2\n")
    for rank in (0, 2):
        (folder / f"rank{rank}.log").write_text("step 3\n")
    assert "hunter2" not in analyze(folder).to_brief()
    assert "/workspace/train" not in analyze(folder, redact=["paths"]).to_brief()


@pytest.mark.parametrize(
    ("sizes", "total", "shares"),
    [
        ([10, 20], 100, [10, 20]),
        ([900, 10, 900], 1000, [495, 10, 495]),
        ([900, 900, 900], 700, [270, 270, 0]),
    ],
)
def test_room_is_shared(sizes: list[int], total: int, shares: list[int]) -> None:
    assert _shares(sizes, total) == shares


def test_the_command_prints_it(inside: Run, hang: Path) -> None:
    done = inside("brief", hang, "--max-bytes", 2000)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# Rank 2 ") and len(done.stdout.encode()) <= 2000
    assert inside("brief", hang, "--max-bytes", 10).returncode == 2
