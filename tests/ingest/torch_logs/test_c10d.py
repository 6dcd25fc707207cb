from __future__ import annotations

import pytest

from hangscope.model.frames import Frame
from hangscope.model.incident import Event
from tests.text_lines import settled

WORK = "WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=58, NumelOut=58, Timeout(ms)=600000)"
HEADER = "[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] "
PG = "[PG ID 2 PG GUID 9(tp) Rank 1] "


def events(text: str, kind: str | None = None) -> list[Event]:
    reading = settled(text)
    assert reading.notes == []
    return [event for event in reading.events if kind is None or event.kind == kind]


@pytest.mark.parametrize(
    ("header", "rank", "group_rank"),
    [
        ("[E ProcessGroupNCCL.cpp:828] [Rank 1] ", None, 1),  # 2.0
        ("[E ProcessGroupNCCL.cpp:474] [Rank 1] ", None, 1),  # 2.1
        ("[rank3]:[E ProcessGroupNCCL.cpp:523] [Rank 1] ", 3, 1),  # 2.2
        ("[rank3]:[E ProcessGroupNCCL.cpp:563] [PG 0 Rank 3] ", 3, 3),  # 2.3
        ("[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:607] [Rank 1] ", 3, 1),  # 2.4
        ("[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:689] [Rank 1] ", 3, 1),  # 2.10 and later
        ("11: [rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:632] [Rank 1] ", 3, 1),
    ],
)
def test_watchdog_timeout_of_every_version(header: str, rank: int | None, group_rank: int) -> None:
    text = f"{header}Watchdog caught collective operation timeout: {WORK} ran for 600029 milliseconds before timing out."
    (event,) = events(text)
    assert (event.kind, event.rank, event.group_rank) == ("watchdog_timeout", rank, group_rank)
    told = {
        "seq": 6,
        "op": "all_reduce",
        "numel_in": 58,
        "numel_out": 58,
        "timeout_ms": 600000,
        "ran_ms": 600029,
    }
    assert {name: getattr(event, name) for name in told} == told


def test_before_1_12_a_timeout_has_no_number() -> None:
    text = "[E ProcessGroupNCCL.cpp:587] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1801000 milliseconds before timing out."
    (event,) = events(text)
    assert event.op == "broadcast" and not event.seq


@pytest.mark.parametrize(
    "text",
    ["Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpTy", "Watchdog caught a cold", ""],
)
def test_cut_and_foreign_lines_are_no_timeouts(text: str) -> None:
    assert events(HEADER + text) == []


def test_reprints_are_one_event_which_knows_its_group() -> None:
    timeout = f"[Rank 1] Watchdog caught collective operation timeout: {WORK} ran for 600029 milliseconds before timing out."
    text = (
        f"{HEADER}{timeout}\n"
        f"{HEADER}{PG}Process group watchdog thread terminated with exception: {timeout}\n"
        f"terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  {PG}Process group watchdog thread terminated with exception: {timeout}\n"
    )
    first = events(text, "watchdog_timeout")[0]
    assert len([e for e in events(text, "watchdog_timeout") if e.rank == 3]) == 1
    assert (first.line, first.group_name, first.group_desc) == (1, "9", "tp")
    (dead,) = events(text, "terminate")
    assert dead.type == "c10::DistBackendError"


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        (f"{PG}Timeout at NCCL work: 6, last enqueued NCCL work: 9, last completed NCCL work: 5.", 6),
        (
            f"{PG}Exception (either an error or timeout) detected by watchdog at work: 6, last enqueued NCCL "
            f"work: 9, last completed NCCL work: 5.",
            6,
        ),
        (
            f"{PG} failure detected by watchdog at work sequence id: 6 PG status: last enqueued work: 9, last"
            f" completed work: 5",
            6,
        ),
        (
            f"{PG} failure detected by watchdog at work sequence id: -1 PG status: last enqueued work: 9, "
            f"last completed work: 5",
            -1,
        ),
    ],
)
def test_both_wordings_of_last_enqueued_and_completed(text: str, seq: int) -> None:
    (event,) = events(HEADER + text)
    assert (event.kind, event.rank, event.group_rank) == ("watchdog_status", 3, 1)
    assert (event.seq, event.last_enqueued, event.last_completed) == (seq, 9, 5)
    assert (event.group_name, event.group_desc) == ("9", "tp")


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[PG ID 0 PG GUID 0(default_pg) Rank 5] ", 5),
        ("[PG 0 (default_pg) Rank 5] ", 5),
        ("[PG 1 Rank 5] ", None),
        ("[PG ID 1 PG GUID 7 Rank 5] ", None),
    ],
)
def test_only_the_default_groups_rank_is_global(prefix: str, rank: int | None) -> None:
    text = f"[E ProcessGroupNCCL.cpp:1664] {prefix}Timeout at NCCL work: 6, last enqueued NCCL work: 9, last completed NCCL work: 5."
    (event,) = events(text)
    assert (event.rank, event.group_rank) == (rank, 5)


