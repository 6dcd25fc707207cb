from __future__ import annotations

import time

from hangscope.ingest.lines import call_lines
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs.detail import DetailParser
from hangscope.ingest.workers.reading import LogReading
from hangscope.model.incident import State
from tests.text_lines import settled

OPTIONS = "TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false (default), memory_format=(nullopt))"


def line(
    rank: int,
    number: int,
    op: str = "ALLREDUCE",
    shape: str | None = "58",
    group_rank: int | None = None,
    prefix: str | None = None,
) -> str:
    head = prefix if prefix is not None else f"[rank{rank}]:"
    local = rank if group_rank is None else group_rank
    if shape is None:
        what = f"CollectiveFingerPrint(SequenceNumber={number}OpType={op})"
    else:
        what = f"CollectiveFingerPrint(SequenceNumber={number}, OpType={op}, TensorShape=[{shape}], TensorDtypes=Float, TensorDeviceTypes={OPTIONS})"
    return f"{head}[I1120 15:13:24.220687360 ProcessGroupWrapper.cpp:710] [Rank {local}] Running collective: {what}\n"


def read(text: str, file: str = "job.log") -> LogReading:
    return settled(text, file)


def rows(recording: Recording) -> list[tuple[str, int, str, int]]:
    c = recording.columns
    return [
        (recording.groups[g][1], s, recording.kinds[k][0], st)
        for g, s, k, st in zip(c["group"], c["seq"], c["kind"], c["state"], strict=True)
    ]


def test_calls_become_rows_in_file_order() -> None:
    reading = read(line(0, 0) + line(1, 0) + line(0, 1, "BARRIER", None) + line(1, 1, "BROADCAST", "4, 2"))
    assert [r.rank for r in reading.recordings] == [0, 1]
    assert rows(reading.recordings[0]) == [
        ("", 1, "all_reduce", State.DONE),
        ("", 2, "barrier", State.PENDING),
    ]
    assert rows(reading.recordings[1])[1] == ("", 2, "broadcast", State.PENDING)
    op, backend, sizes, _, dtypes, *_ = reading.recordings[1].kinds[1]
    assert (op, backend, sizes, dtypes) == ("broadcast", "cpu", ((4, 2),), ("Float",))
    assert (reading.events, reading.notes, reading.recordings[0].source) == ([], [], "detail_log")


def test_the_group_is_assumed_and_named_so() -> None:
    (recording,) = read(line(0, 0) + line(0, 1)).recordings
    assert recording.groups == [("0", "", "assumed")]


def test_a_second_group_is_separated_by_its_numbers() -> None:
    text = (
        line(2, 0)
        + line(2, 1)
        + line(2, 0, "ALLGATHER", "4", group_rank=1)
        + line(2, 2)
        + line(2, 1, group_rank=1)
        + line(2, 3)
    )
    reading = read(text)
    assert [(name, seq) for name, seq, _, _ in rows(reading.recordings[0])] == [
        ("", 1),
        ("", 2),
        ("assumed 1", 1),
        ("", 3),
        ("assumed 1", 2),
        ("", 4),
    ]
    assert [(note.code, note.line) for note in reading.notes] == [("group_assumed", 1)]


def test_a_count_that_began_at_random_starts_at_one() -> None:
    (recording,) = read(line(0, 683057617) + line(0, 683057618)).recordings
    assert [seq for _, seq, _, _ in rows(recording)] == [1, 2]
    assert recording.config == {}


def test_cut_lines_and_lines_of_others_are_no_calls() -> None:
    assert read(line(0, 3)[:120]).recordings == []
    assert (
        read("Running collective: CollectiveFingerPrint(OpType=BARRIER)\n").recordings == []
    )  # before 2.0: no number
    assert read("Running collective: something\n").recordings == []


def test_the_rank_comes_from_the_path_where_lines_have_none() -> None:
    (recording,) = read(line(0, 0, prefix=""), "logs/rank_3.log").recordings
    assert recording.rank == 3
    (local,) = read(line(0, 0, prefix=""), "log_dir/none_x/attempt_1/2/stderr.log").recordings
    assert (local.rank, local.attempt) == (None, 1)


def test_each_attempt_has_its_own_recording() -> None:
    failed = "E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 5) of binary: x\n"
    death = "[rank0]: ValueError: x\n"
    reading = read(line(0, 0) + line(0, 1) + failed + line(0, 0) + death)
    assert [(r.rank, r.attempt, len(r)) for r in reading.recordings] == [(0, 0, 2), (0, 1, 1)]


def test_old_calls_are_dropped_with_a_note(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(call_lines, "CALL_BUDGET", 4000)
    reading = read("".join(line(0, n) for n in range(6000)))
    (recording,) = reading.recordings
    assert rows(recording)[-1][1] == 6000 and len(recording) <= 4001
    assert [note.code for note in reading.notes] == ["calls_dropped"]


def test_numbers_that_leap_without_end_take_linear_time() -> None:
    text = "[Rank 1] Running collective: CollectiveFingerPrint(SequenceNumber={}, OpType=ALLREDUCE, TensorShape=[58], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))"
    parser = DetailParser("a.log")
    begin = time.process_time()
    for number in range(12_000):
        parser.feed(strip_prefix(text.format(number * 70), number + 1, "a.log"))
    assert time.process_time() - begin < 5
    [recording] = parser.recordings()
    assert len(recording) == 12_000


def test_lines_without_a_writer_that_agree_are_of_as_many_processes_as_they_print_ranks() -> None:
    steps = [
        line(rank, n, prefix="", op="BARRIER" if rank == n == 2 else "ALLREDUCE")
        for n in range(3)
        for rank in (2, 0, 1)
    ]
    reading = read("".join(steps))
    assert [(r.rank, len(r), r.groups[0][1]) for r in reading.recordings] == [
        (2, 3, ""),
        (0, 3, ""),
        (1, 3, ""),
    ]
    assert not reading.notes
    assert rows(reading.recordings[0])[-1] == ("", 3, "barrier", State.PENDING)


def test_one_process_counts_its_groups_apart() -> None:
    world = [line(0, n, prefix="", group_rank=5, shape="1024") for n in range(4)]
    pair = [line(0, n, prefix="", group_rank=1, op="BROADCAST") for n in range(9)]
    (recording,) = read("".join(world + pair)).recordings
    assert (recording.rank, len(recording)) == (None, 13)
    # nor does a log of one rank's own hold others' calls
    own = [line(rank, 0, prefix="") for rank in range(2)]
    assert [r.rank for r in read("".join(own), "logs/rank_3.log").recordings] == [3]
