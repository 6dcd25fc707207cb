from __future__ import annotations

from collections import Counter

import pytest

from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.nccl.comm import parse_life
from hangscope.ingest.nccl.log import NcclParser
from hangscope.model.incident import Event
from tests.nccl_writer import Comm, NcclWriter, Proc
from tests.text_lines import known_fields

PROC = Proc("node0", 4000, 0)
VERSIONS = [
    (2, 4, 8), (2, 7, 8), (2, 8, 4), (2, 11, 4), (2, 15, 5), (2, 16, 5), (2, 18, 3), (2, 20, 5),
    (2, 21, 5), (2, 22, 3), (2, 23, 4), (2, 24, 3), (2, 26, 2), (2, 28, 9), (2, 29, 2), (2, 30, 7),
]  # fmt: skip


def read(lines: list[str], file: str = "a.log") -> tuple[NcclParser, list[Event]]:
    parser = NcclParser()
    events: list[Event] = []
    for number, text in enumerate("\n".join(lines).split("\n"), start=1):
        events += parser.feed(strip_prefix(text, number, file))
    events += parser.close()
    return parser, events


def world() -> Comm:
    return Comm("world", (0, 1), 0xABC)


def test_it_is_a_line_parser() -> None:
    parser: LineParser = NcclParser()
    assert not parser.wants_more
    assert all(len(literal) >= 7 for literal in parser.literals)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_gives_its_life_cycle_and_its_calls(version: tuple[int, int, int]) -> None:
    w = NcclWriter(version, stamps=True)
    comm = world()
    lines = [
        w.banner(),
        w.bootstrap(PROC, "10.1.0.1"),
        *w.start(comm, 0, PROC),
        *w.bootstrapped(PROC),
        w.complete(comm, 0, PROC),
    ]
    lines += [w.coll(comm, 0, PROC, "AllReduce", 10 + i) for i in range(4)]
    lines += [w.end(comm, 0, PROC)]
    parser, events = read(lines)
    steps = [e.step for e in events if e.kind == "nccl_init"]
    starts = ["Init START"] if version >= (2, 18, 3) else []
    assert steps == ["", *starts, "Init COMPLETE", "Destroy COMPLETE"]
    [known] = parser.communicators()
    assert (known.comm_rank, known.nranks, known.cuda_dev, known.completed, known.step) == (
        0,
        2,
        0,
        True,
        "Destroy COMPLETE",
    )
    assert known.bus_id == (None if version < (2, 5, 0) else "1b000")
    assert known.assumed == (version < (2, 16, 2))
    assert known.name == ("comm#1 of 2 ranks (assumed)" if known.assumed else "comm 0xabc")
    [recording] = parser.recordings()
    assert list(recording.columns["seq"]) == [1, 2, 3, 4]
    assert [row[2] for row in recording.kinds] == [((10 + i,),) for i in range(4)]
    assert (recording.version, recording.host, recording.pid) == (".".join(map(str, version)), "node0", 4000)
    assert parser.notes == []


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= (2, 21, 5)])
def test_splits_of_every_release(version: tuple[int, int, int]) -> None:
    w = NcclWriter(version)
    parent = world()
    first, second = Comm("a", (0, 1), 0x1, parent, 1, 70), Comm("b", (0, 1), 0x2, parent, 2, 70)
    lines = [w.banner()]
    for comm in (parent, first, second):
        lines += [*w.start(comm, 0, PROC), *w.bootstrapped(PROC), w.complete(comm, 0, PROC)]
    parser, events = read(lines)
    names = [c.name for c in parser.communicators()]
    if version < (2, 23, 4):
        assert names == ["comm 0xabc", "comm 0x1", "comm 0x2"]
    else:
        assert names == ["comm 0xabc", "comm 0xabc/split 1 color 70", "comm 0xabc/split 2 color 70"]
    assert [c.assumed for c in parser.communicators()] == [False] + [version[:2] == (2, 23)] * 2
    assert [c.split for c in parser.communicators()] == [None, 1, 2]
    assert Counter(e.step for e in events) == {"Init START": 3, "Init COMPLETE": 3}


def test_two_splits_that_share_a_comm_id_stay_apart() -> None:
    w = NcclWriter((2, 21, 5))
    parent = world()
    lines = [w.complete(parent, 0, PROC)]
    for split in (1, 2):
        comm = Comm("s", (0, 1), 0x77, parent, split, 5)
        lines += [*w.start(comm, 0, PROC), w.complete(comm, 0, PROC), w.end(comm, 0, PROC)]
    parser, _ = read(lines)
    assert [c.name for c in parser.communicators()] == ["comm 0xabc", "comm 0x77", "comm 0x77 #2"]


