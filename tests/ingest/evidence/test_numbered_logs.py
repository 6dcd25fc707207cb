from __future__ import annotations

import io

import pytest

from hangscope.errors import Note
from hangscope.ingest.assemble import assemble
from hangscope.ingest.evidence.numbered_logs import with_those_of_a_row, without_job_numbers
from hangscope.ingest.files.naming import rank_of_dump, ranks_of_a_row, rows
from hangscope.ingest.workers.log_reading import read_log
from hangscope.ingest.workers.reading import Reading

FAILURE = "ValueError: bad sample\n"
OF_TWO = "[rank0]:[E1120 15:13:24.220687360 x.cpp:1] Timed out after 1801 seconds waiting for clients. 1/4 clients joined.\n"


def reading(file: str, text: str = FAILURE) -> Reading:
    return Reading(file, "log", "used", "", log=read_log(io.BytesIO(text.encode()), file))


def ranks(*readings: Reading) -> list[int | None]:
    return [r.log.rank if r.log else None for r in without_job_numbers(readings)[0]]


@pytest.mark.parametrize(
    "name", ["log-1234567.out", "out.98765", "err.12345", "logs/log_45678.out", "job_out_4321.txt"]
)
def test_a_job_number_is_no_rank(name: str) -> None:
    assert ranks(reading(name)) == [None]
    incident = assemble([reading(name, "[rank1]: " + FAILURE + FAILURE)])
    assert incident.world_size == 2
    assert {e.rank for e in incident.events} <= {1, None}


def test_ranks_of_real_jobs_stay() -> None:
    assert ranks(reading("stderr-12.txt"), reading("rank999.err"), reading("worker-3.log")) == [12, 999, 3]
    many = [reading(f"worker-{n}.log") for n in range(0, 1200, 3)]
    assert ranks(*many) == list(range(0, 1200, 3))


def test_the_size_that_the_content_tells_is_the_limit() -> None:
    assert ranks(reading("err.200"), reading("agent.log", OF_TWO)) == [None, None]
    assert ranks(reading("err.3"), reading("agent.log", OF_TWO)) == [3, None]


def test_stacks_named_by_a_job_number_are_of_no_rank() -> None:
    from hangscope.incident import Frame
    from hangscope.ingest.workers.reading import Thread

    stacks = Reading(
        "out.98765", "stacks", "used", "", threads=[Thread("MainThread", (Frame("f", "a.py", 1),), True)]
    )
    incident = assemble([stacks, reading("rank1.log")])
    assert incident.world_size == 2 and [n.code for n in incident.notes] == ["rank_unknown"]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("dump_20241102", None),
        ("trace_1731234567", None),
        ("dump_3", 3),
        ("nccl_trace_rank_3", 3),
        ("x/rank_17.pkl.gz", 17),
        ("job/node-18/4.pipe_dump", 4),
        ("7b_trace.pkl", None),
    ],
)
def test_a_date_in_the_name_of_a_dump(name: str, rank: int | None) -> None:
    assert rank_of_dump(name) == rank


def test_a_bare_number_outside_the_world_is_no_rank() -> None:
    from hangscope.ingest.evidence.snapshots import claim_rank
    from hangscope.ingest.recorder.flight_recorder import reduce_dump

    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    recording = reduce_dump({"version": "2.10", "pg_config": config, "entries": []})
    notes: list[Note] = []
    assert claim_rank("dump_241102", recording, notes) is None and [n.code for n in notes] == ["rank_unknown"]
    claim = claim_rank("dump_1", recording, [])
    assert claim is not None and claim.rank == 1


def waited(rank: int | None) -> str:
    who = "" if rank is None else f"[rank{rank}]: "
    return f"step 4 loss 2.5\n{who}RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete\n"


def of_a_row(*logs: tuple[str, str]) -> list[int | None]:
    found = with_those_of_a_row([reading(name, text) for name, text in logs])
    return [r.log.rank if r.log else None for r in found]


QUIET = "step 4 loss 2.5\nstep 5 loss 2.4\n"


def test_a_log_that_names_no_rank_stands_in_the_row_of_those_that_do() -> None:
    row = [(f"trainer-{n}.txt", QUIET if n == 2 else waited(n)) for n in range(4)]
    assert of_a_row(*row) == [0, 1, 2, 3]  # also for their lines that name no rank


def test_a_row_goes_on_behind_the_ranks_that_its_logs_name() -> None:
    row = [(f"pod-{n}.log", QUIET if n == 3 else waited(n)) for n in range(4)]
    assert of_a_row(*row)[3] == 3
    assert of_a_row(*row[:3], ("pod-4.log", QUIET))[3] is None  # a gap
    assert of_a_row(*row[1:])[2] is None  # not from 0
    few = [(f"pod-{n}.log", QUIET if n > 1 else waited(n)) for n in range(4)]
    assert of_a_row(*few) == [None] * 4
    sized = [(f"pod-{n}.log", OF_TWO.replace("1/4", "2/3") + waited(n)) for n in range(3)]
    assert of_a_row(*sized, ("pod-3.log", QUIET))[3] is None  # the job has three ranks


def test_a_row_from_zero_of_which_most_waited_is_the_job_where_nothing_else_tells_of_ranks() -> None:
    row = [(f"gpu{n:02}.txt", QUIET if n == 1 else waited(None)) for n in range(4)]
    assert of_a_row(*row) == [0, 1, 2, 3]
    assert of_a_row(*row[1:]) == [None] * 3
    rotated = [(f"run{n}.txt", waited(None) if n == 3 else QUIET) for n in range(4)]
    assert of_a_row(*rotated) == [None] * 4


def test_dumps_whose_names_tell_no_rank_are_those_of_a_row() -> None:
    assert ranks_of_a_row([f"out/tp{n}_trace" for n in (0, 2, 3)]) == {
        f"out/tp{n}_trace": n for n in (0, 2, 3)
    }
    for others in (["2026_dump", "2027_dump"], ["v0_dump"], ["a0_x", "b1_x"], ["rank0_x", "rank1_x"]):
        assert ranks_of_a_row(others) == {}


def test_a_path_full_of_numbers_makes_few_rows() -> None:
    assert len(rows(["7a" * 2000 + "0_x"])) == 8
