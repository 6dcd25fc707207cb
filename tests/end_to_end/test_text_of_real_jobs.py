"""The logs of real jobs alone, beside their dumps, and logs that say nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.text_baseline import baseline, without_dumps
from tests.conftest import FIXTURES, INCIDENTS, analyze
from tests.end_to_end.test_fixtures import never_sure_and_wrong
from tests.text_lines import (
    WORK,
    judged,
    timeout,
    told,
)

# --- real jobs ---


def truth_of(incident: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((incident / "truth.json").read_text())
    return truth


REAL = sorted(
    path.parent for path in (*FIXTURES.glob("*/truth.json"), *(INCIDENTS / "text").glob("*/truth.json"))
)
#: Nothing in their logs differs between ranks but what is not told by rank: see what the report asks for instead.
NOT_IN_THE_TEXT = {
    "broadcast_or_all_reduce", "dtype_mismatch", "mesh_extra_call", "mesh_opposite_order", "mesh_short_replica", "mesh_skipped_call",
    "mesh_skipped_call_torch215", "mesh_stuck_loader", "no_sync_one_rank", "rank_conditional_barrier", "rank_conditional_torchrun", "shape_mismatch", "stuck_lock",
    "subgroups_torch215", "uneven_loader_first_epoch", "uneven_loader_later_epoch", "uneven_loader_timeout", "uneven_loader_torch215",
}  # fmt: skip
#: Two ranks at two lines, or one line of the reporting rank: the short heuristic names whichever printed last.
BY_CHANCE = {"rank_conditional_barrier", "rank_conditional_torchrun", "uneven_loader_timeout"}


@pytest.mark.parametrize("incident", REAL[::2], ids=lambda path: path.name)
def test_the_logs_of_real_jobs_alone(tmp_path: Path, incident: Path) -> None:
    truth = truth_of(incident)
    answers = truth.get("answers") or [truth["culprits"]]
    folder = without_dumps(incident, tmp_path)
    report = analyze(folder)
    never_sure_and_wrong(incident, report)
    named = list(report.verdict.culprit_ranks) if report.verdict else []
    if incident.name in NOT_IN_THE_TEXT:
        assert named == []
        assert re.search(
            "Recorder|TORCH_DISTRIBUTED_DEBUG=DETAIL", report.to_text()
        )  # what to collect next time
    else:
        assert named in answers
    if incident.name in BY_CHANCE:
        return
    assert named in answers or baseline(folder) not in answers  # at least all that the short heuristic gets


@pytest.mark.parametrize(
    "name",
    [
        "raising_rank",
        "killed_rank",
        "stuck_loader",
        "model_mismatch",
        "stuck_loader_detail",
    ],
)
def test_one_file_of_all_ranks_says_as_much(tmp_path: Path, name: str) -> None:
    by_rank: dict[int, list[str]] = {}
    for path in sorted((FIXTURES / name / "dumps").rglob("*")):
        found = re.search(r"attempt_\d+/(\d+)/std|/rank(\d+)\.(?:err|out)$", str(path))
        if found and path.is_file():
            rank = int(found[1] or found[2])
            text = path.read_text("utf-8", "replace").splitlines()
            by_rank.setdefault(rank, []).extend(
                line if line.startswith("[rank") else f"[default{rank}]:{line}" for line in text
            )
    woven: list[str] = []
    while any(by_rank.values()):
        for rank in sorted(by_rank):
            woven += by_rank[rank][:2]
            del by_rank[rank][:2]
    mixed = judged(told(tmp_path / "mixed", {"train.log": woven}))
    apart = judged(analyze(without_dumps(FIXTURES / name, tmp_path)))
    assert (mixed.cause, mixed.culprit_ranks) == (apart.cause, apart.culprit_ranks)
    assert list(mixed.culprit_ranks) == truth_of(FIXTURES / name)["culprits"]


@pytest.mark.parametrize(
    ("name", "quoted", "stance"),
    [
        ("stuck_loader", r"rank 0 was blocked until it timed out", "for"),
        ("skipped_step", r"only rank 1 printed this: rank 1 step 3", "for"),
        ("dtype_mismatch", r"gloo received 44 bytes for a buffer of 22", "for"),
        ("uneven_loader_timeout", r"rank 1's traceback shows train.py:41", "for"),
        ("skipped_step_torchrun", r"the launcher reports rank 0", "for"),
        ("handler_barrier", r"rank 3 was still alive", "against"),
    ],
)
def test_logs_beside_dumps_are_quoted_with_their_stance(name: str, quoted: str, stance: str) -> None:
    found = [e for e in judged(analyze(FIXTURES / name / "dumps")).evidence if re.match(quoted, e.text)]
    assert [e.stance for e in found] == [stance]
    assert found[0].source is not None and found[0].source.line


def test_any_log_of_nothing_names_nobody(tmp_path: Path) -> None:
    files: dict[str, str | list[str]] = {
        f"rank{r}.out": [f"rank {r} step {n} loss 0.1" for n in range(5 + r)] for r in range(4)
    }
    report = told(tmp_path, files)
    assert report.status == "inconclusive" and report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("unknown", ())


def test_a_hostile_number_of_ranks_costs_nothing(tmp_path: Path) -> None:
    lines = [
        "[rank9999999]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] [Rank 9999999] Watchdog caught collective operation timeout: "
        + WORK.format(seq=6, op="ALLREDUCE", n=4)
    ]
    lines += ["RuntimeError: [Rank 0]: Ranks 8888888 failed to pass monitoredBarrier in 8000 ms", timeout(0)]
    report = told(tmp_path, lines)
    assert len(report.to_dict()["ranks"]) < 10
