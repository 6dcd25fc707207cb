"""The same input gives the same bytes, and the reports say what they said when they were last read."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, analyze
from tests.golden_reports import FOLDER, INCIDENTS, PAGES, render

pytestmark = pytest.mark.slow

FORMATS = {
    "text": "report.to_text(width=100)",
    "json": "report.to_json()",
    "markdown": "report.to_markdown()",
    "html": "report.to_html()",
}


@pytest.mark.parametrize("name", ["mesh_extra_call"])
def test_the_same_input_gives_the_same_bytes(name: str, environment: dict[str, str]) -> None:
    """In two processes whose sets are ordered differently."""
    code = (
        "import sys, hashlib, hangscope\n"
        f"report = hangscope.analyze({str(FIXTURES / name / 'dumps')!r})\n"
        f"for text in ({', '.join(FORMATS.values())}): print(hashlib.sha256(text.encode()).hexdigest())\n"
        "print(report.table.to_csv())"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first.splitlines()[:4] == second.splitlines()[:4]
    assert first == second


def test_where_the_folder_lies_changes_nothing(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(FIXTURES / "raising_rank" / "dumps", tmp_path / "elsewhere" / "dumps")
    here, there = (
        analyze(FIXTURES / "raising_rank" / "dumps"),
        analyze(tmp_path / "elsewhere" / "dumps"),
    )
    assert here.to_json() == there.to_json()
    assert here.to_html() == there.to_html()


@pytest.mark.parametrize("incident", INCIDENTS)
def test_golden(incident: str) -> None:
    """`python -m tests.accept_golden` accepts a change; tests/golden/README.md says how to judge one."""
    for name, text in render(incident).items():
        path = FOLDER / name
        assert path.exists(), f"{name} is missing: python -m tests.accept_golden"
        wanted = path.read_text(encoding="utf-8")
        change = "\n".join(
            difflib.unified_diff(wanted.splitlines(), text.splitlines(), name, "now", lineterm="", n=1)
        )
        assert text == wanted, f"{change[:4000]}\n\nif this is meant: python -m tests.accept_golden"


def test_no_golden_file_is_left_over() -> None:
    names = {f"{incident}.json" for incident in INCIDENTS}
    names |= {f"{incident}.{ending}" for incident in PAGES for ending in ("txt", "md", "html")}
    assert {p.name for p in FOLDER.iterdir()} == names | {"README.md"}


def test_golden_files_say_nothing_of_this_machine() -> None:
    here = str(FIXTURES.parent)
    assert not [p.name for p in FOLDER.iterdir() if here in p.read_text(encoding="utf-8")]
