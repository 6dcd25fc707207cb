"""Whole frozen jobs of 16 ranks that left nothing but NCCL's own lines."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.lines.scan import scan
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.join import Joined, join_processes
from hangscope.ingest.nccl.log import NcclParser
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.codec import from_row, to_row
from hangscope.model.incident import Event, State
from tests.nccl_jobs import FAULTS, RANKS, Answer, incident_lines, write_incident
from tests.nccl_writer import NcclWriter
from tests.text_lines import told
from tests.verdicts import blame, level

VERSIONS = [
    (2, 4, 8),
    (2, 12, 12),
    (2, 16, 5),
    (2, 18, 3),
    (2, 21, 5),
    (2, 23, 4),
    (2, 24, 3),
    (2, 27, 3),
    (2, 29, 2),
    (2, 30, 7),
]
WORLD = tuple(range(RANKS))


def read(folder: Path, answer: Answer) -> tuple[Joined, list[Event], list[Note]]:
    recordings: list[Recording] = []
    communicators: list[Communicator] = []
    events: list[Event] = []
    notes: list[Note] = []
    for file in answer.files:
        parser = NcclParser()
        with open(folder / file, "rb") as stream:
            found = scan(stream, file, [parser])
        # As from a child process: both cross over as builtins.
        recordings += [Recording.from_wire(r.to_wire()) for r in parser.recordings()]
        communicators += from_row(list[Communicator], to_row(parser.communicators()))
        events += found.events
        notes += found.notes + parser.notes
    joined = join_processes(recordings, communicators)
    return joined, events, notes + joined.notes


def calls(joined: Joined, members: tuple[int, ...]) -> dict[int, list[tuple[str, int]]]:
    """Return per rank the (op, count) of its calls on the first group with these members."""
    name = sorted(n for n, m in joined.members_of_group.items() if m == members)[0]
    found: dict[int, list[tuple[str, int]]] = {}
    for r in joined.recordings:
        assert r.rank is not None
        rows = [i for i in range(len(r)) if r.groups[r.columns["group"][i]][1] == name]
        assert [r.columns["seq"][i] for i in rows] == list(range(1, len(rows) + 1))
        if r.rank in members:
            found[r.rank] = [
                (r.kinds[r.columns["kind"][i]][0], r.kinds[r.columns["kind"][i]][2][0][0]) for i in rows
            ]
    return found


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_and_members_of_every_release(
    tmp_path: Path, version: tuple[int, int, int], mixed: bool
) -> None:
    answer = write_incident(tmp_path, "healthy", version=version, mixed=mixed, stamps=True)
    joined, _, notes = read(tmp_path, answer)
    assert [r.rank for r in joined.recordings] == list(range(RANKS))
    assert set(joined.rank_of_process.values()) == set(range(RANKS))
    tp = [tuple(range(8)), tuple(range(8, 16))]
    dp = [(i, i + 8) for i in range(8)]
    assert Counter(joined.members_of_group.values()) == Counter([WORLD, WORLD, *tp, *dp])
    assert all(
        r.source == "nccl_log" and set(r.columns["state"]) == {State.UNKNOWN} for r in joined.recordings
    )
    for r in joined.recordings:
        assert r.rank is not None
        assert {members for _, members in r.config.values()} == {
            WORLD,
            (r.rank % 8, r.rank % 8 + 8),
            tp[r.rank // 8],
        }
        assert len(r) == 25
    expected = {"shared_output": 1} if mixed else {}
    if version < (2, 16, 2) or version[:2] == (2, 23):
        expected["assumed_communicator"] = 1
    assert Counter(n.code for n in notes) == expected
    assert joined.host_of_ip == {"10.1.0.1": "node0", "10.1.0.2": "node1"}


@pytest.mark.parametrize("version", [(2, 12, 12), (2, 21, 5), (2, 27, 3)])
def test_an_extra_call(tmp_path: Path, version: tuple[int, int, int]) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "extra_call", version=version))
    found = calls(joined, WORLD)
    third = Counter(found[rank][2] for rank in WORLD)
    assert third == {("all_reduce", 1): 15, ("all_gather", 7): 1}
    assert found[5][2:] == [("all_gather", 7), ("all_reduce", 1)]


@pytest.mark.parametrize("version", [(2, 12, 12), (2, 21, 5), (2, 27, 3)])
def test_a_skipped_call(tmp_path: Path, version: tuple[int, int, int]) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "skipped_call", version=version))
    found = calls(joined, tuple(range(8)))
    assert {rank: mine[5][0] for rank, mine in found.items()} == {
        rank: "all_gather" if rank == 5 else "reduce_scatter" for rank in range(8)
    }
    assert {rank: len(mine) for rank, mine in found.items()} == {
        rank: 7 if rank == 5 else 6 for rank in range(8)
    }


@pytest.mark.parametrize("version", [(2, 4, 8), (2, 21, 5), (2, 30, 7)])
def test_a_stopped_rank(tmp_path: Path, version: tuple[int, int, int]) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "stopped_rank", version=version, mixed=True))
    lengths = {r.rank: len(r) for r in joined.recordings}
    assert lengths == {rank: 13 if rank == 5 else 15 for rank in WORLD}


def test_a_count_mismatch(tmp_path: Path) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "count_mismatch", version=(2, 24, 3)))
    found = calls(joined, (5, 13))
    assert (found[5][2], found[13][2]) == (("all_reduce", 65537), ("all_reduce", 65536))


def test_two_communicators_in_opposite_orders(tmp_path: Path) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "opposite_orders", version=(2, 21, 5), mixed=True))
    last = {}
    for r in joined.recordings:
        assert list(r.columns["order"]) == sorted(r.columns["order"])
        last[r.rank] = (r.groups[r.columns["group"][-1]][1], r.columns["seq"][-1])
    assert last == {rank: ("comm 0x51a0", 3) if rank == 5 else ("comm 0x54a0", 3) for rank in WORLD}


@pytest.mark.parametrize("version", [(2, 24, 3), (2, 29, 2), (2, 30, 7)])
def test_an_init_that_never_completes(tmp_path: Path, version: tuple[int, int, int]) -> None:
    joined, events, notes = read(tmp_path, write_incident(tmp_path, "init_never_completes", version=version))
    [stuck] = joined.unmade
    assert (stuck.absent, stuck.blocked) == ((5,), (0, 1, 2, 3, 4, 6, 7))
    assert joined.members_of_group[stuck.name or ""] == tuple(range(8))
    assert "assumed_member" in {n.code for n in notes}
    phases = Counter(e.step for e in events if e.kind == "nccl_init")
    assert phases == {"": 16, "Init START": 31, "Init COMPLETE": 24}


def test_up_to_2_22_all_who_wait_in_bootstrap_look_absent(tmp_path: Path) -> None:
    joined, _, _ = read(tmp_path, write_incident(tmp_path, "init_never_completes", version=(2, 21, 5)))
    assert [event.phase for event in joined.unmade] == ["fewer"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_infiniband_error(tmp_path: Path, version: tuple[int, int, int]) -> None:
    joined, events, _ = read(tmp_path, write_incident(tmp_path, "ib_error", version=version))
    warns = {}
    for event in events:
        if event.kind == "nccl_warn":
            rank = joined.rank_of_process[(event.file, event.host or "", event.pid)]
            warns[rank] = (event.fault, event.tier)
    assert warns[3] == ("port_error", 1)
    assert warns[11] == ("ib_error", 2)
    assert {warns[10], warns[12]} == {("closed_by_peer", 3)}
    ends = [e.step for e in events if e.kind == "nccl_init" and e.step.startswith("Abort")]
    assert ends == ["Abort COMPLETE"]
    peers = {joined.host_of_ip.get(e.peer_host) for e in events if e.kind == "nccl_warn" and e.peer_host}
    assert peers == ({"node0", "node1"} if version >= (2, 10, 0) else set())


@pytest.mark.parametrize("fault", FAULTS)
def test_one_file_says_what_sixteen_say(tmp_path: Path, fault: str) -> None:
    apart, _, _ = read(tmp_path / "a", write_incident(tmp_path / "a", fault, version=(2, 24, 3)))
    mixed, _, _ = read(tmp_path / "b", write_incident(tmp_path / "b", fault, version=(2, 24, 3), mixed=True))
    rows = [
        {
            r.rank: ([g[1] for g in r.groups], list(r.columns["seq"]), r.kinds, r.config)
            for r in joined.recordings
        }
        for joined in (apart, mixed)
    ]
    assert rows[0] == rows[1]
    assert apart.members_of_group == mixed.members_of_group


def test_two_attempts_in_one_file_give_the_last(tmp_path: Path) -> None:
    first, *_ = incident_lines("healthy", NcclWriter((2, 21, 5)))
    second, *_ = incident_lines("stopped_rank", NcclWriter((2, 21, 5)))
    text = [line for rank in first for line in rank]
    for rank in second:
        text += [line.replace("0x51a", "0x91a").replace(":40", ":50").replace(":41", ":51") for line in rank]
    (tmp_path / "all.log").write_text("\n".join(text) + "\n")
    joined, _, notes = read(tmp_path, Answer("", (), "", None, ("all.log",)))
    assert "earlier_attempt" in {n.code for n in notes}
    assert {r.rank: len(r) for r in joined.recordings} == {rank: 13 if rank == 5 else 15 for rank in WORLD}


def _without_world(tmp_path: Path) -> tuple[list[Recording], list[Communicator]]:
    answer = write_incident(tmp_path, "healthy", version=(2, 21, 5))
    recordings: list[Recording] = []
    communicators: list[Communicator] = []
    for file in answer.files:
        parser = NcclParser()
        text = [
            line
            for line in (tmp_path / file).read_text().split("\n")
            if "0x51a0" not in line and "0x54a0" not in line
        ]
        text = [line for line in text if not any(f"comm 0x7f0{comm}" in line for comm in ("51a", "54a"))]
        (tmp_path / file).write_text("\n".join(text))
        with open(tmp_path / file, "rb") as stream:
            scan(stream, file, [parser])
        recordings += parser.recordings()
        communicators += parser.communicators()
    return recordings, communicators


def test_without_a_communicator_of_all_ranks_nothing_is_guessed(tmp_path: Path) -> None:
    recordings, communicators = _without_world(tmp_path)
    joined = join_processes(recordings, communicators)
    assert {r.rank for r in joined.recordings} == {None}
    assert [n.code for n in joined.notes] == ["rank_unknown"]
    hints = {r: i for i, r in enumerate(sorted({c.file for c in communicators}))}
    told = join_processes(recordings, communicators, rank_hints=hints)
    assert sorted(r.rank for r in told.recordings if r.rank is not None) == list(WORLD)
    assert told.notes == []
    assert sorted((m for m in told.members_of_group.values() if len(m) == 8), key=repr) == [
        tuple(range(8)),
        tuple(range(8, 16)),
    ]


def test_ranks_in_a_prefix_are_believed_where_no_communicator_tells(tmp_path: Path) -> None:
    recordings, communicators = _without_world(tmp_path)
    for recording in recordings:
        assert recording.pid is not None
        recording.rank = (recording.pid - 4000) // 13
    joined = join_processes(recordings, communicators)
    assert [r.rank for r in joined.recordings] == list(WORLD)


def test_duplicates_are_noted() -> None:
    line = "{}:{}:1 [0] NCCL INFO comm 0x{} rank {} nranks 4 cudaDev 0 busId {} commId 0x9 - Init COMPLETE\n"
    rows = [
        ("n0", 10, 1, 0, "1b000"),
        ("n0", 11, 2, 1, "1b000"),
        ("n0", 12, 3, 2, "1c000"),
        ("n1", 13, 4, 2, "1d000"),
    ]
    parser = NcclParser()
    for number, row in enumerate(rows, start=1):
        list(parser.feed(strip_prefix(line.format(*row).strip(), number, "x.log")))
    list(parser.close())
    joined = join_processes(parser.recordings(), parser.communicators())
    codes = Counter(n.code for n in joined.notes)
    assert codes["duplicate_gpu"] == 1 and codes["duplicate_rank"] == 1


def test_networks_that_differ_are_noted(tmp_path: Path) -> None:
    answer = write_incident(tmp_path, "healthy", version=(2, 21, 5))
    path = tmp_path / answer.files[7]
    path.write_text(path.read_text().replace("Using network IB", "Using network Socket"))
    _, _, notes = read(tmp_path, answer)
    assert [n.code for n in notes] == ["network_differs"]


def test_any_bytes_are_survived(tmp_path: Path) -> None:
    lines, *_ = incident_lines("ib_error", NcclWriter((2, 24, 3)))
    data = bytearray("\n".join(line for rank in lines for line in rank).encode())
    chance = random.Random(7)
    for _ in range(12):
        broken = bytearray(data)
        for _ in range(200):
            at = chance.randrange(len(broken))
            if chance.random() < 0.3:
                del broken[at : at + chance.randrange(80)]
            else:
                broken[at] = chance.randrange(256)
        (tmp_path / "x.log").write_bytes(broken)
        _, _, notes = read(tmp_path, Answer("", (), "", None, ("x.log",)))
        assert "parser_failed" not in {n.code for n in notes}


def test_nothing_gives_nothing() -> None:
    joined = join_processes([], [])
    assert (joined.recordings, joined.notes, joined.members_of_group) == ([], [], {})


def _call(device: int, count: int, name: str = "", pid: int = 700) -> str:
    return (
        f"{name}node1:{pid + device}:{pid + device} [{device}] NCCL INFO Broadcast: opCount 0 sendbuff 0x7f0{device} recvbuff 0x7f0{device} "
        f"count {count} datatype 4 op 0 root 0 comm 0x7fa{device} [nranks=4] stream 0x55c{device}"
    )


@pytest.mark.parametrize("name", ["", "LOG.{0}.txt:"])
def test_the_processes_of_one_host_are_numbered_by_their_devices_where_nothing_else_tells(
    tmp_path: Path, name: str
) -> None:
    """A grep over the files holds the calls alone, so that no line tells a rank."""
    lines = [_call(device, 53 if device else 9000, name.format(device)) for device in (2, 0, 3, 1)]
    report = told(tmp_path, lines)
    assert blame(report) == ("hang", "shape_mismatch", (0,)) and level(report) == "low"
    assert any(note.code == "assumed_rank" for note in report.warnings)
    for number, other in enumerate(
        ([_call(1, 53), *lines[1:]], lines[:3], [_call(0, 53, pid=800), *lines[:3]])
    ):
        assert blame(told(tmp_path / str(number), other))[2] == ()