def test_a_split_without_color_counts_as_a_split() -> None:
    w = NcclWriter((2, 23, 4))
    parent = world()
    comm = Comm("s", (0, 1), 0x77, parent, 2, 5)
    skipped = w.info(PROC, "Rank 0 has color with NCCL_SPLIT_NOCOLOR, not creating a new communicator")
    parser, _ = read([w.complete(parent, 0, PROC), skipped, *w.start(comm, 0, PROC)])
    assert [c.name for c in parser.communicators()][1] == "comm 0xabc/split 2 color 5"


def test_a_pointer_that_is_used_again_is_another_communicator() -> None:
    w = NcclWriter((2, 12, 12))
    comm = world()
    call = [w.coll(comm, 0, PROC, "AllReduce", 8) for _ in range(3)]
    lines = [
        w.complete(comm, 0, PROC),
        *call[:2],
        w.end(comm, 0, PROC, "Abort"),
        w.complete(comm, 0, PROC),
        call[2],
    ]
    parser, events = read(lines)
    assert [c.step for c in parser.communicators()] == ["Abort COMPLETE", "Init COMPLETE"]
    assert [c.name for c in parser.communicators()] == [
        "comm#1 of 2 ranks (assumed)",
        "comm#2 of 2 ranks (assumed)",
    ]
    [recording] = parser.recordings()
    assert list(recording.columns["seq"]) == [1, 2, 1]
    assert [e.step for e in events] == ["Init COMPLETE", "Abort COMPLETE", "Init COMPLETE"]


def test_calls_are_counted_per_communicator_and_order_runs_over_all() -> None:
    w = NcclWriter((2, 27, 3))
    a, b = world(), Comm("b", (0, 1), 0xDEF)
    lines = [w.complete(a, 0, PROC), w.complete(b, 0, PROC)]
    lines += [w.coll(comm, 0, PROC, "AllGather", 4) for comm in (a, b, b, a)]
    [recording] = read(lines)[0].recordings()
    assert list(recording.columns["seq"]) == [1, 1, 2, 2]
    assert list(recording.columns["group"]) == [0, 1, 1, 0]
    assert list(recording.columns["order"]) == [0, 1, 2, 3]


def test_what_a_call_is() -> None:
    w = NcclWriter((2, 28, 9))
    comm = Comm("c", (0, 1, 2, 3), 0x9)
    lines = [w.complete(comm, 1, PROC)]
    calls = [
        ("AllReduce", 7, 0),
        ("AllGather", 9, 0),
        ("ReduceScatter", 6, 0),
        ("Broadcast", 4, 2),
        ("Send", 7, 3),
        ("Recv", 7, 0),
    ]
    calls += [("AlltoAll", 7, 0), ("Send", 7, 3), ("FutureThing", 7, 0)]
    lines += [w.coll(comm, 1, PROC, op, 5, datatype=datatype, root=root) for op, datatype, root in calls]
    [recording] = read(lines)[0].recordings()
    rows = [recording.kinds[k] for k in recording.columns["kind"]]
    assert [r[0] for r in rows] == [
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "all_to_all", "send",
        "future_thing",
    ]  # fmt: skip
    assert [r[4] for r in rows[:4]] == [("Float",), ("BFloat16",), ("Half",), ("Long",)]
    assert (rows[1][2], rows[1][3]) == (((5,),), ((20,),))
    assert (rows[2][2], rows[2][3]) == (((20,),), ((5,),))
    assert [(r[6], r[7]) for r in rows[3:6]] == [(None, None), (1, 3), (0, 1)]
    assert [r[9] for r in rows[:5]] == [None, None, None, 2, None]
    # Collectives count among themselves, sends to one peer among themselves.
    assert list(recording.columns["seq"]) == [1, 2, 3, 4, 1, 1, 5, 2, 6]


