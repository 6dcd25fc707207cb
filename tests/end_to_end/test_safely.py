"""Hostile and bad input costs a message and no more, and the failure hook's call always answers."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path

import pytest

import hangscope
from hangscope import HangscopeError, NoInputError, Report, UsageError
from tests.hostile_dumps import nested_key
from tests.json_contract import check_json

# -- hostile and bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_kills_its_reader_costs_no_other(hang: Path, tmp_path: Path, jobs: int) -> None:
    for path in hang.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "nccl_trace_rank_1").write_bytes(nested_key())
    (tmp_path / "a_bomb_7").write_bytes(nested_key())
    report = hangscope.analyze(tmp_path, jobs=jobs)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    assert {w.file for w in report.warnings if w.code == "killed_reader"} == {"nccl_trace_rank_1", "a_bomb_7"}


def test_a_file_that_asks_for_gigabytes_costs_no_other(hang: Path, tmp_path: Path) -> None:
    for path in hang.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"\x80\x04r\xff\xff\xff\x7f.")  # a memo index of 2^31
    (tmp_path / "nccl_trace_rank_3").write_bytes(
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\x00\x00\x00x."
    )  # a text of 1 TB
    report = hangscope.analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    assert {i["file"] for i in report.to_dict()["inputs"] if i["status"] == "failed"} == {
        "nccl_trace_rank_1",
        "nccl_trace_rank_3",
    }


def test_errors_have_hints(hang: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "zeros").write_bytes(bytes(4000))
    wrong: list[tuple[type[HangscopeError], object, dict[str, object]]] = [
        (HangscopeError, tmp_path / "missing", {}),
        (NoInputError, tmp_path / "empty", {}),
        (NoInputError, tmp_path / "text", {}),
        (UsageError, [], {}),
        (UsageError, 7, {}),
        (UsageError, hang, {"world_size": 0}),
        (UsageError, hang, {"jobs": -1}),
        (UsageError, hang, {"attempt": "last"}),
        (UsageError, hang, {"redact": ["hats"]}),
    ]
    for kind, paths, options in wrong:
        with pytest.raises(kind) as caught:
            hangscope.analyze(paths, **options)  # type: ignore[arg-type]
        assert isinstance(caught.value, HangscopeError)
        assert caught.value.message
        if kind is NoInputError:
            assert caught.value.hint


def test_a_pipe_is_not_waited_for(hang: Path, tmp_path: Path) -> None:
    for path in hang.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    os.mkfifo(tmp_path / "nccl_trace_rank_0.pipe")
    report = hangscope.analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    assert [w.file for w in report.warnings if w.code == "not_a_file"] == ["nccl_trace_rank_0.pipe"]


# -- the failure hook's call ---------------------------------------------------------------------------------------


def test_analyze_safely_says_the_same(hang: Path) -> None:
    safe, plain = hangscope.analyze_safely(hang), hangscope.analyze(hang)
    assert safe.to_json() == plain.to_json()
    assert safe.verdict is not None and plain.verdict is not None
    assert (safe.verdict.cause, safe.verdict.culprit_ranks, safe.verdict.location) == (
        plain.verdict.cause,
        plain.verdict.culprit_ranks,
        plain.verdict.location,
    )
    assert safe.to_html() and safe.to_text() == plain.to_text() and safe.to_markdown() == plain.to_markdown()


@pytest.mark.parametrize(
    "case", ["missing", "empty", "none", "number", "list_of_nothing", "bomb", "hostile", "option", "value"]
)
def test_analyze_safely_never_raises(case: str, hang: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bomb").mkdir()
    (tmp_path / "bomb" / "nccl_trace_rank_0").write_bytes(nested_key())
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "nccl_trace_rank_0").write_bytes(
        pickle.dumps({"version": "2.10", "entries": [Path("x")]}, protocol=2)
    )
    inputs: dict[str, tuple[object, dict[str, object]]] = {
        "missing": (tmp_path / "missing", {}),
        "empty": (tmp_path / "empty", {}),
        "none": (None, {}),
        "number": (7, {}),
        "list_of_nothing": ([], {}),
        "bomb": (tmp_path / "bomb", {}),
        "hostile": (tmp_path / "hostile", {}),
        "option": (hang, {"no_such_option": 1}),
        "value": (hang, {"redact": object()}),
    }
    paths, options = inputs[case]
    report = hangscope.analyze_safely(paths, **options)  # type: ignore[arg-type]
    assert isinstance(report, Report)
    assert report.status == "inconclusive" and report.verdict is None
    assert report.warnings and report.warnings[0].message
    assert report.to_text() and report.to_markdown() and report.to_html() and len(report.table) == 0
    check_json(report.to_json())


@pytest.mark.parametrize("deadline", [0.0, 0.01, 0.2, -1.0])
def test_analyze_safely_holds_its_deadline(hang: Path, deadline: float) -> None:
    began = time.monotonic()
    report = hangscope.analyze_safely(hang, deadline=deadline)
    assert time.monotonic() - began < 5
    assert isinstance(report, Report)
    assert report.status in ("inconclusive", "hang")
    json.loads(report.to_json())


def test_analyze_safely_runs_no_module_of_the_working_folder(
    hang: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    for name in ("json.py", "queue.py", "numpy.py"):
        (tmp_path / name).write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert hangscope.analyze_safely(hang).status == "hang"
    assert not ran.exists()


def test_analyze_safely_says_why_it_failed(hang: Path) -> None:
    report = hangscope.analyze_safely(hang, world_size="two")
    assert "the analysis failed: TypeError" in report.warnings[0].message and not report.warnings[0].hint
    report = hangscope.analyze_safely(hang, no_such_option=1)
    assert "no_such_option" in report.warnings[0].message and "options" in report.warnings[0].hint
