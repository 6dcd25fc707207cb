"""Lines that an answer quotes behind a claim, and the table that has the claims."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from hangscope.model.events import Event
from hangscope.model.regex import regex
from hangscope.verdict.answer.lines import line_kinds
from tests.text_lines import DEFAULT, c10, judged, timeout, told

OWN = {"who", "named", "times", "writer", "peer", "processes"}
SIGNAL = "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: 41, last completed NCCL work: 41.This is most likely caused by incorrect usages of collectives."


@pytest.mark.parametrize("row", line_kinds(), ids=lambda row: f"{row.kind} {row.has or row.where or ''}")
def test_an_entry_names_fields_that_its_kind_has(row: object) -> None:
    kind = Event.class_of(row.kind)
    assert kind is not None
    names = {f.name for f in fields(kind)}
    used = {name for text in (row.says, row.collect) for name in regex(r"\{(\w+)\}").findall(text)}
    assert used <= names | OWN
    assert not row.has or row.has in names


@pytest.mark.parametrize(
    ("lines", "phrases", "suspects"),
    [
        pytest.param(
            ["RuntimeError: [Rank 0]: Ranks 3, 4, 5, 6, 7 failed to pass monitoredBarrier in 60000 ms"],
            [
                "The monitored barrier of rank 0 timed out: ",
                "Ranks 3, 4, 5, 6, 7 failed",
                "the logs of ranks 3-7",
            ],
            (3, 4, 5, 6, 7),
            id="monitored barrier",
        ),
        pytest.param(
            [
                "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
                "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 21600000ms for recv operation to complete",
            ],
            ["Rank 3 reached the monitored barrier and got no answer from rank 0"],
            (0,),
            id="witness of a monitored barrier",
        ),
        pytest.param(
            [c10(r, f"[{DEFAULT}Rank {r}] {SIGNAL}") for r in (0, 1)],
            [
                "Rank 3 signalled a collective timeout",
                "Last enqueued NCCL work: 41, last completed NCCL work: 41.",
            ],
            (),
            id="dump signal",
        ),
        pytest.param(
            [
                c10(r, f"[PG 3 Rank {r}] Heartbeat monitor timed out! workMetaList_.size() = {n}")
                for r, n in ((0, 121), (1, 121), (2, 97))
            ],
            ["watchdog thread of ranks 0-2", "ranks 0 and 1: '", "= 121'; rank 2: '", "= 97'"],
            (),
            id="heartbeats that differ",
        ),
        pytest.param(
            ["torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /broadcast_from/1/0"],
            ["timed out waiting for a key of the store that rank 1 writes"],
            (1,),
            id="key of a sender",
        ),
        pytest.param(
            ["TimeoutError: RPC call to sample_tokens timed out."],
            ["gave up waiting for its workers' answer to sample_tokens", "a stack of every worker"],
            (),
            id="engine",
        ),
    ],
)
def test_lines_are_quoted_behind_their_claim(
    tmp_path: Path, lines: list[str], phrases: list[str], suspects: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, lines))
    assert not [phrase for phrase in phrases if phrase not in verdict.explanation]
    assert verdict.suspect_ranks == suspects and verdict.culprit_ranks in ((), suspects)
    assert "likely" not in verdict.explanation


def test_a_fault_is_quoted_before_what_follows_from_it(tmp_path: Path) -> None:
    ecc = "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    verdict = judged(told(tmp_path, [ecc, *(timeout(r) for r in (0, 2, 4))]))
    assert verdict.culprit_ranks == (6,) and "timed out after" in verdict.explanation
    assert "Drain the GPU of rank 6" in verdict.explanation


def test_versions_of_nccl_that_differ_ask_for_no_test_of_the_network(tmp_path: Path) -> None:
    warning = "n2:8:9 [0] bootstrap.cc:411 NCCL WARN Mismatched NCCL version detected : rank 0 version 22703 rank 8 version 22602"
    explanation = judged(told(tmp_path, [warning])).explanation
    assert "rank 8 version 22602" in explanation and "bandwidth" not in explanation


@pytest.mark.parametrize(
    "line",
    [
        "n7:8:9 [3] ras/ras.cc:200 NCCL WARN RAS failed to bind to ::1<28028>: Address already in use",
        "OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)",
    ],
)
def test_another_servers_port_is_not_the_stores(tmp_path: Path, line: str) -> None:
    assert judged(told(tmp_path, [line, timeout(0)])).cause != "init_hang"


def test_a_number_within_a_group_is_not_given_for_a_global_rank(tmp_path: Path) -> None:
    error = "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0:1', but store->get('0:1') got error: wait timeout after 300000ms, keys: /default_pg/0//cuda//2/0:1"
    said = judged(
        told(tmp_path, [f"[rank{local}]:[rank{rank}]: {error}" for local, rank in ((0, 4), (1, 5))])
    ).explanation
    assert "Ranks 4 and 5 timed out waiting for a key of the store:" in said
    assert "rank 0 writes" not in said


@pytest.mark.parametrize(
    ("key", "writer", "suspects"),
    [
        ("/broadcast_from/0/1", "member 0 of another group", ()),
        ("/broadcast_from/3/1", "rank 3", (3,)),
        ("/default_pg/0//broadcast_from/3/1", "rank 3", (3,)),
        ("/default_pg/0//broadcast_from/0/1", "rank 0", (0,)),  # in whose keys numbers are global ranks
    ],
)
def test_the_printers_own_number_in_a_key_is_that_of_a_member_of_another_group(
    tmp_path: Path, key: str, writer: str, suspects: tuple[int, ...]
) -> None:
    line = f"[rank0]: torch.distributed.DistStoreError: wait timeout after 300000ms, keys: {key}"
    verdict = judged(told(tmp_path, [line]))
    assert f"Rank 0 timed out waiting for a key of the store that {writer} writes" in verdict.explanation
    assert (verdict.culprit_ranks, verdict.suspect_ranks) == ((), suspects)