@pytest.mark.parametrize(
    ("text", "detector"),
    [
        (
            "Received a dump signal due to a collective timeout from this local rank and we will try our best"
            " to dump the debug info. Last enqueued NCCL work: 9, last completed NCCL work: 5.This is",
            None,
        ),
        (
            "Received a dump signal due to a collective timeout from  rank 12 and we will try our best to "
            "dump the debug info. Last enqueued NCCL work: 9, last completed NCCL work: 5.This is",
            12,
        ),
    ],
)
def test_dump_signal_names_who_noticed(text: str, detector: object) -> None:
    (event,) = events(HEADER + PG + text)
    assert (
        event.kind,
        event.detector,
        event.last_enqueued,
        event.last_completed,
    ) == ("dump_signal", detector, 9, 5)


@pytest.mark.parametrize(
    ("text", "kind", "field"),
    [
        ("Observed flight recorder dump signal from another rank via TCPStore.", "dump_observed", None),
        ("First PG on this rank to signal dumping.", "dump_signal", ("detector", None)),
        (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring",
            "heartbeat_timeout",
            ("what", "watchdog_stuck"),
        ),
        (
            "Heartbeat monitor timed out! Process will be terminated after dumping debug info. "
            "workMetaList_.size()=2",
            "heartbeat_timeout",
            ("what", "watchdog_stuck"),
        ),
        (
            "Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
            "heartbeat_timeout",
            ("what", "gil"),
        ),
        (
            'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too '
            "early), with error: x",
            "store_unreachable",
            ("what", "store gone"),
        ),
        (
            f"Collective {WORK} raised the following async exception: NCCL error: remote process exited or "
            f"there was a network error, NCCL version 2.27.3",
            "async_error",
            ("error", "remote"),
        ),
        (
            f"Collective {WORK} raised the following async exception: NCCL error: unhandled cuda error (run "
            f"with NCCL_DEBUG=INFO), NCCL version 2.27.3",
            "async_error",
            ("error", "unhandled_cuda"),
        ),
        (
            "NCCL communicator encountered error set by ProcessGroupNCCL: NCCL error: internal error - please"
            " report",
            "async_error",
            ("error", "internal"),
        ),
        (" remote error detected from rank: 4", "async_error", ("peer_rank", 4)),
        (
            "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
            "store by key '0', but store->get('0') got error: timeout",
            "store_timeout",
            ("waited_rank", 0),
        ),
    ],
)
def test_other_lines_of_the_nccl_backend(text: str, kind: str, field: tuple[str, object] | None) -> None:
    found = events(HEADER + PG + text)
    assert [event.kind for event in found] == [kind]
    assert found[0].rank == 3
    if field:
        assert getattr(found[0], field[0]) == field[1]
    assert events(HEADER + PG + text[: len(text) // 5]) == []


DESYNC = """[rank0]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:1936] [PG ID 0 PG GUID 0(default_pg) Rank 0] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #6
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [0, 2] joined but didn't finish collective #6 (count from 1)
\t     [1] finished collective #5, but didn't join collective #6 (count from 1)
\t - Snapshot of ranks' latest states:
\t   #6 started ranks:
\t     [0, 2] started ALLREDUCE
\t   #5 finished ranks:
\t     [1] finished ALLREDUCE
next line of the job
"""


def test_desync_report() -> None:
    (event,) = events(DESYNC, "desync")
    assert (event.line, event.group_rank) == (2, 0)
    assert event.joined_not_finished == {6: (0, 2)}
    assert event.not_joined == {6: (1,)}
    assert (event.op, event.seq, event.group_rank) == ("all_reduce", 6, 0)


def test_desync_report_with_ranks_that_never_came_and_cut_off() -> None:
    text = (
        "\n".join(DESYNC.splitlines()[:2])
        + "\n\t - To our best knowledge, ranks [2, 3] are the lagging ranks that caused this timeout. They never joined any collectives"
    )
    (event,) = events(text, "desync")
    assert event.never_joined == (2, 3)
    assert [
        (e.group_rank, e.op, e.seq, e.not_joined)
        for e in events("\n".join(DESYNC.splitlines()[:2]) + "\n", "desync")
    ] == [(0, "all_reduce", 6, {})]


def test_failed_collectives_stack() -> None:
    text = f"{HEADER}{PG}Stack trace of the failed collective: \n#0 all_reduce from /opt/venv/torch/distributed/distributed_c10d.py:2968\n#1 step from /workspace/train/train.py:41\nother\n"
    (event,) = events(text, "failed_stack")
    assert event.frames == (
        Frame("all_reduce", "/opt/venv/torch/distributed/distributed_c10d.py", 2968),
        Frame("step", "/workspace/train/train.py", 41),
    )
    assert (
        events(
            f"{HEADER}{PG}Stack trace of the failed collective not found, potentially because FlightRecorder "
            f"is disabled."
        )
        == []
    )


STACK_LINES = (
    "[rank0]:[E1016 03:31:38.1 ProcessGroupNCCL.cpp:730] [PG ID 0 PG GUID 0(default_pg) Rank 0] Stack trace of the failed collective: ",
    "#0 all_reduce from /opt/venv/dist.py:2968",
    "[rank1]:[E1016 03:31:38.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog other line",
    "#1 step from /workspace/train/train.py:42",
    "#2 <module> from /workspace/train/train.py:90",
)
DESYNC_LINES = (
    "[rank0]:[E1016 03:31:38.1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0] Rank 0",
    "\t - [0] Timeout at collective: ALLREDUCE, #6",
    "[rank1]:[E1016 03:31:38.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog other line",
    "\t   - [0, 2] joined but didn't finish collective #6 (count from 1)",
    "\t     [1] finished collective #5, but didn't join collective #6 (count from 1)",
)


def test_a_line_of_another_rank_ends_no_report() -> None:
    (stack,) = events("\n".join(STACK_LINES), "failed_stack")
    assert [frame.name for frame in stack.frames] == ["all_reduce", "step", "<module>"]
    (desync,) = events("\n".join(DESYNC_LINES), "desync")
    assert desync.joined_not_finished == {6: (0, 2)} and desync.not_joined == {6: (1,)}


def test_reports_of_two_writers_are_told_apart() -> None:
    def of(local: int) -> list[str]:
        return [
            f"[default{local}]:{line.replace('[rank0]', f'[rank{local}]').replace(' Rank 0]', f' Rank {local}]').replace('train.py:42', f'train.py:{local}')}"
            for line in STACK_LINES
            if "other line" not in line
        ]

    woven = [line for pair in zip(of(4), of(5), strict=True) for line in pair]
    found = events("\n".join(woven), "failed_stack")
    assert [(e.rank, [frame.line for frame in e.frames]) for e in found] == [
        (4, [2968, 4, 90]),
        (5, [2968, 5, 90]),
    ]
