"""Frozen jobs of real libraries: the right ranks, cause and line from each kind of input, and the call that the user wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, analyze

pytestmark = pytest.mark.slow

INPUTS = {
    "dumps": ["dumps"],
    "logs": ["logs"],
    "both": ["dumps", "logs"],
    "stacks too": ["dumps", "logs", "stacks"],
    "logs detail": ["logs_detail"],
}
OWN = FIXTURES / "frameworks"
#: the call of the culprit's, as the library's documentation has it (None: no call, or none that a library makes)
APIS = {
    "accelerate_gather_rank0": "Accelerator.gather_for_metrics",
    "accelerate_main_process_first": "Accelerator.main_process_first",
    "accelerate_save_state_rank0": "Accelerator.wait_for_everyone",
    "accelerate_uneven_shards": "Accelerator.wait_for_everyone",
    "broadcast_list_wrong_src": "torch.distributed.broadcast_object_list",
    "dcp_save_rank0": "torch.distributed.checkpoint.save",
    "ddp_wrapped_twice": "DistributedDataParallel",
    "fabric_all_gather_rank0": "Fabric.all_gather",
    "fsdp_clip_one_rank": "clip_grad_norm_",
    "lightning_barrier_rank0": "Strategy.barrier",
    "lightning_log_sync_one_rank": "LightningModule.log(sync_dist=True)",
    "lightning_slow_upload": None,
    "metric_after_short_epoch": "Metric.compute",
    "metric_in_loop_one_rank": "MetricCollection.compute",
    "torchtitan_mean_rank0": "torchtitan.distributed.utils.dist_mean",
    "trainer_first_in_loop": "TrainingArguments.main_process_first",
    "trainer_metric_rank0": "torch.distributed.all_gather_object",
    "trainer_predict_rank0": "Trainer.predict",
}


@dataclass(frozen=True)
class Answer:
    incident: str
    given: str
    ranks: bool
    cause: bool
    line: bool | None
    confidence: str | None
    innocent: bool


def jobs(top: Path) -> list[Path]:
    return sorted(path.parent for path in top.glob("*/truth.json"))


def answer(job: Path, given: str) -> Answer | None:
    truth: dict[str, Any] = json.loads((job / "truth.json").read_text())
    folders = [job / name for name in INPUTS[given]]
    if given in truth["skip_inputs"] or not all(f.exists() and any(f.rglob("*")) for f in folders):
        return None
    report = analyze(folders)
    verdict = report.verdict
    answers = [set(a) for a in truth.get("answers") or [truth["culprits"]]]
    ranks = set(verdict.culprit_ranks) if verdict else set()
    at = verdict.location if verdict else None
    line = (at.file, at.line) in {(f, n) for f, n in truth["culprit_lines"]} if at else False
    healthy = truth["kind"] == "healthy"
    return Answer(
        job.name,
        given,
        ranks in answers,
        report.status == "no_hang" if healthy else bool(verdict) and verdict.cause in truth["accept_causes"],
        line if given in truth["line_inputs"] else None,
        verdict.confidence if verdict else None,
        bool(ranks - set().union(*answers)),
    )


def misses(found: list[Answer], what: str) -> list[tuple[str, str]]:
    return [(a.incident, a.given) for a in found if getattr(a, what) is False]


def test_there_are_twenty_jobs_of_five_libraries() -> None:
    names = [job.name for job in jobs(OWN)]
    assert len(names) >= 20
    assert {n.split("_")[0] for n in names} >= {
        "lightning",
        "fabric",
        "accelerate",
        "trainer",
        "fsdp",
        "dcp",
        "metric",
    }
    kinds = {json.loads((job / "truth.json").read_text())["kind"] for job in jobs(OWN)}
    assert kinds >= {"healthy", "rank_conditional", "uneven_loader", "stuck_rank", "crashed_rank"}


def test_each_kind_of_input_gives_its_share_of_right_answers_and_who_is_sure_is_right() -> None:
    found = [a for job in jobs(OWN) for given in INPUTS if (a := answer(job, given)) is not None]
    both = [a for a in found if a.given == "both"]
    lines = [a for a in both if a.line is not None]
    # of two ranks without a majority nobody is named
    assert len(misses(both, "ranks")) <= 2, misses(both, "ranks")
    assert len(misses(both, "cause")) <= 1, misses(both, "cause")
    assert len(misses(lines, "line")) * 20 <= len(lines), misses(lines, "line")
    logs = [a for a in found if a.given == "logs"]
    assert len(misses(logs, "ranks")) <= 0.16 * len(logs), misses(logs, "ranks")
    assert len(misses(logs, "cause")) <= 0.2 * len(logs), misses(logs, "cause")
    assert [a for a in both if a.innocent] == []
    assert [a for a in found if a.confidence == "high" and not (a.ranks and a.cause)] == []


@pytest.mark.parametrize(
    ("name", "given"),
    [(name, given) for given, step in (("both", 1), ("logs", 4)) for name in sorted(APIS)[::step]],
)
def test_the_call_that_the_user_wrote_is_named(name: str, given: str) -> None:
    job, api = OWN / name, APIS[name]
    verdict = analyze([job / folder for folder in INPUTS[given]]).verdict
    assert verdict is not None and verdict.api == api, (verdict and verdict.api, verdict and verdict.cause)
    if verdict.cause == "rank_conditional_collective" and api is not None and len(verdict.culprit_ranks) == 1:
        rank = verdict.culprit_ranks[0]
        assert f"Rank {rank} alone called {api}" in verdict.summary.replace(" (host localhost)", ""), (
            verdict.summary
        )


def test_no_sampler_is_advised_where_the_library_owns_the_loader() -> None:
    for name in ("lightning_uneven_loader", "trainer_uneven_stream"):
        job = OWN / name
        verdict = analyze([job / "dumps", job / "logs"]).verdict
        assert verdict is not None and verdict.cause == "uneven_loader"
        words = " ".join(verdict.advice)
        assert "algorithms.Join" not in words and "len(loader)" not in words
        assert "use_distributed_sampler" in words or "dataloader_drop_last" in words


def test_where_the_users_frames_are_equal_the_librarys_are_compared() -> None:
    job = OWN / "trainer_uneven_stream"
    verdict = analyze(job / "dumps").verdict
    assert verdict is not None
    (parted,) = [e.text for e in verdict.evidence if "all ranks are in the call" in e.text]
    assert "train.py" in parted and "trainer.py" in parted


def test_no_word_of_infiniband_on_a_gloo_job() -> None:
    for job in jobs(OWN):
        report = analyze(job / "dumps")
        if report.verdict is not None:
            words = " ".join([report.verdict.summary, *report.verdict.advice])
            assert "NCCL" not in words and "InfiniBand" not in words, (job.name, words)


def test_a_root_that_differs_is_said_before_any_word_on_networks() -> None:
    job = OWN / "broadcast_list_wrong_src"
    for folders in (["dumps"], ["logs"], ["dumps", "logs"]):
        verdict = analyze([job / f for f in folders]).verdict
        assert verdict is not None and verdict.cause == "collective_mismatch"
        assert "may disagree about `src`" in verdict.summary and verdict.confidence != "high"
        assert verdict.location is not None and verdict.location.line == 16
