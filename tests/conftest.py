"""Fixtures that all tests share: where things lie, a quick way to analyze, the command in a process of its own."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

import hangscope
from hangscope.api import Report
from hangscope.cli import main
from hangscope.ingest.workers import pool
from tests.dump_writer import job, stuck, write_all
from tests.in_thread import InThisThread

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
INCIDENTS = ROOT.parent / "shared" / "incidents"

# The same examples in every run, and no shrinking: the suite's time is bounded.
settings.register_profile(
    "bounded",
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("bounded")

REAL = "real frozen jobs: set HANGSCOPE_REAL_JOBS=1, or run .ci/live"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def analyze(paths: Any, **options: Any) -> Report:
    """Analyse in this process. A picture that could not be drawn is a note to a user, and a failure here."""
    report = hangscope.analyze(paths, executor=InThisThread(), **options)
    assert "pictures_failed" not in {warning.code for warning in report.warnings}, report.warnings
    return report


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def incidents() -> Path:
    """Return the folder of incidents that lies beside the checkout; skips where there is none."""
    if not INCIDENTS.is_dir():
        pytest.skip(f"no incidents at {INCIDENTS}")
    return INCIDENTS


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Return an environment in which a child finds the same hangscope, wherever it runs."""
    home = str(Path(hangscope.__file__).resolve().parents[1])
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "HANGSCOPE_DEBUG")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(p for p in (home, kept.get("PYTHONPATH", "")) if p),
        "COLUMNS": "100",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Return a function that runs the command in `tmp_path/here` and gives its exit code and what it printed."""
    here = tmp_path / "here"
    here.mkdir()

    def hangscope_command(*words: Any, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hangscope", *map(str, words)],
            cwd=here,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return hangscope_command


@pytest.fixture
def inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Return a function that runs the command as `run` does, in this process, which reads the files as well."""
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "HANGSCOPE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    plain = pool.read_files

    def in_this_thread(*words: Any, **options: Any) -> Any:
        return plain(*words, **{**options, "executor": options.get("executor") or InThisThread()})

    monkeypatch.setattr(pool, "read_files", in_this_thread)

    def hangscope_command(*words: Any, **settings: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main([str(word) for word in words], prog_name="hangscope")
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(words, ended.value.code, printed.out, printed.err)

    yield hangscope_command
    gc.enable()  # `analyze` switches it off


@pytest.fixture(scope="session")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dumps of four ranks, of which rank 2 is stuck."""
    return write_all(stuck(4, culprit=2), tmp_path_factory.mktemp("hang"))


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dumps of three ranks that made the same calls."""
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=5)
    return write_all(recorders, tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def unclear(healthy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dump of one rank of three."""
    folder = tmp_path_factory.mktemp("unclear")
    shutil.copy(healthy / "nccl_trace_rank_0", folder)
    return folder


#: Where all tests are slow: real processes under watch, properties over many incidents, and every pattern's running time.
SLOW = tuple(ROOT / "tests" / name for name in ("live", "properties", "test_patterns.py"))


def _is_slow(path: Path) -> bool:
    return any(place == path or place in path.parents for place in SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import tests that are all slow where slow tests are not wanted: that takes seconds in every worker."""
    return True if config.getoption("markexpr") == "not slow" and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow as a whole, and skip the real jobs unless they are asked for."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("real") and not os.environ.get("HANGSCOPE_REAL_JOBS"):
            item.add_marker(pytest.mark.skip(reason=REAL))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not run."""
    left_out = [r for r in terminalreporter.stats.get("skipped", []) if REAL in str(r.longrepr)]
    if left_out:
        terminalreporter.write_line(f"NOT RUN: {len(left_out)} tests with {REAL}", yellow=True, bold=True)
