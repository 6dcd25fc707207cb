"""The setting of NCCL with which a job that hangs runs, by its reporter."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.excerpts.commands import helpful_setting
from tests.text_lines import judged, told

RUN = ["$ NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=2 check.py", "rank 0: all_reduce", "rank 0: success"]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("With NCCL_P2P_DISABLE=1 it works.", "NCCL_P2P_DISABLE"),
        ("NCCL_IB_DISABLE=1 works, but slowly", "NCCL_IB_DISABLE"),
        ("It only runs with NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_P2P_DISABLE=1 does not help", ""),
        ("NCCL_P2P_DISABLE=1 changes nothing, one GPU works", ""),
        ("I set NCCL_SOCKET_IFNAME=bond0 on both. Training works on one node", ""),
        ("with NCCL_DEBUG=INFO it works", ""),
        ("Would NCCL_P2P_DISABLE=1 help?", ""),
        ("ethernet only, NCCL_IB_DISABLE=1. iperf between the two is ok", ""),
    ],
)
def test_who_says_that_it_works_with_a_setting(said: str, name: str) -> None:
    assert helpful_setting([said], said) == name


def test_a_run_with_a_setting_that_ends_well_shows_it() -> None:
    assert helpful_setting(RUN, "") == "NCCL_P2P_DISABLE"
    assert helpful_setting([*RUN[:2], "rank 0: timed out"], "") == ""
    assert helpful_setting(["torchrun check.py", *RUN[1:]], "") == ""


def test_the_path_that_the_setting_changes_is_what_does_not_work(tmp_path: Path) -> None:
    lines = ["Hangs in the first all_reduce.", "ws1:411:455 [0] NCCL INFO Connected all rings", *RUN]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("network_stall", (), "low")
    assert "direct path between the GPUs" in verdict.explanation
