"""The command as users and schedulers meet it: exit codes, messages, help, and nothing on stdout but the report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hangscope.cli import main
from hangscope.knowledge.catalog import CATALOG
from tests.command import quiet
from tests.conftest import Run
from tests.json_contract import CATEGORIES, CONTRACT_CAUSES

# -- exit codes ----------------------------------------------------------------------------------------------------


def test_a_verdict_is_no_failure(run: Run, hang: Path, tmp_path: Path) -> None:
    """A hook under `set -e`, or a Slurm epilog, must not be hurt by what the report says."""
    result = quiet(run("analyze", hang))
    assert result.returncode == 0
    assert result.stdout.startswith("hang[stuck_rank]: Rank 2 ")
    assert result.stderr == "Wrote hangscope-report.html\n"
    page = (tmp_path / "here" / "hangscope-report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")


def test_exit_code_tells_the_status_when_asked(inside: Run, hang: Path, healthy: Path, unclear: Path) -> None:
    assert quiet(inside("analyze", hang, "--exit-code", "-q")).returncode == 10
    assert quiet(inside("analyze", unclear, "--exit-code", "-q", "--world-size", 3)).returncode == 11
    assert quiet(inside("analyze", healthy, "--exit-code", "-q")).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("analyze",),
        ("analyze", "--nonsense", "."),
        ("analyze", ".", "--format", "xml"),
        ("analyze", ".", "--jobs", "0"),
        ("analyze", ".", "--world-size", "-3"),
        ("analyze", ".", "--color", "blue"),
        ("nonsense",),
        ("analyze", ".", "-v", "-q"),
        ("analyze", ".", "--json", "-"),
        ("analyze", ".", "-o", "-"),
        ("explain", "nonsense"),
    ],
)
def test_a_wrong_command_line(inside: Run, words: tuple[str, ...]) -> None:
    result = quiet(inside(*words))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize(("option", "value"), [("--redact", "hats"), ("--attempt", "third")])
def test_a_wrong_value(inside: Run, hang: Path, option: str, value: str) -> None:
    result = quiet(inside("analyze", hang, option, value))
    assert (result.returncode, result.stdout) == (2, "")
    assert value in result.stderr


# -- no usable input -----------------------------------------------------------------------------------------------


def test_a_path_that_does_not_exist(inside: Run) -> None:
    result = quiet(inside("analyze", "no/such/folder"))
    assert (result.returncode, result.stdout) == (3, "")
    assert "no/such/folder" in result.stderr and "hint:" in result.stderr


def test_an_empty_folder(inside: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = quiet(inside("analyze", tmp_path / "empty"))
    assert (result.returncode, result.stdout) == (3, "")
    assert "empty" in result.stderr and "no files" in result.stderr and "hint:" in result.stderr


def test_a_folder_without_dumps(inside: Run, tmp_path: Path) -> None:
    """One message: what was looked for, and what was found instead."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 4)
    (folder / "settings.json").write_text('{"lr": 0.1}')
    (folder / "nothing").write_bytes(b"")
    result = quiet(inside("analyze", folder))
    assert (result.returncode, result.stdout) == (3, "")
    assert "Flight Recorder dumps" in result.stderr
    for name in ("a.png", "settings.json", "nothing"):
        assert name in result.stderr
    assert result.stderr.count("hangscope:") == 1
    assert not (tmp_path / "here" / "hangscope-report.html").exists()


def test_a_file_that_cannot_be_read(inside: Run, hang: Path, tmp_path: Path) -> None:
    """It is named, and the rest is analysed."""
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    (folder / "nccl_trace_rank_1").unlink()
    (folder / "nccl_trace_rank_1").symlink_to("/nowhere/at/all")
    (folder / "nccl_trace_rank_0").write_bytes(b"\x80\x02}q")
    result = quiet(inside("analyze", folder, "-v"))
    assert result.returncode == 0
    assert "hang[stuck_rank]: Rank 2" in result.stdout
    warnings = [line for line in result.stdout.splitlines() if "warning:" in line]
    assert any("nccl_trace_rank_0" in w and "truncated" in w for w in warnings)
    assert any("nccl_trace_rank_1" in w for w in warnings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(inside: Run, hang: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    (folder / "nccl_trace_rank_1").chmod(0)
    result = quiet(inside("analyze", folder))
    assert result.returncode == 0 and "nccl_trace_rank_1" in result.stdout


@pytest.mark.slow
def test_names_that_are_no_text(run: Run, hang: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    os.rename(os.fsencode(folder / "nccl_trace_rank_2"), os.fsencode(folder) + b"/nccl_tr\xffce_rank_2")
    result = quiet(run("analyze", folder, "--format", "json", "--json", "report.json"))
    assert result.returncode == 0
    assert json.loads(result.stdout)["verdict"]["culprit_ranks"] == [2]


# -- help and explanations -----------------------------------------------------------------------------------------


def test_no_summary_of_a_command_is_cut(inside: Run) -> None:
    listed = quiet(inside("--help")).stdout.partition("Commands:")[2].partition("Examples:")[0]
    assert len(listed.split("\n")) > len(main.commands) and "..." not in listed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_completion_is_there(shell: str, root: Path) -> None:
    assert f"{shell}_source" in (root / "docs" / "usage.md").read_text()
    done = CliRunner().invoke(main, [], prog_name="hangscope", env={"_HANGSCOPE_COMPLETE": f"{shell}_source"})
    assert done.exit_code == 0 and "_HANGSCOPE_COMPLETE" in done.output


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(inside: Run, word: str) -> None:
    for words in ((), ("analyze",), ("explain",), ("demo",)):
        result = quiet(inside(*words, word))
        assert result.returncode == 0 and result.stdout.startswith("Usage: ") and result.stderr == ""


def test_version(run: Run) -> None:
    result = quiet(run("--version"))
    assert result.returncode == 0 and re.match(r"hangscope, version \d", result.stdout)


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_option_is_documented(inside: Run, command: str) -> None:
    text = quiet(inside(command, "--help")).stdout
    assert main.commands[command].help
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert all(option in text for option in parameter.opts)
            assert parameter.help, f"{command} {parameter.opts[0]} says nothing of itself"


def test_explain_every_cause(inside: Run) -> None:
    assert set(CATALOG) >= CONTRACT_CAUSES
    listed = quiet(inside("explain")).stdout
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == list(CATALOG)
    result = quiet(inside("explain", "uneven_loader"))
    assert result.returncode == 0
    for part in (
        "What happened:",
        "The culprit is:",
        "A verdict establishes:",
        "It does not establish:",
        "What to do:",
    ):
        assert part in result.stdout


@pytest.mark.parametrize("cause", CATALOG)
def test_every_cause_says_what_it_establishes_and_what_not(cause: str) -> None:
    entry = CATALOG[cause]
    assert all((entry.title, entry.means, entry.culprit, entry.establishes, entry.does_not, entry.fix))
    assert entry.category in CATEGORIES


def test_explain_suggests_a_cause(inside: Run) -> None:
    result = quiet(inside("explain", "uneven_loder"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "uneven_loader" in result.stderr


def test_the_demo_lists_its_scenarios(inside: Run) -> None:
    result = quiet(inside("demo", "--list"))
    assert result.returncode == 0 and "rank_conditional" in result.stdout
    assert quiet(inside("demo", "nonsense")).returncode in (1, 2)


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(environment: dict[str, str], hang: Path, tmp_path: Path) -> None:
    import sys

    with subprocess.Popen(
        [sys.executable, "-m", "hangscope", "analyze", str(hang), "--format", "json", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
