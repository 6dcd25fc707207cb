"""The store: what it keeps, with several writers, on both databases, and what each kind of trouble costs."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.history import store as stores
from hangscope.history.entry import Entry, Use
from hangscope.history.store import StoreError, open_store
from tests.conftest import FIXTURES, Run, analyze
from tests.dump_writer import job, write_all
from tests.history.entries import entry


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Start a PostgreSQL of the system's package, and return its URL; skips where there is none."""
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    found = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        *filter(None, [shutil.which("initdb")]),
    ]
    if not found:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    binaries = Path(found[-1]).parent
    # Not below pytest's own folder, which nobody else may enter; a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="hangscope-pg-"))
    user: list[str] = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        if (
            shutil.which("runuser") is None
            or subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode
        ):
            pytest.skip("PostgreSQL needs another user than root, and there is none called postgres")
        user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    data = folder / "data"
    quiet = {"check": True, "capture_output": True, "cwd": folder}
    subprocess.run([*user, str(binaries / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust"], **quiet)  # type: ignore[call-overload]
    control = [*user, str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    options = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=60"
    subprocess.run([*control, "-o", options, "start"], **quiet)  # type: ignore[call-overload]
    try:
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)  # type: ignore[call-overload]
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: str = request.getfixturevalue("postgres")
    import sqlalchemy

    with sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        connection.execute(
            sqlalchemy.text("DROP TABLE IF EXISTS hangscope_meta, hangscope_incidents, hangscope_uses")
        )
    return url


def entries(place: str) -> list[Entry]:
    with open_store(place, writing=False) as store:
        return store.entries()


def test_an_incident_comes_back_as_it_was_stored(place: str) -> None:
    one, use = entry("a1", title='it\'s "odd" :x % é'), Use("gpu07", "0-7", 1, "3", "mlx5_0")
    with open_store(place) as store:
        store.add(one, [use, Use("gpu08", "0-7", 0, "", "")])
    with open_store(place, writing=False) as store:
        assert store.entries() == [one] and store.entry("a") == one
        assert store.uses("a1")[0] == use and len(store.uses("a1")) == 2


def test_an_incident_that_is_analyzed_again_stays_one_and_keeps_its_note(place: str) -> None:
    with open_store(place) as store:
        store.add(entry("a1", recorded=5.0), [Use("gpu07", "0", 0, "", "")])
        store.annotate("a1", "fixed by a restart")
        store.add(entry("a1", recorded=9.0, confidence="high"), [Use("gpu08", "0", 0, "", "")])
    (found,) = entries(place)
    assert (found.recorded, found.note, found.confidence, found.analyses) == (
        5.0,
        "fixed by a restart",
        "high",
        2,
    )
    with open_store(place, writing=False) as store:
        assert [use.host for use in store.uses("a1")] == ["gpu08"]


def test_an_id_that_fits_none_or_several_is_refused(place: str) -> None:
    with open_store(place) as store:
        store.add(entry("a1"), [])
        store.add(entry("a2"), [])
        for prefix in ("b", "a", "%"):
            with pytest.raises(StoreError, match="begins with"):
                store.entry(prefix)


WRITERS, EACH = 4, 6  # processes, and analyses by each of them


def _analyze_some(place: str, folder: str, number: int) -> None:
    """Analyze some hangs in this process, each at another seq and so an incident of its own."""
    for turn in range(EACH):
        recorders = job(2)
        for recorder in recorders:
            recorder.call("all_reduce", times=2 + EACH * number + turn)
        recorders[0].call("all_reduce", state="scheduled")
        analyze(write_all(recorders, Path(folder) / f"{number}-{turn}"), store=place)


@pytest.mark.slow
def test_analyses_by_several_processes_lose_no_row(place: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_analyze_some, args=(place, str(tmp_path), number))
        for number in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0] * WRITERS
    assert sorted(found.seq for found in entries(place)) == list(range(3, 3 + WRITERS * EACH))


def _of_version_2(path: Path) -> None:
    with open_store(str(path)) as store:
        store.add(entry("a1"), [])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE hangscope_meta SET value = 2")
    connection.commit()
    connection.close()


def _locked(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("other version", "has format 2"),
        ("locked", "locked"),
        ("no folder", "unable to open"),
        ("no database", "not a database"),
        ("full", "full"),
        ("url", "is not a store"),
        ("server", "cannot be used"),
    ],
)
def test_a_store_in_trouble_costs_one_warning_and_no_analysis(
    trouble: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "WAIT", 0.1 if trouble != "server" else 2)
    path, held = tmp_path / "store.db", None
    place = str(path)
    if trouble == "other version":
        _of_version_2(path)
    elif trouble == "locked":
        held = _locked(path)
    elif trouble == "no folder":
        place = str(tmp_path / "no" / "store.db")
    elif trouble == "no database":
        path.write_text("not a database" * 100)
    elif trouble == "full":
        real = sqlite3.connect

        def small(*words: object, **options: object) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(*words, **options)  # type: ignore[call-overload]
            connection.execute("PRAGMA max_page_count = 2")
            return connection

        monkeypatch.setattr(sqlite3, "connect", small)
    elif trouble == "url":
        place = "mysql://me:hunter2hunter2@host/x"
    else:
        pytest.importorskip("psycopg")
        place = "postgresql://me:hunter2hunter2@127.0.0.1:1/x"
    report = analyze(FIXTURES / "rank_conditional_barrier" / "dumps", store=place)
    if held is not None:
        held.close()
    (warning,) = (w for w in report.warnings if w.code == "store_unavailable")
    assert said in warning.message and warning.hint and "hunter2" not in str(warning)
    assert report.verdict is not None and report.verdict.cause == "rank_conditional_collective"
    assert "seen_before" not in report.to_dict()


def test_reading_makes_no_store(tmp_path: Path, inside: Run) -> None:
    place = tmp_path / "store.db"
    done = inside("history", "list", "--store", place)
    assert done.returncode == 1 and "there is no store" in done.stderr and not place.exists()
    done = inside("history", "list")
    assert done.returncode == 2 and "HANGSCOPE_STORE" in done.stderr


def test_a_changed_note_is_found_by_replacing_only_it(place: str) -> None:
    with open_store(place) as store:
        store.add(entry("a1"), [])
        store.annotate("a", "one")
        assert store.annotate("a", "two").note == "one"
    assert entries(place) == [replace(entry("a1"), note="two")]


def test_what_is_only_looked_at_later_keeps_the_place_of_the_report(place: str) -> None:
    with open_store(place) as store:
        store.add(entry("a1", report="/reports/1.html"), [])
        store.add(entry("a1", report=""), [])
    assert entries(place)[0].report == "/reports/1.html"


def test_versions_are_kept_as_far_as_the_files_tell(tmp_path: Path) -> None:
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=3)
        recorder.call("all_reduce", state="scheduled") if recorder.rank else None
    folder = write_all(recorders, tmp_path / "run")
    told = {"schema": "hangscope.evidence/1", "world_size": 3, "files": {}, "torch": "2.13"}
    (folder / "evidence.json").write_text(json.dumps(told))
    analyze(folder, store=str(tmp_path / "store.db"))
    (found,) = entries(str(tmp_path / "store.db"))
    assert found.versions.startswith("NCCL 2.27.5, torch 2.13, hangscope ")


@pytest.mark.parametrize("command", [["brief"], ["table"], ["trace", "-o", "t.json"], ["doctor"]])
def test_every_command_that_analyzes_an_incident_remembers_it(inside: Run, command: list[str]) -> None:
    incident = FIXTURES / "rank_conditional_barrier"
    done = inside(command[0], incident, *command[1:], "--store", "s.db")
    assert done.returncode == 0, done.stderr
    assert "Rank 0 called barrier" in inside("history", "list", "--store", "s.db").stdout
