"""What decides a verdict, and what its rivals have for and against them."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, world
from tests.text_lines import DEFAULT, judged, observed, status, timeout, told


def _stuck(folder: Path) -> Path:
    for rank in range(4):
        recorder = Recorder(rank, world(4)).call("all_reduce", times=20)
        if rank != 2:
            recorder.call("all_reduce", state="scheduled")
        recorder.write(folder)
    return folder


def test_what_decides_is_about_the_culprit_and_no_line_of_any_freeze(tmp_path: Path) -> None:
    _stuck(tmp_path)
    for rank in (0, 1, 3):
        lines = [timeout(rank, group=DEFAULT, seq=21, n=8), status(rank, 21, 21, 20)]
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "rank_2.log").write_text(observed(2) + "\n")
    verdict = judged(analyze(tmp_path))
    first = [verdict.evidence[i] for i in verdict.deciding]
    assert verdict.culprit_ranks == (2,) and first
    assert {item.rank for item in first[:2]} == {2}
    assert not any("caught collective operation timeout" in item.text for item in first)


def test_text_alone_leads_with_the_line_of_the_culprit(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, [timeout(0), timeout(1), timeout(3), observed(2)]))
    assert verdict.evidence[verdict.deciding[0]].rank == 2


def test_the_stop_begins_with_the_first_call_that_stays_open(tmp_path: Path) -> None:
    verdict = judged(analyze(_stuck(tmp_path)))
    assert verdict.since is not None and verdict.until is None


def test_rivals_say_what_they_leave_unexplained_and_what_would_decide(tmp_path: Path) -> None:
    report = analyze(_stuck(tmp_path))
    best, *rivals = report.analysis.judgement.hypotheses
    assert (best.cause, best.ranks, best.would_decide) == ("stuck_rank", (2,), "")
    assert best.fits and not best.contradicts
    assert all(rival.would_decide for rival in rivals)


def test_an_explanation_that_frees_not_everybody_is_contradicted(tmp_path: Path) -> None:
    groups = {**world(4), "1": ("left", (0, 1)), "2": ("right", (2, 3))}
    for rank in range(4):
        name = "1" if rank < 2 else "2"
        recorder = Recorder(rank, groups).call("all_reduce", name, times=9)
        recorder.call("all_reduce", name, state="scheduled", times=rank in (0, 3))
        recorder.write(tmp_path)
    # Without a word of a timeout, two of four that are idle may be those of a job that moves.
    (tmp_path / "rank0.log").write_text(timeout(0, group="PG ID 1 PG GUID 1(left) ", seq=10) + "\n")
    verdict = judged(analyze(tmp_path))
    assert set(verdict.culprit_ranks) == {1, 2}
    best = analyze(tmp_path).analysis.judgement.hypotheses[0]
    assert best.ranks == (1, 2) and not best.contradicts


def test_how_a_wait_ended_and_who_terminated_the_job_are_noted(tmp_path: Path) -> None:
    _stuck(tmp_path)
    (tmp_path / "rank_0.log").write_text(timeout(0, group=DEFAULT, seq=21, n=8) + "\n")
    end = "W1122 03:04:52.290000 24494 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers"
    (tmp_path / "torchrun.log").write_text(end + "\n")
    verdict = judged(analyze(tmp_path))
    facts = [fact.text for fact in verdict.evidence if fact.stance == "for"]
    assert any(fact.startswith("rank 0 was blocked until it timed out: ") for fact in facts)
    assert any(
        fact.startswith("in the end the job was terminated from outside (SIGTERM): ") for fact in facts
    )


def test_the_launchers_first_failure_contradicts_an_end_alone(tmp_path: Path) -> None:
    _stuck(tmp_path)
    table = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-20_15:31:51",
        "  host      : gpu07",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : 1 (pid: 29459)",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    ]
    (tmp_path / "torchrun.log").write_text("\n".join(table) + "\n")
    verdict = judged(analyze(tmp_path))
    (said,) = [fact for fact in verdict.evidence if "first observed failure" in fact.text]
    assert verdict.cause == "stuck_rank" and said.stance == "for"