@pytest.mark.parametrize(
    ("peers", "made"),
    [
        ((0, 1, 2), ["all_to_all"]),
        ((0, 2), ["send", "recv", "send", "recv"]),
        ((0, 1, 2) * 2, ["all_to_all"] * 2),
    ],
)
def test_sends_and_receives_with_every_member_in_turn_are_one_all_to_all(
    peers: tuple[int, ...], made: list[str]
) -> None:
    w, comm = NcclWriter((2, 21, 5)), Comm("c", (0, 1, 2), 0x9)
    lines = [w.complete(comm, 1, PROC), w.coll(comm, 1, PROC, "AllReduce", 8)]
    lines += [w.coll(comm, 1, PROC, op, 5 + peer, root=peer) for peer in peers for op in ("Send", "Recv")]
    [recording] = read([*lines, w.coll(comm, 1, PROC, "AllReduce", 8)])[0].recordings()
    ops = [recording.kinds[kind][0] for kind in recording.columns["kind"]]
    assert ops == ["all_reduce", *made, "all_reduce"]
    assert list(recording.columns["seq"])[-1] == 2 + made.count("all_to_all")


def test_null_pointers_and_rccl() -> None:
    line = (
        "node0:1:1 [0] NCCL INFO {}: opCount 0 sendbuff (nil) recvbuff (nil) count 0 datatype 7 op 0 root 0 "
        "comm 0x5 [nranks=2] stream (nil)"
    )
    parser, _ = read([line.format("AllReduce"), line.format("AllReduce") + " task 0 globalrank 1"])
    assert [len(r) for r in parser.recordings()] == [2]
    parser, _ = read([line.format("AllReduce") + " task 0 globalrank 1"])
    assert [(c.comm_rank, c.completed) for c in parser.communicators()] == [(1, True)]
    w = NcclWriter((2, 18, 3), rccl=True)
    comm = world()
    parser, _ = read([w.banner(), w.complete(comm, 0, PROC), w.coll(comm, 0, PROC, "AllReduce", 3)])
    assert [c.name for c in parser.communicators()] == ["comm 0xabc"]
    assert parser.recordings()[0].version == "rccl 2.18.3"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("node0:1:1 [0] NCCL INFO AllReduce: opCount zz sendbuff 0x1 recvbuff 0x1 count", 0),  # no number
        ("node0:1:1 [0] INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 1", 0),  # 2.2's head
        ("node0:1:1 [0] NCCL INFO allreduce was called with opCount 0", 0),
    ],
)
def test_lines_that_are_no_calls(text: str, calls: int) -> None:
    parser, events = read([text])
    assert sum(len(r) for r in parser.recordings()) == calls
    assert events == []


def test_warnings_and_trace_backs_become_events() -> None:
    w = NcclWriter((2, 30, 7), stamps=True)
    lines = [
        w.closed_by_peer(PROC, "node1"),
        w.info(PROC, "init.cc:12 -> 6"),
        w.info(PROC, "init.cc:13 -> 6"),
    ]
    lines += [w.info(PROC, "RAS declaring peer node1<28028> as DEAD")]
    _, events = read(lines)
    assert [(e.kind, getattr(e, "fault", None), e.host, e.pid) for e in events] == [
        ("nccl_warn", "closed_by_peer", "node0", 4000),
        ("nccl_warn", "other", "node0", 4000),
        ("nccl_ras", None, "node0", 4000),
    ]
    assert events[0].line == 2 and events[0].time is not None
    assert events[1].tier == 3
    assert known_fields(events[2]) == {
        "what": "dead",
        "peer_host": "node1",
    }


def test_life_lines_of_later_kinds() -> None:
    grow = parse_life(
        "[Rank 3] ncclCommGrow comm 0x5 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1e000 "
        "commId 0x77 - Init START"
    )
    assert grow is not None
    assert grow.group("api", "comm_rank", "parent_pointer") == ("ncclCommGrow", "3", None)
    shrink = parse_life(
        "ncclCommShrink comm 0x5 rank 3 nranks 7 cudaDev 3 nvmlDev 3 busId 1e000 "
        "parent 0x4 splitCount 2 color 0 key 3- Init START"
    )
    assert shrink is not None and shrink.group("parent_pointer", "split") == ("0x4", "2")
    revoke = parse_life("comm 0x5 rank 3 nranks 7 cudaDev 3 busId 1e000 - Revoke COMPLETE, result 0")
    assert revoke is not None and revoke["step"] == "Revoke COMPLETE"
    abort = parse_life("comm 0x5 rank 3 nRanks 7 cudaDev 3 busId 1e000 - Abort START")
    assert abort is not None and abort["step"] == "Abort START"
    assert parse_life("comm 0x5 rank 3 nranks 7 cudaDev 3 busId") is None
