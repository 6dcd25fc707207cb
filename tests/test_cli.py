"""The command as users and schedulers meet it: exit codes, messages, files, and nothing on stdout but the report."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest

from hangscope.causes.catalog import CATALOG
from hangscope.cli import main
from tests.conftest import FIXTURES, Run
from tests.dump_writer import job, stuck, write_all

CONTRACT_CAUSES = {
    "rank_conditional_collective",
    "uneven_loader",
    "crashed_rank",
    "early_exit",
    "stuck_rank",
    "shape_mismatch",
    "dtype_mismatch",
    "collective_mismatch",
    "gradient_sync_mismatch",
    "model_mismatch",
    "collective_order_mismatch",
    "p2p_mismatch",
    "gpu_stall",
    "network_stall",
    "init_hang",
    "slow_rank",
    "unknown",
}

VERDICT_KEYS = {
    "cause",
    "confidence",
    "culprit_ranks",
    "culprits",
    "category",
    "group",
    "op",
    "seq",
    "is_p2p",
    "waiting_ranks",
    "explains",
    "fingerprint",
    "culprit_call",
    "waiting_call",
    "location",
    "summary",
    "evidence",
    "advice",
    "alternatives",
}
REPORT_KEYS = {"schema", "status", "verdict", "groups", "ranks", "inputs", "warnings", "tool_version"}
CATEGORIES = {"code", "data", "hardware", "network", "environment", "external", "unknown"}


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(stuck(4, culprit=2), tmp_path_factory.mktemp("hang"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=5)
    return write_all(recorders, tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="module")
def unclear(healthy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unclear")
    shutil.copy(healthy / "nccl_trace_rank_0", folder)
    return folder


def quiet(result: Any) -> Any:
    """Check what holds for every call, and return it."""
    assert "Traceback" not in result.stdout + result.stderr
    return result


# -- exit codes ----------------------------------------------------------------------------------------------------


def test_a_verdict_is_no_failure(run: Run, hang: Path, tmp_path: Path) -> None:
    """A hook under `set -e`, or a Slurm epilog, must not be hurt by what the report says."""
    result = quiet(run("analyze", hang))
    assert result.returncode == 0
    assert result.stdout.startswith("hang[stuck_rank]: Rank 2 ")
    assert result.stderr == "Wrote hangscope-report.html\n"
    page = (tmp_path / "here" / "hangscope-report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")


def test_exit_code_tells_the_status_when_asked(run: Run, hang: Path, healthy: Path, unclear: Path) -> None:
    assert quiet(run("analyze", hang, "--exit-code", "-q")).returncode == 10
    assert quiet(run("analyze", unclear, "--exit-code", "-q", "--world-size", 3)).returncode == 11
    assert quiet(run("analyze", healthy, "--exit-code", "-q")).returncode == 0


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
        ("explain", "nonsense"),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    result = quiet(run(*words))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize(("option", "value"), [("--redact", "hats"), ("--attempt", "third")])
def test_a_wrong_value(run: Run, hang: Path, option: str, value: str) -> None:
    result = quiet(run("analyze", hang, option, value))
    assert (result.returncode, result.stdout) == (2, "")
    assert value in result.stderr


# -- no usable input -----------------------------------------------------------------------------------------------


def test_a_path_that_does_not_exist(run: Run) -> None:
    result = quiet(run("analyze", "no/such/folder"))
    assert (result.returncode, result.stdout) == (3, "")
    assert "no/such/folder" in result.stderr and "hint:" in result.stderr


def test_an_empty_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = quiet(run("analyze", tmp_path / "empty"))
    assert (result.returncode, result.stdout) == (3, "")
    assert "empty" in result.stderr and "no files" in result.stderr and "hint:" in result.stderr


def test_a_folder_without_dumps(run: Run, tmp_path: Path) -> None:
    """One message: what was looked for, and what was found instead."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 4)
    (folder / "settings.json").write_text('{"lr": 0.1}')
    (folder / "nothing").write_bytes(b"")
    result = quiet(run("analyze", folder))
    assert (result.returncode, result.stdout) == (3, "")
    assert "Flight Recorder dumps" in result.stderr
    for name in ("a.png", "settings.json", "nothing"):
        assert name in result.stderr
    assert result.stderr.count("hangscope:") == 1
    assert not (tmp_path / "here" / "hangscope-report.html").exists()


