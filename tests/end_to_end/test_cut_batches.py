"""Dumps of pending calls only, whose rings begin in the middle of a batch of sends and receives."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.simulator import write_incident


def test_the_last_part_of_the_oldest_batch_waits_for_nobody(tmp_path: Path) -> None:
    # Parts of a batch read "scheduled" for ever; here every ring has lost the first part of its oldest batch.
    write_incident(tmp_path, "healthy", 300, way="pending only")
    assert analyze(tmp_path / "dumps").status != "hang"
