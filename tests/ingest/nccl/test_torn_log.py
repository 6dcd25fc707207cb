"""NCCL logs that are torn, cut, collapsed, late or of several processes: what may still be counted."""

from __future__ import annotations

import pytest

from hangscope.ingest.lines import call_lines
from tests.ingest.nccl.test_log import PROC, read, world
from tests.nccl_writer import Comm, NcclWriter, Proc

OTHER = Proc("node1", 4100, 1)


def mixed_job(w: NcclWriter) -> tuple[Comm, list[str]]:
    comm = world()
    return comm, [w.complete(comm, 0, PROC), w.complete(comm, 1, OTHER)]


def test_a_torn_line_stops_the_count_of_both() -> None:
    w = NcclWriter((2, 27, 3))
    comm, lines = mixed_job(w)
    comm.ranks = (0, 1)
    one, two = w.coll(comm, 0, PROC, "AllReduce", 1), w.coll(comm, 1, OTHER, "AllReduce", 1)
    lines += [one, two, one[:60] + two, one, two]
    parser, _ = read(lines)
    assert [len(r) for r in parser.recordings()] == [1, 1]
    assert [c.intact for c in parser.communicators()] == [False, False]
    assert [n.code for n in parser.notes] == ["torn_line", "shared_output"]


def test_op_counts_that_run_on_prove_that_a_communicator_lost_nothing() -> None:
    w = NcclWriter((2, 21, 5))
    a, b = world(), Comm("b", (0, 1), 0xDEF)
    lines = [w.complete(a, 0, PROC), w.complete(b, 0, PROC)]
    for _ in range(3):
        lines += [w.coll(a, 0, PROC, "AllReduce", 1), w.coll(b, 0, PROC, "AllReduce", 1)]
    lines += [w.coll(a, 0, PROC, "AllReduce", 1)[:80]]
    lines += [w.coll(a, 0, PROC, "AllReduce", 1), w.coll(b, 0, PROC, "AllReduce", 1)]
    parser, _ = read(lines)
    known = {c.name: (c.calls, c.intact) for c in parser.communicators()}
    assert known == {"comm 0xabc": (3, False), "comm 0xdef": (4, True)}


def test_a_cut_last_line_leaves_the_end_open() -> None:
    w = NcclWriter((2, 27, 3))
    comm, lines = mixed_job(w)
    lines += [w.coll(comm, 0, PROC, "AllReduce", 1), w.coll(comm, 0, PROC, "AllReduce", 1)[:70]]
    parser, _ = read(lines)
    assert [(c.calls, c.intact) for c in parser.communicators()] == [(1, False), (0, True)]


def test_a_cut_head_is_no_other_process() -> None:
    w = NcclWriter((2, 27, 3))
    comm, lines = mixed_job(w)
    one, two = w.coll(comm, 0, PROC, "AllReduce", 1), w.coll(comm, 1, OTHER, "AllReduce", 1)
    lines += [one, two, "node0:40" + two, "00:4007 [0] NCCL INFO" + one.split("NCCL INFO")[1], one]
    parser, _ = read(lines)
    assert {(c.host, c.calls, c.intact) for c in parser.communicators()} == {
        ("node0", 1, False),
        ("node1", 1, False),
    }


def test_ray_collapses_lines() -> None:
    w = NcclWriter((2, 27, 3))
    comm, lines = mixed_job(w)
    lines += [w.coll(comm, 0, PROC, "AllReduce", 1) + " [repeated 6x across cluster]"]
    parser, _ = read([f"(Worker pid=4000, ip=10.0.0.1) {line}" for line in lines])
    assert [c.intact for c in parser.communicators()] == [False, True]


def test_a_log_that_starts_late() -> None:
    w = NcclWriter((2, 21, 5))
    parser, _ = read([w.coll(world(), 0, PROC, "AllReduce", 1)])
    [comm] = parser.communicators()
    assert (comm.step, comm.comm_rank, comm.nranks, comm.assumed) == ("", None, 2, True)
    assert [n.code for n in parser.notes] == ["late_start"]


def test_anonymised_lines_are_told_apart_by_device() -> None:
    w = NcclWriter((2, 21, 5))
    comm = world()
    lines = [w.complete(comm, 0, PROC), w.complete(comm, 1, OTHER)]
    lines += [w.coll(comm, 0, PROC, "AllReduce", 1), w.coll(comm, 1, OTHER, "AllReduce", 1)]
    parser, _ = read(
        [
            line.replace(f"{p.host}:{p.pid}:{p.pid + 7}", "host:XXXX")
            for line in lines
            for p in (PROC, OTHER)
            if p.host in line
        ]
    )
    assert [len(r) for r in parser.recordings()] == [1, 1]
    assert [c.name for c in parser.communicators()] == ["comm 0xabc"] * 2
    assert {n.code for n in parser.notes} == {"anonymised", "shared_output"}


def test_containers_with_one_host_and_pid_are_told_apart_by_prefix() -> None:
    w = NcclWriter((2, 21, 5))
    comm = world()
    same = Proc("box", 2, 0)
    lines = [f"[1,{r}]<stdout>:{w.complete(comm, r, same)}" for r in (0, 1)]
    lines += [f"[1,{r}]<stdout>:{w.coll(comm, r, same, 'AllReduce', 1)}" for r in (0, 1)]
    parser, _ = read(lines)
    assert [(c.comm_rank, c.calls) for c in parser.communicators()] == [(0, 1), (1, 1)]
    assert [recording.task for recording in parser.recordings()] == [0, 1]


def test_one_process_with_several_gpus_gives_a_recording_per_gpu() -> None:
    w = NcclWriter((2, 21, 5))
    comm = Comm("all", (0, 1, 2, 3), 0x10)
    lines = [w.complete(comm, r, Proc("node0", 9, r)) for r in range(4)]
    lines += [w.coll(comm, r, Proc("node0", 9, r), "AllReduce", 1 + r) for r in range(4)]
    parser, _ = read(lines)
    recordings = parser.recordings()
    assert [[row[2] for row in r.kinds] for r in recordings] == [[((1 + r,),)] for r in range(4)]


def test_memory_is_bounded_by_dropping_the_oldest_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_lines, "CALL_BUDGET", 40)
    monkeypatch.setattr(call_lines, "LEAST_KEPT", 10)
    w = NcclWriter((2, 21, 5))
    comm = world()
    parser, _ = read(
        [w.complete(comm, 0, PROC)] + [w.coll(comm, 0, PROC, "AllReduce", i) for i in range(100)]
    )
    [recording] = parser.recordings()
    seqs = list(recording.columns["seq"])
    assert 20 <= len(seqs) <= 40 and seqs == list(range(101 - len(seqs), 101))
    assert recording.kinds[recording.columns["kind"][-1]][2] == ((99,),)
    assert len(recording.kinds) == len(seqs)
    assert [n.code for n in recording.notes] == ["history_trimmed"]
