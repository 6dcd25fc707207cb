"""Whatever stdout and stderr are, the report file is written, the exit code tells the truth, and a terminal is not acted on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from hangscope.report.markdown import render_markdown
from hangscope.report.words import clean
from tests.conftest import Run, analyze

pytestmark = pytest.mark.slow

PIPE = subprocess.PIPE


def command(
    environment: dict[str, str],
    hang: Path,
    folder: Path,
    *words: str,
    closed: str = "",
    stdout: int | IO[bytes] = PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command by a shell that closes streams, or with the given stdout."""
    line = [sys.executable, "-m", "hangscope", "analyze", str(hang), *words]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *line]
    return subprocess.run(
        shell, stdout=stdout, stderr=PIPE, env=environment, cwd=folder, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("closed", "form"),
    [(">&-", "text"), ("2>&-", "json"), ("<&- >&- 2>&-", "json"), ("2>/dev/full", "text")],
)
def test_closed_streams_hurt_nothing(
    environment: dict[str, str], hang: Path, tmp_path: Path, closed: str, form: str
) -> None:
    result = command(environment, hang, tmp_path, "--format", form, "--exit-code", closed=closed)
    assert result.returncode == 10 and b"internal error" not in result.stderr
    page = (tmp_path / "hangscope-report.html").read_text()
    assert page.startswith("<!") and page.rstrip().endswith("</html>")


def test_a_full_stdout_is_told_and_the_report_is_written(
    environment: dict[str, str], hang: Path, tmp_path: Path
) -> None:
    with open("/dev/full", "wb") as full:
        result = command(environment, hang, tmp_path, "--exit-code", stdout=full)
    assert result.returncode == 1 and b"No space left on device" in result.stderr
    assert b"Exception ignored" not in result.stderr and b"internal error" not in result.stderr
    assert (tmp_path / "hangscope-report.html").exists()


def test_a_reader_that_has_gone_costs_no_report(
    environment: dict[str, str], hang: Path, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        result = command(environment, hang, tmp_path, "--json", "x.json", "--exit-code", stdout=gone)
    assert result.returncode == 10 and (tmp_path / "x.json").exists()
    assert (tmp_path / "hangscope-report.html").exists()
    assert result.stderr.decode().splitlines() == ["Wrote hangscope-report.html", "Wrote x.json"]


def test_names_of_files_cannot_act_on_the_terminal(inside: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b]0;owned\x07b\x1b[31m"
    folder.mkdir()
    (folder / "x\x1b[2Jy\u202e.txt").write_text("nothing")
    for words in ((folder,), (folder / "none\x1b[31m",), (folder, "-o", folder)):
        result = inside("analyze", *words)
        assert result.returncode != 0 and result.stderr
        assert not set("\x1b\x07\u202e") & set(result.stderr + result.stdout)


def test_output_in_a_narrow_encoding(run: Run, hang: Path, tmp_path: Path) -> None:
    (tmp_path / "ü").symlink_to(hang)
    result = run("analyze", tmp_path / "ü", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert result.returncode == 0 and result.stdout.startswith("hang[")


@pytest.mark.parametrize("mark", [0x200B, 0x200D, 0x2060, 0x202E, 0x2066, 0xFEFF, 0xAD, 0x61C, 0xE0041])
def test_what_hides_or_turns_text_is_shown_as_a_mark(mark: int) -> None:
    assert clean(f"rank{chr(mark)}3") == "rank\ufffd3"


def test_markdown_cannot_mention_link_or_refer(hang: Path) -> None:
    told = "see @everyone #12 https://evil.example www.evil.example [x](y) <b> a@b.example"
    whole = analyze(hang).document
    assert whole.verdict is not None
    heading = render_markdown(replace(whole, verdict=replace(whole.verdict, title=told))).splitlines()[0]
    for part in ("@everyone", "@b.", "#12", "://", "www.", "[x](y)", "<b>"):
        assert part not in re.sub(r"`[^`]*`", "", heading)
    assert "everyone" in heading and "evil.example" in heading
