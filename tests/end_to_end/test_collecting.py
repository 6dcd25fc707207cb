"""The ways of collecting an incident, without the analyzer: what is lost, what stays, and what the truth then is."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import FAULTS, WAYS, Kept, Remains, collect, least_size, simulate

CRASH = Remains(simulate("crashed_exception", 3, world_size=16, layout="ddp"))
STUCK = Remains(simulate("stuck_rank", 3, world_size=16, layout="hsdp"))


def written(left: Remains, way: str, folder: Path) -> dict[str, list[str]]:
    """Return kind of file -> names."""
    left.write(folder, collect(left, way))
    kinds = {"recorder": "dumps", "logs": "logs", "stacks": "stacks"}
    found: dict[str, list[str]] = {kind: [] for kind in (*kinds.values(), "launchers")}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[kinds.get(path.parent.name, "launchers")].append(path.name)
    return found


def entries(folder: Path) -> list[list[dict[str, Any]]]:
    return [pickle.loads(path.read_bytes())["entries"] for path in sorted((folder / "recorder").iterdir())]


@cache
def remains(fault: str) -> Remains:
    return Remains(simulate(fault, 0, world_size=least_size(fault)))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_applies_to_every_fault(way: str) -> None:
    for fault in FAULTS:
        left = remains(fault)
        kept = collect(left, way)
        assert isinstance(kept, Kept)
        assert kept.logs <= left.full.logs
        assert kept.launchers <= left.full.launchers
        assert collect(left, way) == kept


def test_ways_keep_what_they_say(tmp_path: Path) -> None:
    counts = {}
    for way in WAYS:
        folder = tmp_path / way
        folder.mkdir()
        counts[way] = {kind: len(names) for kind, names in written(STUCK, way, folder).items()}
    full = counts["full"]
    assert full["dumps"] == full["logs"] == 16
    assert counts["logs only"] == {**full, "dumps": 0, "stacks": 0}
    assert counts["logs and two victims' dumps"] == {**full, "dumps": 2, "stacks": 0}
    assert counts["dumps only"] == {"dumps": 16, "logs": 0, "stacks": 0, "launchers": 0}
    assert counts["culprit's dump gone, its log there"] == {**full, "dumps": 15}
    assert (counts["culprit gone altogether"]["dumps"], counts["culprit gone altogether"]["logs"]) == (15, 15)
    assert counts["one node only"]["dumps"] == STUCK.job.layout.per_host
    assert 0 < counts["a quarter gone"]["dumps"] + counts["a quarter gone"]["logs"] < 32


@pytest.mark.parametrize(("way", "most"), [("last 6 entries", 6), ("last 30 entries", 30)])
def test_short_rings_hold_the_last_calls(way: str, most: int, tmp_path: Path) -> None:
    written(STUCK, way, tmp_path)
    assert {len(of) for of in entries(tmp_path)} == {most}


def test_dumps_of_pending_calls_and_without_frames(tmp_path: Path) -> None:
    for way in ("pending only", "no frames"):
        (tmp_path / way).mkdir()
        written(STUCK, way, tmp_path / way)
    pending = [entry for of in entries(tmp_path / "pending only") for entry in of]
    assert pending
    assert all(entry["state"] != "completed" for entry in pending)
    bare = [entry for of in entries(tmp_path / "no frames") for entry in of]
    assert any(entry["state"] == "completed" for entry in bare)
    assert not any("frames" in entry for entry in bare)


def test_an_early_dump_shows_less(tmp_path: Path) -> None:
    kept = collect(STUCK, "a quarter of the dumps early")
    assert len(kept.taken) == 4
    assert all(time < STUCK.outcome.last for time in kept.taken.values())
    assert set(kept.taken) < kept.dumps


def test_clocks_differ_between_hosts_only() -> None:
    kept = collect(STUCK, "hosts ±3 s apart")
    hosts = [STUCK.job.layout.host(rank) for rank in range(16)]
    assert len(set(kept.clocks)) == len(set(hosts))
    assert len(set(zip(hosts, kept.clocks, strict=True))) == len(set(hosts))


def test_a_job_that_is_cancelled_logs_no_timeout_and_the_launcher_says_so(tmp_path: Path) -> None:
    for left, name in ((STUCK, "stuck"), (CRASH, "crash")):
        folder = tmp_path / name
        folder.mkdir()
        files = written(left, "cancelled a minute after the freeze", folder)
        logs = "".join((folder / "logs" / log).read_text() for log in files["logs"])
        assert "Watchdog" not in logs
        launchers = "".join((folder / log).read_text() for log in files["launchers"])
        assert "CANCELLED AT" in launchers or "Received 15 death signal" in launchers
    assert "Traceback" in logs


def test_a_late_rank_of_a_job_that_is_cancelled_meanwhile_froze_it() -> None:
    left = Remains(simulate("slow_rank", 1, world_size=8))
    assert left.frozen_at is not None
    kept = collect(left, "cancelled a minute after the freeze")
    truth = left.truth(kept)
    assert (truth.accept, truth.status) == (["stuck_rank", "slow_rank"], None)
    assert left.truth(left.full).status == "no_hang"


def test_what_tells_a_culprit_apart() -> None:
    assert STUCK.tells(STUCK.full)
    assert STUCK.tells(collect(STUCK, "logs only"))  # it alone observed the others' dump signal
    assert not STUCK.tells(collect(STUCK, "culprit gone altogether"))
    assert CRASH.tells(collect(CRASH, "culprit gone altogether"))  # the launcher saw it end
