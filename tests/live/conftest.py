"""The place of each job that is really run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.jobs import Place


@pytest.fixture
def here(tmp_path: Path, environment: dict[str, str]) -> Place:
    """Return the folder of a test as the place of a job."""
    place = Place(tmp_path)
    place.environment = environment
    return place
