"""What the command writes: reports, formats, and never over a file of someone else."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.command import quiet
from tests.conftest import FIXTURES, Run
from tests.json_contract import check_json

pytestmark = pytest.mark.slow

# -- what is written -----------------------------------------------------------------------------------------------


def test_a_report_that_cannot_be_written(inside: Run, hang: Path, tmp_path: Path) -> None:
    """The verdict is still printed."""
    (tmp_path / "a_file").write_text("x")
    result = quiet(inside("analyze", hang, "-o", tmp_path / "a_file" / "report.html"))
    assert result.returncode == 1
    assert result.stdout.startswith("hang[stuck_rank]")
    assert "cannot be written" in result.stderr
    missing = quiet(inside("analyze", hang, "-o", tmp_path / "no" / "report.html"))
    assert missing.returncode == 1 and "cannot be written" in missing.stderr
    assert not (tmp_path / "no").exists()
    folder = quiet(inside("analyze", hang, "-o", tmp_path))
    assert folder.returncode == 1 and folder.stdout.startswith("hang[stuck_rank]")


def test_a_file_of_someone_else_is_not_overwritten(inside: Run, hang: Path, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.html"
    mine.write_text("<html>years of work</html>")
    refused = quiet(inside("analyze", hang, "-o", mine))
    assert refused.returncode == 1
    assert mine.read_text() == "<html>years of work</html>"
    assert "--force" in refused.stderr and refused.stdout.startswith("hang[")
    assert quiet(inside("analyze", hang, "-o", mine, "--force")).returncode == 0
    assert "years of work" not in mine.read_text()
    assert quiet(inside("analyze", hang, "-o", mine)).returncode == 0  # now it is a report of ours
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_json_report_beside_the_page(inside: Run, hang: Path, tmp_path: Path) -> None:
    result = quiet(inside("analyze", hang, "--json", "report.json", "-o", "page.html"))
    here = tmp_path / "here"
    assert result.stderr.splitlines() == ["Wrote page.html", "Wrote report.json"]
    check_json((here / "report.json").read_text())
    assert sorted(p.name for p in here.iterdir()) == ["page.html", "report.json"]
    foreign = here / "data.json"
    foreign.write_text("{}")
    assert quiet(inside("analyze", hang, "--json", "data.json", "-o", "page.html")).returncode == 1
    assert foreign.read_text() == "{}"


@pytest.mark.parametrize("name", ["raising_rank_torchrun", "mesh_stuck_loader", "healthy"])
def test_json_keeps_the_contract(inside: Run, name: str) -> None:
    result = quiet(inside("analyze", FIXTURES / name / "dumps", "--format", "json"))
    assert result.returncode == 0
    check_json(result.stdout)


def test_markdown(inside: Run, hang: Path) -> None:
    result = quiet(inside("analyze", hang, "--format", "markdown"))
    assert result.stdout.startswith("## hangscope: Rank 2 ")
    assert "`stuck_rank`" in result.stdout


def test_quiet_and_verbose(inside: Run, hang: Path) -> None:
    assert quiet(inside("analyze", hang, "-q")).stderr == ""
    usual, verbose = (quiet(inside("analyze", hang, *words)).stdout for words in ((), ("-v",)))
    assert len(verbose.splitlines()) >= len(usual.splitlines())


def test_the_text_report_fits_one_screen(inside: Run) -> None:
    result = quiet(inside("analyze", FIXTURES / "rank_conditional_barrier" / "dumps"))
    lines = result.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 110


def test_redact(inside: Run, tmp_path: Path) -> None:
    incident = FIXTURES / "raising_rank_torchrun" / "dumps"
    plain = quiet(inside("analyze", incident, "--format", "json", "-o", "plain.html")).stdout
    hidden = quiet(
        inside("analyze", incident, "--format", "json", "-o", "hidden.html", "--redact", "hosts,paths,users")
    ).stdout
    assert "/workspace/train" in plain
    assert "/workspace/train" not in hidden
    assert "/workspace/train" not in (tmp_path / "here" / "hidden.html").read_text()
    one, other = json.loads(plain)["verdict"], json.loads(hidden)["verdict"]
    assert (one["cause"], one["culprit_ranks"], one["fingerprint"]) == (
        other["cause"],
        other["culprit_ranks"],
        other["fingerprint"],
    )


# -- colour --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "settings", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(
    inside: Run, hang: Path, words: tuple[str, ...], settings: dict[str, str], coloured: bool
) -> None:
    """The option first, then NO_COLOR, then FORCE_COLOR, then the terminal (here there is none)."""
    output = quiet(inside("analyze", hang, *words, **settings)).stdout
    assert ("\x1b[" in output) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert plain.startswith("hang[stuck_rank]: Rank 2")


def test_colour_is_for_text_alone(inside: Run, hang: Path) -> None:
    assert "\x1b[" not in quiet(inside("analyze", hang, "--format", "json", "--color", "always")).stdout


# -- inputs --------------------------------------------------------------------------------------------------------


def test_archives_and_several_paths(inside: Run, hang: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as tar:
        tar.add(hang, "dumps")
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in hang.iterdir():
            archive.write(path, f"dumps/{path.name}")
    files = sorted(hang.iterdir())
    for paths in ([tmp_path / "job.tar.gz"], [tmp_path / "job.zip"], files, [files[0], tmp_path / "job.zip"]):
        data = check_json(quiet(inside("analyze", *paths, "--format", "json", "-q")).stdout)
        assert (data["verdict"]["cause"], data["verdict"]["culprit_ranks"]) == ("stuck_rank", [2])


def test_an_archive_that_climbs_out_is_stopped(inside: Run, hang: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in hang.iterdir():
            archive.write(path, path.name)
        archive.writestr("../../climbed", "out")
    result = quiet(inside("analyze", tmp_path / "job.zip"))
    assert result.returncode == 0 and "hang[stuck_rank]: Rank 2" in result.stdout
    assert "outside the archive" in " ".join(result.stdout.split())
    assert not list(tmp_path.rglob("climbed"))


def test_its_own_reports_are_no_input(inside: Run, hang: Path, tmp_path: Path) -> None:
    """A second run over a folder that holds the first one's report says the same."""
    folder = tmp_path / "job"
    shutil.copytree(hang, folder)
    first, second = (
        quiet(inside("analyze", folder, "-o", folder / "hang.html", "--json", folder / "hang.json")).stdout
        for _ in range(2)
    )
    assert first == second


def test_world_size_and_jobs(inside: Run, hang: Path) -> None:
    data = check_json(
        quiet(inside("analyze", hang, "--format", "json", "--world-size", 6, "--jobs", 2)).stdout
    )
    assert data["world_size"] == 6 and len(data["ranks"]) == 6


def test_max_bytes(inside: Run, hang: Path) -> None:
    result = quiet(inside("analyze", hang, "--max-bytes", 100))
    assert result.returncode == 3 and "limit" in result.stderr


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_attempts(inside: Run, hang: Path, healthy: Path, tmp_path: Path, form: str) -> None:
    """The last restart attempt is analysed, or the one that is asked for, also inside an archive."""
    job = tmp_path / "job"
    shutil.copytree(hang, job / "attempt_0")
    shutil.copytree(healthy, job / "attempt_1")
    if form != "folder":
        job = Path(shutil.make_archive(str(tmp_path / "packed"), form, job))
    statuses = [
        check_json(quiet(inside("analyze", job, "--format", "json", *words)).stdout)["status"]
        for words in ((), ("--attempt", "0"), ("--attempt", "1"))
    ]
    assert statuses == ["no_hang", "hang", "no_hang"]
