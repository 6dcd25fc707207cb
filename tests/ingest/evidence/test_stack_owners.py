from __future__ import annotations

import io

from hangscope.incident import Incident
from hangscope.ingest.assemble import assemble
from hangscope.ingest.workers.log_reading import read_log
from hangscope.ingest.workers.reading import Reading
from hangscope.ingest.workers.text_files import read_stacks

SPY = """Process 101: python train.py
Python v3.11.4 (/opt/venv/bin/python3.11)

Thread 101 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    main (train.py:10)
Process 102: python train.py
Python v3.11.4 (/opt/venv/bin/python3.11)

Thread 102 (active): "MainThread"
    load (train.py:33)
    main (train.py:10)
"""
PIDS = "".join(
    f"[rank{r}]:W1120 15:13:24.451000 {pid} torch/nn/parallel/distributed.py:12] RuntimeError: x\n"
    f"[rank{r}]:W1120 15:13:24.451000 {pid} torch/nn/parallel/distributed.py:12] CUDA error: unspecified launch failure\n"
    for r, pid in ((4, 101), (5, 102))
)


def joined(name: str, log: str = "") -> Incident:
    stacks = Reading.from_wire(name, read_stacks(io.BytesIO(SPY.encode()), name))
    job = Reading("job.log", "log", "used", "", log=read_log(io.BytesIO(log.encode()), "job.log"))
    return assemble([stacks, job], world_size=6)


def where(incident: Incident) -> dict[int, str]:
    return {r: record.threads[0][1][0].name for r, record in incident.ranks.items() if record.threads}


def test_processes_of_one_file_are_placed_by_their_ids() -> None:
    incident = joined("stacks.txt", PIDS)
    assert where(incident) == {4: "all_reduce", 5: "load"} and not incident.notes


def test_the_name_speaks_of_the_first_process() -> None:
    incident = joined("rank3.txt")
    assert where(incident) == {3: "all_reduce"}
    assert [n.message for n in incident.notes] == [
        "1 of the 2 processes in it are of no known rank, so their stacks were set aside"
    ]


def test_processes_of_no_known_rank_are_noted() -> None:
    incident = joined("stacks.txt")
    assert where(incident) == {} and [n.code for n in incident.notes] == ["rank_unknown"]
