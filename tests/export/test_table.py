"""`hangscope table`: what is selected, and the same rows in every format."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hangscope.api import Report
from hangscope.errors import UsageError
from hangscope.export import table as tables
from hangscope.export.frame import COLUMNS, TableBuilder
from hangscope.export.table import Selection, format_of, is_table, parse_ranks, parse_seqs, write_table
from tests.conftest import Run, analyze
from tests.dump_writer import Recorder, job, write_all

GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1])}


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Four ranks, thirty collectives of the world and two of a smaller group; rank 2 enters the last one never."""
    recorders = [Recorder(rank, GROUPS) for rank in range(4)]
    for recorder in recorders:
        recorder.call("all_reduce", times=29)
        if recorder.rank < 2:
            recorder.call("all_gather", "1", times=2)
        if recorder.rank != 2:
            recorder.call("all_reduce", state="started", function="=1+1\x1b[31m")
    return analyze(write_all(recorders, tmp_path / "dumps"))


def rows(report: Report, form: str = "csv", **wanted: object) -> pd.DataFrame:
    out = io.BytesIO()
    count = write_table(report.analysis, Selection(**wanted), form, out)  # type: ignore[arg-type]
    out.seek(0)
    read = {
        "csv": pd.read_csv,
        "jsonl": lambda file: pd.read_json(file, lines=True),
        "parquet": pd.read_parquet,
    }
    frame = read[form](out)
    assert len(frame) == count
    return frame


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_every_format_holds_the_table_of_the_library(
    report: Report, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(tables, "CHUNK", 40)
    frame = rows(report, form)
    assert tuple(frame.columns) == COLUMNS
    for name in ("rank", "gid", "seq", "order", "created", "line"):
        assert list(frame[name].astype("Int64")) == list(report.table[name].astype("Int64")), name
    for name in ("group", "op", "state", "file"):
        assert list(frame[name].astype(str)) == list(report.table[name].astype(str)), name


def test_rows_are_selected(report: Report) -> None:
    assert set(rows(report, ranks=parse_ranks("0,2-3"))["rank"]) == {0, 2, 3}
    assert set(rows(report, groups=("tp",))["rank"]) == {0, 1}
    assert set(rows(report, seqs=parse_seqs("28:"))["seq"]) == {28, 29, 30}
    pending = rows(report, pending=True)
    assert list(pending["rank"]) == [0, 1, 3] and set(pending["seq"]) == {30}
    near = rows(report, around_divergence=True)
    assert (near["seq"].min(), near["seq"].max(), set(near["gid"])) == (22, 30, {0})


def test_text_is_aligned_and_free_of_control_characters(report: Report) -> None:
    out = io.BytesIO()
    write_table(report.analysis, Selection(pending=True), "text", out)  # type: ignore[arg-type]
    lines = out.getvalue().decode().splitlines()
    assert lines[0].split() == list(COLUMNS)
    assert {line.index("all_reduce") for line in lines[1:]} == {lines[0].index("op ")}
    assert "\x1b" not in out.getvalue().decode()


@pytest.mark.parametrize("text", ["x", "3-", "3,,4", "-1", "1-2:"])
def test_a_wrong_range_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="range of ranks"):
        parse_ranks(text)


def test_wrong_words_are_refused_with_what_is_possible(report: Report) -> None:
    with pytest.raises(UsageError) as raised:
        rows(report, groups=("tp7",))
    assert "1 (tp)" in raised.value.hint
    with pytest.raises(UsageError, match="sequence"):
        parse_seqs("40-60")
    with pytest.raises(UsageError) as raised:
        format_of("calls.xlsx")
    assert ".parquet" in raised.value.hint


def test_the_command_replaces_only_its_own_files(inside: Run, hang: Path, tmp_path: Path) -> None:
    file = tmp_path / "here" / "calls.jsonl"
    for _ in range(2):
        done = inside("table", hang, "-o", file)
        assert (done.returncode, done.stdout) == (0, "") and done.stderr.startswith(f"Wrote {file}: ")
    assert is_table(file) and json.loads(file.read_text().splitlines()[0])["rank"] == 0
    other = tmp_path / "here" / "mine.csv"
    other.write_text("a,b\n")
    done = inside("table", hang, "-o", other)
    assert done.returncode == 2 and other.read_text() == "a,b\n"


def test_the_questions_of_the_page_are_answered(
    hang: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.end_to_end.test_readme import ROOT, blocks

    (tmp_path / "dumps").symlink_to(hang)
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    for code in blocks(ROOT / "docs" / "table.md", "python"):
        exec(compile(code, "table.md", "exec"), found)
        assert len(code.strip().splitlines()) <= 3
    behind = found["behind"]
    assert isinstance(behind, pd.DataFrame) and behind.max().idxmax() == 2


def test_memory_follows_a_chunk_and_not_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders = job(12)
    for recorder in recorders:
        recorder.call("all_reduce", times=100)
    report = analyze(write_all(recorders, tmp_path))
    built: list[int] = []
    real = TableBuilder.rows

    def rows_of(self: TableBuilder, parts: Any) -> pd.DataFrame:
        frame = real(self, parts)
        built.append(len(frame))
        return frame

    monkeypatch.setattr(TableBuilder, "rows", rows_of)
    monkeypatch.setattr(tables, "CHUNK", 250)
    assert write_table(report.analysis, Selection(), "csv", io.BytesIO()) == 1200  # type: ignore[arg-type]
    assert built == [200] * 6
