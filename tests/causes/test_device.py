"""Devices and the network: everybody made the call."""

from __future__ import annotations

from hypothesis import given, settings

from tests.dump_writer import Recorder
from tests.small_jobs import ODD_ONES, due, frozen, loop
from tests.verdicts import blame, level


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_a_device_that_does_not_finish_what_its_peers_finished_with_it(job_of: tuple[int, int]) -> None:
    """That the others are through proves that this rank's host had made its calls."""
    size, odd = job_of

    def last(recorder: Recorder, is_odd: bool) -> None:
        for _ in range(2):
            due(recorder, "started" if is_odd else "completed")
        due(recorder)

    assert blame(frozen(loop(size), (odd,), last)) == ("hang", "gpu_stall", (odd,))


@settings(max_examples=4)
@given(job_of=ODD_ONES)
def test_a_call_that_all_joined_and_none_finishes_is_the_networks_and_names_nobody(
    job_of: tuple[int, int],
) -> None:
    report = frozen(loop(job_of[0]), (), lambda r, is_odd: due(r))
    assert blame(report) == ("hang", "network_stall", ())
    assert level(report) == "low"


def test_an_adapters_own_fault_makes_that_sure() -> None:
    warning = (
        "gpu07:{pid}:77 [0] transport/net_ib.cc:97 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"
    )
    report = frozen(
        loop(4),
        (),
        lambda r, is_odd: due(r),
        rank2=["[rank2]: step 12", f"[rank2]: {warning.format(pid=31)}"],
    )
    assert blame(report) == ("hang", "network_stall", (2,))
    assert level(report) != "low"


def test_a_rank_whose_log_tells_of_a_broken_device_is_named() -> None:
    error = "RuntimeError: CUDA error: unspecified launch failure"
    report = frozen(loop(4), (), lambda r, is_odd: due(r), rank3=[f"[rank3]: {error}"])
    assert blame(report)[1:] == ("gpu_stall", (3,))
