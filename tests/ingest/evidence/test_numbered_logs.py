from __future__ import annotations

import io

import pytest

from hangscope.errors import Note
from hangscope.ingest.assemble import assemble
from hangscope.ingest.evidence.worlds import without_job_numbers
from hangscope.ingest.files.naming import rank_of_dump
from hangscope.ingest.workers.reading import Reading, read_log

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
    from hangscope.ingest.stacks.dumps import ProcessStacks
    from hangscope.model.incident import Frame

    process = ProcessStacks(threads=[("MainThread", (Frame("f", "a.py", 1),), True)])
    stacks = Reading("out.98765", "stacks", "used", "", stacks=[process])
    incident = assemble([stacks, reading("rank1.log")])
    assert incident.world_size == 2 and [n.code for n in incident.notes] == ["stacks_of_no_rank"]


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
