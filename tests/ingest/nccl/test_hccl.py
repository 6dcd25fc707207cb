"""HCCL's own words under torch_npu's exceptions: who waited, and what is a fault."""

from __future__ import annotations

import io

import pytest

from hangscope.ingest.job_logs.messages import HcclTimeout
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import read_log
from hangscope.model.incident import Event

WHO = "[ERROR] 2026-01-14-05:02:11 (PID:5201, Device:1, RankID:9) ERR00100 PTA call acl api failed."
NOTIFY = (
    "EI0002: [PID: 5201] 2026-01-14-05:02:11.300.711 The wait execution of the Notify register times out. Reason: The Notify register has "
    "not received the Notify record from remote rank [{peer}]. base information: [streamID:[3], taskID[4], tag[AllReduce_group_name_0]]."
)


def events(*lines: str) -> list[Event]:
    return read_log(io.BytesIO("\n".join(lines).encode()), "job.log").events


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (NOTIFY.format(peer="2"), "notify"),
        (NOTIFY.format(peer="unknown"), "notify"),
        ("EI9999: 2026-01-14  hccl fftsplus task timeout occurred during task execution, stream_id:4", "task"),
        ("EI0006: [PID: 5201] Getting socket times out. Reason: Remote Rank did not send the data in time.", "socket"),
    ],
)  # fmt: skip
def test_a_timeout_is_the_word_of_the_rank_in_the_line_before(text: str, what: str) -> None:
    (event,) = [e for e in events(WHO, "worker detail", text) if isinstance(e, HcclTimeout)]
    assert (event.rank, event.what) == (9, what)
    assert event.peer_group_rank == (2 if "[2]" in text else None)


def test_a_rank_that_stands_far_above_is_not_taken() -> None:
    (event,) = [e for e in events(WHO, *["x"] * 40, NOTIFY.format(peer="2")) if isinstance(e, HcclTimeout)]
    assert event.rank is None
    (event,) = [e for e in events(WHO, "[rank4]: " + NOTIFY.format(peer="2")) if isinstance(e, HcclTimeout)]
    assert event.rank == 4


@pytest.mark.parametrize(
    ("text", "fault", "peer"),
    [
        ("EI0005: The arguments for collective communication are inconsistent between ranks: tag [t], parameter [count], local [8], remote [9]", "collective_mismatch", None),
        ("EI0013: An error CQE occurred during operator execution. Local information: server 192.0.2.3, device ID 1, device IP 192.0.2.31. Peer information: server 192.0.2.7, device ID 2, device IP 192.0.2.71.", "ib_error", "192.0.2.7"),
        ("EJ0002: [PID: 5201] The network port is down.Suggest: check the cable", "port_error", None),
    ],
)  # fmt: skip
def test_faults(text: str, fault: str, peer: str | None) -> None:
    (event,) = [e for e in events(WHO, text) if isinstance(e, NcclWarn)]
    assert (event.rank, event.fault, event.peer_host) == (9, fault, peer)


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        ("InnerRun:OpParamMaker.cpp:218 OPS function error: HcclAllreduce, error code is 9", True),
        ("npuSynchronizeDevice:NPUStream.cpp:470 NPU function error: AclrtSynchronizeDevice, error code is 507048", True),
        ("npuSynchronizeDevice:NPUStream.cpp:363 NPU error, error code is 107020", True),
        ("malloc:NPUCachingAllocator.cpp:90 NPU error, error code is 207001", False),
    ],
)  # fmt: skip
def test_an_exception_over_a_wait_is_no_fault_of_its_rank(message: str, symptom: bool) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 8, in step',
        "    loss.backward()",
    ]
    (event,) = [e for e in events(*lines, f"RuntimeError: {message}") if isinstance(e, RankException)]
    assert event.symptom is symptom
