"""The place of each job that is really run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.live.jobs import Place

# A script that starts the tests in the background leaves them with SIGINT ignored, and `hangscope run` keeps what it inherits.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def here(tmp_path: Path, environment: dict[str, str]) -> Place:
    """Return the folder of a test as the place of a job."""
    place = Place(tmp_path)
    place.environment = environment
    return place
