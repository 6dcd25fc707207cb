"""The names of the user's files, functions and lines decide nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.properties.incidents import CAPTURED, FRAMEWORKS, SIMULATED, Said, captured, said_of, simulated
from tests.properties.renaming import MISLEADING, NEUTRAL, rename

WAYS = ("full", "logs only")


def core(said: Said) -> Said:
    return dataclasses.replace(said, confidence=None)


def renamed_apart(folder: Path) -> list[Said]:
    """Return what is said under the names as they are, neutral ones and misleading ones, where that differs."""
    said = [core(said_of(folder))]
    for words in (NEUTRAL, MISLEADING):
        rename(folder, words)
        said.append(core(said_of(folder)))
    return said if len(set(said)) > 1 else []


@pytest.mark.parametrize(
    ("fault", "seed", "way"),
    [pytest.param(fault, seed, way, id=f"{fault}-{way}") for way in WAYS for fault, seed in SIMULATED],
)
def test_simulated(fault: str, seed: int, way: str) -> None:
    with simulated(fault, seed, way) as (folder, _):
        assert not renamed_apart(folder)


@pytest.mark.parametrize("incident", CAPTURED, ids=lambda incident: incident.name)
def test_captured(incident: Path) -> None:
    with captured(incident) as folder:
        assert not renamed_apart(folder)


@pytest.mark.parametrize("incident", FRAMEWORKS, ids=lambda incident: incident.name)
def test_jobs_of_frameworks(incident: Path) -> None:
    for folders in (("dumps",), ("logs",), ("dumps", "logs")):
        with captured(incident, *folders) as folder:
            assert not renamed_apart(folder), folders


def test_renaming_leaves_libraries_and_changes_the_rest(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '[rank1]:   File "/workspace/train/train.py", line 17, in save_checkpoint\n'
        "[rank1]:     dist.barrier()\n"
        '[rank1]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81, in wrapper\n'
        "[rank1]:     return func(*args)\n"
        '  File "/workspace/train/train.py", line 9 in <module>\n'
        "train.py FAILED\n"
    )
    (tmp_path / "rank_1.log").write_text(text)
    rename(tmp_path)
    said = (tmp_path / "rank_1.log").read_text()
    assert "save_checkpoint" not in said
    assert "train.py" not in said
    assert "dist.barrier" not in said
    assert 'u0.py", line 20, in f' in said
    assert 'u0.py", line 10 in <module>' in said
    assert 'c10d_logger.py", line 81, in wrapper\n[rank1]:     return func(*args)' in said
