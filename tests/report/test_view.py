"""A picture that cannot be drawn costs nobody the verdict; whose each input is, and how each rank stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hangscope
from hangscope.api import Report
from hangscope.report import view
from hangscope.report.html import tables
from tests.conftest import FIXTURES
from tests.dump_writer import Recorder, world
from tests.in_thread import InThisThread
from tests.report.test_unknown import STACK
from tests.text_lines import timeout, told


def test_without_its_pictures_a_report_is_whole_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*parts: Any) -> Any:
        raise IndexError("no such node")

    monkeypatch.setattr(view, "page_data", fails)
    report = hangscope.analyze(FIXTURES / "stuck_loader" / "dumps", executor=InThisThread())
    assert report.verdict is not None and report.verdict.culprit_ranks == (3,)
    assert [w.message for w in report.warnings if w.code == "pictures_failed"] == [
        "the page's pictures could not be drawn: IndexError: no such node"
    ]
    assert "Rank 3 is loading a batch" in report.to_html() and "Rank 3" in report.to_markdown()


def test_a_line_that_one_rank_alone_printed_is_a_field_and_in_every_output(tmp_path: Path) -> None:
    lines = [f"step {step} loss 1.{step}" for step in range(9)]
    logs = {f"rank{rank}.log": list(lines) for rank in range(4)}
    logs["rank2.log"][8:8] = ["cache entry 77 is stale, reading it again"]
    report = told(tmp_path, {**logs, "rank0.log": [*logs["rank0.log"], timeout(0)]})
    (line,) = report.to_dict()["outlier_lines"]
    assert (line["ranks"], line["how"], line["note"]) == ([2], "only", "only rank 2 printed this")
    for shown in (report.to_text(verbose=True, width=110), report.to_html()):
        assert "only rank 2 printed this" in shown and "cache entry 77 is stale" in shown


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    report = hangscope.analyze(FIXTURES / "stuck_loader" / "dumps")
    assert repr(report) == f"<hangscope.Report {report.status}: {report.document.title}>"
    frame = report._repr_html_()
    assert (
        frame.startswith("<iframe sandbox=") and "&lt;!DOCTYPE html&gt;" in frame and "<script" not in frame
    )


def _without_a_dump(folder: Path) -> Report:
    """Return the report on four ranks, each with a log, of which the last left no dump."""
    for rank in range(3):
        recorder = Recorder(rank, world(4)).call("all_reduce", times=9)
        recorder.call("all_reduce", state="scheduled").write(folder)
    return told(folder, {f"worker{rank}.log": [f"[rank{rank}]: step 9", "done"] for rank in range(4)})


def test_a_ranks_own_file_has_its_rank_among_the_inputs(tmp_path: Path) -> None:
    report = _without_a_dump(tmp_path)
    own = {row["file"]: row["rank"] for row in report.to_dict()["inputs"]}
    assert {file: rank for file, rank in own.items() if file.endswith(".log")} == {
        f"worker{rank}.log": rank for rank in range(4)
    }
    table = tables.inputs(report.document)
    assert ("worker3.log", "log", "3", "used", "") in [row.cells for row in table.rows]
    several = told(
        tmp_path / "several",
        [
            f"gx{rank}:31:33 [2] NCCL INFO comm 0x7f11a4001240 rank {rank} nranks 16 cudaDev 2 busId 47000 - Init COMPLETE"
            for rank in (2, 10)
        ],
    )
    assert [row.rank for row in several.document.inputs] == [None]
    shared = told(tmp_path / "shared", ["[rank0]: step 9", "[rank1]: step 9", timeout(0)])
    assert [(row.file, row.rank) for row in shared.document.inputs] == [("all.log", None)]


def test_a_paste_of_stacks_with_lines_is_a_log_too(tmp_path: Path) -> None:
    stack = STACK.format(7).splitlines()
    assert told(tmp_path / "a", stack).document.sources == {"dump": 0, "log": 0, "stack": 1}
    assert told(tmp_path / "b", [timeout(0), *stack]).document.sources == {"dump": 0, "log": 1, "stack": 1}


def test_each_rank_has_its_standing_in_words(tmp_path: Path) -> None:
    report = _without_a_dump(tmp_path / "dumps")
    standings = [row["standing"] for row in report.to_dict()["ranks"]]
    assert standings == ["blocked", "blocked", "blocked", "culprit"]
    heard = told(
        tmp_path / "text", [timeout(0), timeout(1), "[rank2]: step 9", "[rank4]: step 9"], world_size=6
    )
    assert [(row["rank"], row["standing"]) for row in heard.to_dict()["ranks"]] == [
        (0, "timed out"),
        (1, "timed out"),
        (2, "no dump; log or stack only"),
        (3, "no usable dump"),
        (4, "no dump; log or stack only"),
        (5, "no usable dump"),
    ]
    assert "no dump; log or stack only" in [row.cells[2] for row in tables.ranks(heard.document).rows]