def test_a_file_that_cannot_be_read(run: Run, hang: Path, tmp_path: Path) -> None:
    """It is named, and the rest is analysed."""
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    (folder / "nccl_trace_rank_1").unlink()
    (folder / "nccl_trace_rank_1").symlink_to("/nowhere/at/all")
    (folder / "nccl_trace_rank_0").write_bytes(b"\x80\x02}q")
    result = quiet(run("analyze", folder, "-v"))
    assert result.returncode == 0
    assert "hang[stuck_rank]: Rank 2" in result.stdout
    warnings = [line for line in result.stdout.splitlines() if "warning:" in line]
    assert any("nccl_trace_rank_0" in w and "truncated" in w for w in warnings)
    assert any("nccl_trace_rank_1" in w for w in warnings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(run: Run, hang: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    (folder / "nccl_trace_rank_1").chmod(0)
    result = quiet(run("analyze", folder))
    assert result.returncode == 0 and "nccl_trace_rank_1" in result.stdout


def test_names_that_are_no_text(run: Run, hang: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(hang, folder)
    os.rename(os.fsencode(folder / "nccl_trace_rank_2"), os.fsencode(folder) + b"/nccl_tr\xffce_rank_2")
    result = quiet(run("analyze", folder, "--format", "json", "--json", "report.json"))
    assert result.returncode == 0
    assert json.loads(result.stdout)["verdict"]["culprit_ranks"] == [2]


# -- what is written -----------------------------------------------------------------------------------------------


def test_a_report_that_cannot_be_written(run: Run, hang: Path, tmp_path: Path) -> None:
    """The verdict is still printed."""
    (tmp_path / "a_file").write_text("x")
    result = quiet(run("analyze", hang, "-o", tmp_path / "a_file" / "report.html"))
    assert result.returncode == 1
    assert result.stdout.startswith("hang[stuck_rank]")
    assert "cannot be written" in result.stderr
    folder = quiet(run("analyze", hang, "-o", tmp_path))
    assert folder.returncode == 1 and folder.stdout.startswith("hang[stuck_rank]")


def test_a_file_of_someone_else_is_not_overwritten(run: Run, hang: Path, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.html"
    mine.write_text("<html>years of work</html>")
    refused = quiet(run("analyze", hang, "-o", mine))
    assert refused.returncode == 1
    assert mine.read_text() == "<html>years of work</html>"
    assert "--force" in refused.stderr and refused.stdout.startswith("hang[")
    assert quiet(run("analyze", hang, "-o", mine, "--force")).returncode == 0
    assert "years of work" not in mine.read_text()
    assert quiet(run("analyze", hang, "-o", mine)).returncode == 0  # now it is a report of ours
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_json_report_beside_the_page(run: Run, hang: Path, tmp_path: Path) -> None:
    result = quiet(run("analyze", hang, "--json", "report.json", "-o", "page.html"))
    here = tmp_path / "here"
    assert result.stderr.splitlines() == ["Wrote page.html", "Wrote report.json"]
    check_json((here / "report.json").read_text())
    assert sorted(p.name for p in here.iterdir()) == ["page.html", "report.json"]
    foreign = here / "data.json"
    foreign.write_text("{}")
    assert quiet(run("analyze", hang, "--json", "data.json", "-o", "page.html")).returncode == 1
    assert foreign.read_text() == "{}"


def check_json(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    assert data["schema"] == "hangscope.report/1"
    assert set(data) >= REPORT_KEYS
    assert data["status"] in ("hang", "no_hang", "inconclusive")
    for group in data["groups"]:
        assert set(group) >= {"name", "desc", "role", "ranks", "frontier"}
    for rank in data["ranks"]:
        assert set(rank) >= {"rank", "host", "state", "absence", "last_call", "files"}
    for item in data["inputs"]:
        assert set(item) >= {"file", "kind", "rank", "status", "reason"}
    verdict = data["verdict"]
    if verdict is None:
        assert data["status"] != "hang"
        return data
    assert set(verdict) >= VERDICT_KEYS
    assert verdict["cause"] in CONTRACT_CAUSES and verdict["category"] in CATEGORIES
    assert verdict["confidence"] in ("high", "medium", "low")
    assert (
        set(verdict["explains"]) >= {"ranks", "of"}
        and verdict["explains"]["ranks"] <= verdict["explains"]["of"]
    )
    assert len(verdict["alternatives"]) <= 3
    assert all(set(a) >= {"cause", "why"} and a["cause"] in CONTRACT_CAUSES for a in verdict["alternatives"])
    assert all(set(e) >= {"kind", "text", "rank", "source"} for e in verdict["evidence"])
    assert all(set(c) >= {"rank", "host", "local_rank", "device", "pid"} for c in verdict["culprits"])
    assert verdict["group"] is None or set(verdict["group"]) >= {"name", "desc", "ranks"}
    for call in (verdict["culprit_call"], verdict["waiting_call"]):
        assert call is None or set(call) >= {"op", "seq", "frames"}
        assert call is None or all(set(f) >= {"name", "file", "line"} for f in call["frames"])
    assert verdict["location"] is None or set(verdict["location"]) >= {"file", "line", "function", "rank"}
    assert not set(verdict["culprit_ranks"]) & set(verdict["waiting_ranks"])
    return data


@pytest.mark.parametrize(
    "name",
    ["rank_conditional_barrier", "shape_mismatch", "raising_rank_torchrun", "mesh_stuck_loader", "healthy"],
)
def test_json_keeps_the_contract(run: Run, name: str) -> None:
    result = quiet(run("analyze", FIXTURES / name / "dumps", "--format", "json"))
    assert result.returncode == 0
    check_json(result.stdout)


def test_markdown(run: Run, hang: Path) -> None:
    result = quiet(run("analyze", hang, "--format", "markdown"))
    assert result.stdout.startswith("## hangscope: Rank 2 ")
    assert "`stuck_rank`" in result.stdout


def test_quiet_and_verbose(run: Run, hang: Path) -> None:
    assert quiet(run("analyze", hang, "-q")).stderr == ""
    usual, verbose = (quiet(run("analyze", hang, *words)).stdout for words in ((), ("-v",)))
    assert len(verbose.splitlines()) >= len(usual.splitlines())


def test_the_text_report_fits_one_screen(run: Run) -> None:
    result = quiet(run("analyze", FIXTURES / "rank_conditional_barrier" / "dumps"))
    lines = result.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 110


def test_redact(run: Run, tmp_path: Path) -> None:
    incident = FIXTURES / "raising_rank_torchrun" / "dumps"
    plain = quiet(run("analyze", incident, "--format", "json", "-o", "plain.html")).stdout
    hidden = quiet(
        run("analyze", incident, "--format", "json", "-o", "hidden.html", "--redact", "hosts,paths,users")
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
    run: Run, hang: Path, words: tuple[str, ...], settings: dict[str, str], coloured: bool
) -> None:
    """The option first, then NO_COLOR, then FORCE_COLOR, then the terminal (here there is none)."""
    output = quiet(run("analyze", hang, *words, **settings)).stdout
    assert ("\x1b[" in output) == coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert plain.startswith("hang[stuck_rank]: Rank 2")


def test_colour_is_for_text_alone(run: Run, hang: Path) -> None:
    assert "\x1b[" not in quiet(run("analyze", hang, "--format", "json", "--color", "always")).stdout


# -- inputs --------------------------------------------------------------------------------------------------------


def test_archives_and_several_paths(run: Run, hang: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as tar:
        tar.add(hang, "dumps")
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in hang.iterdir():
            archive.write(path, f"dumps/{path.name}")
    files = sorted(hang.iterdir())
    for paths in ([tmp_path / "job.tar.gz"], [tmp_path / "job.zip"], files, [files[0], tmp_path / "job.zip"]):
        data = check_json(quiet(run("analyze", *paths, "--format", "json", "-q")).stdout)
        assert (data["verdict"]["cause"], data["verdict"]["culprit_ranks"]) == ("stuck_rank", [2])


def test_an_archive_that_climbs_out_is_stopped(run: Run, hang: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in hang.iterdir():
            archive.write(path, path.name)
        archive.writestr("../../climbed", "out")
    result = quiet(run("analyze", tmp_path / "job.zip"))
    assert result.returncode == 0 and "hang[stuck_rank]: Rank 2" in result.stdout
    assert "outside the archive" in " ".join(result.stdout.split())
    assert not list(tmp_path.rglob("climbed"))


def test_its_own_reports_are_no_input(run: Run, hang: Path, tmp_path: Path) -> None:
    """A second run over a folder that holds the first one's report says the same."""
    folder = tmp_path / "job"
    shutil.copytree(hang, folder)
    first, second = (
        quiet(run("analyze", folder, "-o", folder / "hang.html", "--json", folder / "hang.json")).stdout
        for _ in range(2)
    )
    assert first == second


def test_world_size_and_jobs(run: Run, hang: Path) -> None:
    data = check_json(quiet(run("analyze", hang, "--format", "json", "--world-size", 6, "--jobs", 2)).stdout)
    assert data["world_size"] == 6 and len(data["ranks"]) == 6


def test_max_bytes(run: Run, hang: Path) -> None:
    result = quiet(run("analyze", hang, "--max-bytes", 100))
    assert result.returncode == 3 and "limit" in result.stderr


@pytest.mark.parametrize("form", ["folder", "zip", "gztar"])
def test_attempts(run: Run, hang: Path, healthy: Path, tmp_path: Path, form: str) -> None:
    """The last restart attempt is analysed, or the one that is asked for, also inside an archive."""
    job = tmp_path / "job"
    shutil.copytree(hang, job / "attempt_0")
    shutil.copytree(healthy, job / "attempt_1")
    if form != "folder":
        job = Path(shutil.make_archive(str(tmp_path / "packed"), form, job))
    statuses = [
        check_json(quiet(run("analyze", job, "--format", "json", *words)).stdout)["status"]
        for words in ((), ("--attempt", "0"), ("--attempt", "1"))
    ]
    assert statuses == ["no_hang", "hang", "no_hang"]


# -- help and explanations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(run: Run, word: str) -> None:
    for words in ((), ("analyze",), ("explain",), ("demo",)):
        result = quiet(run(*words, word))
        assert result.returncode == 0 and result.stdout.startswith("Usage: ") and result.stderr == ""


def test_version(run: Run) -> None:
    result = quiet(run("--version"))
    assert result.returncode == 0 and re.match(r"hangscope, version \d", result.stdout)


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_option_is_documented(run: Run, command: str) -> None:
    text = quiet(run(command, "--help")).stdout
    assert main.commands[command].help
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert all(option in text for option in parameter.opts)
            assert parameter.help, f"{command} {parameter.opts[0]} says nothing of itself"


def test_explain_every_cause(run: Run) -> None:
    assert set(CATALOG) == CONTRACT_CAUSES
    listed = quiet(run("explain")).stdout
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == list(CATALOG)
    result = quiet(run("explain", "uneven_loader"))
    assert result.returncode == 0
    for part in (
        "What happened:",
        "The culprit is:",
        "A verdict establishes:",
        "It does not establish:",
        "What to do:",
    ):
        assert part in result.stdout


@pytest.mark.parametrize("cause", sorted(CONTRACT_CAUSES))
def test_every_cause_says_what_it_establishes_and_what_not(cause: str) -> None:
    entry = CATALOG[cause]
    assert all((entry.title, entry.means, entry.culprit, entry.establishes, entry.does_not, entry.fix))
    assert entry.category in CATEGORIES


def test_explain_suggests_a_cause(run: Run) -> None:
    result = quiet(run("explain", "uneven_loder"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "uneven_loader" in result.stderr


def test_the_demo_lists_its_scenarios(run: Run) -> None:
    result = quiet(run("demo", "--list"))
    assert result.returncode == 0 and "rank_conditional" in result.stdout
    assert quiet(run("demo", "nonsense")).returncode in (1, 2)


def test_a_closed_pipe_is_no_error(environment: dict[str, str], hang: Path, tmp_path: Path) -> None:
    import subprocess
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
