"""Ranks that say that they came, before a group forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import short, told

TIMED_OUT = (
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 4/5 clients joined."
)
BAR = "{}: 100%|##########| 7/7 [00:03<00:00,  2.01it/s]"


@pytest.mark.parametrize(
    "form",
    [
        "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {member}/5",
        "| distributed init (rank {rank}): env://",
        "2026-01-14 05:02:11 | INFO | dist | initialized host b7 as rank {rank}",
    ],
)
def test_who_did_not_announce_itself_is_missing(tmp_path: Path, form: str) -> None:
    lines = [form.format(rank=rank, member=rank + 1) for rank in (4, 0, 1, 3)]
    assert short(told(tmp_path, [*lines, TIMED_OUT])) == ("init_hang", (2,), "high")


@pytest.mark.parametrize(
    "what", ["Loading checkpoint shards", "Map (num_proc=8)", "Downloading data", "Fetching 7 files"]
)
def test_a_bar_that_loads_is_no_step_of_a_loop(tmp_path: Path, what: str) -> None:
    assert short(told(tmp_path, [BAR.format(what), TIMED_OUT]))[:2] == ("init_hang", ())


@pytest.mark.parametrize("what", ["Training", "Epoch 3", "train loss 2.1"])
def test_a_bar_of_the_loop_is_a_step(tmp_path: Path, what: str) -> None:
    assert short(told(tmp_path, [BAR.format(what), TIMED_OUT]))[0] != "init_hang"


def test_a_monitor_that_missed_a_rank_proves_the_stop_and_names_nobody(tmp_path: Path) -> None:
    lines = ["[ERROR] [ft_monitor@b7] Did not get subsequent heartbeat from rank 2. Waited 90.00 seconds."]
    assert short(told(tmp_path, lines)) == ("unknown", (), "low")
