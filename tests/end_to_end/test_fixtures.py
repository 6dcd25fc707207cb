"""Every incident with a known answer gets the right ranks, the right cause and the right status, and no false certainty."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangscope.api import Report
from tests.conftest import FIXTURES, INCIDENTS, analyze
from tests.report.consistency import contradictions

Incidents = list[Path]


def found(top: Path, pattern: str) -> Incidents:
    return sorted(path.parent for path in top.glob(pattern))


CAPTURED = found(FIXTURES, "*/truth.json")
#: Incidents next to the checkout that every version answered; the corpus (benchmarks/score.py --corpus) has the others.
SHARED = [
    p for name in ("gloo", "text", "megatron", "healthy") for p in found(INCIDENTS, f"{name}/*/truth.json")
]
#: the culprit left no dump, and its cause stands in the logs alone
CAUSE_IN_LOGS = {"uneven_ddp"}
#: DDP's constructor refuses the models on every rank after the same completed call: only the logs tell
WELL_BY_THEIR_DUMPS = {"model_mismatch", "model_mismatch_torchrun"}


def truth_of(incident: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((incident / "truth.json").read_text())
    return truth


def check(incident: Path, report: Report) -> None:
    truth = truth_of(incident)
    verdict = report.verdict
    ranks = list(verdict.culprit_ranks) if verdict else []
    cause = verdict.cause if verdict else None
    answers = truth.get("answers") or [truth["culprits"]]
    assert (report.status, ranks in answers) == (truth.get("status", "hang"), True), (
        ranks,
        truth,
        report.to_text(),
    )
    if truth.get("status") != "no_hang" and incident.name not in CAUSE_IN_LOGS:
        assert cause in truth["accept_causes"], (cause, truth, report.to_text())


def never_sure_and_wrong(incident: Path, report: Report) -> None:
    truth = truth_of(incident)
    verdict = report.verdict
    if verdict is not None and verdict.confidence == "high":
        assert list(verdict.culprit_ranks) in (truth.get("answers") or [truth["culprits"]]), report.to_text()
    if truth.get("status") == "no_hang":
        assert report.status != "hang"
    else:
        assert report.status != "no_hang" or incident.name in WELL_BY_THEIR_DUMPS


@pytest.mark.parametrize("incident", CAPTURED, ids=lambda p: p.name)
def test_captured(incident: Path) -> None:
    report = analyze(incident / "dumps")
    check(incident, report)
    assert contradictions(report) == []


@pytest.mark.skipif(not SHARED, reason=f"no incidents at {INCIDENTS}")
@pytest.mark.parametrize("incident", SHARED, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_shared(incident: Path) -> None:
    check(incident, analyze(incident / "dumps"))


@pytest.mark.parametrize("incident", CAPTURED[::3], ids=lambda p: p.name)
def test_the_dumps_alone_never_give_a_wrong_name_with_high_confidence(incident: Path) -> None:
    never_sure_and_wrong(incident, analyze(incident / "dumps" / "recorder"))


# -- as a GPU job leaves it ----------------------------------------------------------------------------------------


def in_backward(entry: dict[str, Any]) -> bool:
    return any(frame["name"] == "_engine_run_backward" for frame in entry["frames"])


def rewrite(incident: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy what an incident left into `folder`, with a change to every recorder entry."""
    shutil.copytree(incident / "dumps", folder)
    for path in (folder / "recorder").iterdir():
        dump = pickle.loads(path.read_bytes())
        for entry in dump["entries"]:
            change(entry)
        path.write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def empty_backward(entry: dict[str, Any]) -> None:
    if in_backward(entry):
        entry["frames"] = []


def with_backward(incident: Path) -> bool:
    return any(
        in_backward(e)
        for p in (incident / "dumps" / "recorder").iterdir()
        for e in pickle.loads(p.read_bytes())["entries"]
    )


DDP = [incident for incident in CAPTURED if with_backward(incident)]


SOME_DDP = [pytest.param(incident, id=incident.name) for incident in DDP[::3]]


def test_there_are_ddp_fixtures() -> None:
    assert len(DDP) >= 8


@pytest.mark.parametrize("incident", SOME_DDP)
def test_without_the_frames_of_backward_the_ranks_stay_right(incident: Path, tmp_path: Path) -> None:
    """Gradient reductions of GPU jobs run on autograd's device thread, which has no Python frames."""
    report = analyze(rewrite(incident, tmp_path / "dumps", empty_backward))
    truth = truth_of(incident)
    ranks = list(report.verdict.culprit_ranks) if report.verdict else []
    assert (report.status, ranks) == (truth.get("status", "hang"), truth["culprits"]), report.to_text()


@pytest.mark.parametrize("incident", SOME_DDP)
def test_without_any_frame_nobody_is_named_for_certain_and_wrongly(incident: Path, tmp_path: Path) -> None:
    """Dumps that were retried without stacks have no `frames` key at all."""
    never_sure_and_wrong(
        incident, analyze(rewrite(incident, tmp_path / "dumps", lambda entry: entry.pop("frames", None)))
    )


# -- a job that ended well -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["healthy", "mesh_healthy"])
def test_one_clean_dump_is_no_proof(name: str, tmp_path: Path) -> None:
    source = FIXTURES / name / "dumps" / "recorder" / "comm_lib_trace_rank_1"
    shutil.copy(source, tmp_path)
    report = analyze(tmp_path)
    assert report.status == "inconclusive"
    assert report.verdict is None or not report.verdict.culprit_ranks


def test_three_of_four_clean_dumps_are_no_proof(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "healthy" / "dumps" / "recorder", tmp_path / "dumps")
    (tmp_path / "dumps" / "comm_lib_trace_rank_2").unlink()
    assert analyze(tmp_path / "dumps").status == "inconclusive"


def test_all_dumps_of_a_job_that_ended_well(tmp_path: Path) -> None:
    for name in ("healthy", "healthy_torchrun", "mesh_healthy"):
        report = analyze(FIXTURES / name / "dumps")
        assert report.status == "no_hang", report.to_text()
        assert report.verdict is None


def test_the_waiting_line_and_the_culprits_line_are_told() -> None:
    """Both sides of a mismatch, the deepest frame that is the user's own."""
    report = analyze(FIXTURES / "rank_conditional_barrier" / "dumps")
    verdict = report.verdict
    assert verdict is not None and verdict.location is not None and verdict.waiting_call is not None
    assert verdict.location.file == "/workspace/train/train.py" and verdict.location.rank == 0
    text = report.to_text()
    assert f"train.py:{verdict.location.line} in {verdict.location.function}" in text
    assert any(
        f.file == "/workspace/train/train.py" and f"train.py:{f.line} in {f.name}" in text
        for f in verdict.waiting_call.frames
    )
