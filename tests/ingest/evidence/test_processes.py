from __future__ import annotations

import io

from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.workers.log_reading import read_log
from hangscope.ingest.workers.reading import Reading

CLOSED = "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:1."


def reading(file: str, *lines: str) -> Reading:
    return Reading(file, "log", "used", "", log=read_log(io.BytesIO("\n".join(lines).encode()), file))


def test_each_node_has_its_own_local_ranks() -> None:
    mapping = Processes(
        [
            reading("nodeA/agent.log", f"[default0]:[rank0]: {CLOSED}"),
            reading("nodeB/agent.log", f"[default0]:[rank8]: {CLOSED}", f"[default1]:[rank9]: {CLOSED}"),
        ]
    )
    assert mapping.local(None, 0, "nodeA/none_a/attempt_0/0/stderr.log") == 0
    assert mapping.local(None, 0, "nodeB/none_b/attempt_0/0/stderr.log") == 8
    assert mapping.local(None, 0, "slurm.out") is None
    assert mapping.local(None, 1, "slurm.out") is None  # of which node, nothing tells
    assert mapping.local(None, 1, "nodeA/none_a/attempt_0/1/stderr.log") is None


def test_local_ranks_are_global_ones_where_nothing_contradicts() -> None:
    one = Processes([reading("agent.log", f"[default0]:[rank0]: {CLOSED}")])
    assert (one.local(None, 0, "x/agent.log"), one.local(None, 3, "a.log")) == (0, 3)
    several = Processes([reading("a.log", f"[default0]:{CLOSED}", f"[default2]:{CLOSED}")])
    assert several.local(None, 2, "a.log") == 2


def test_one_local_rank_in_one_file_may_be_of_any_node() -> None:
    assert Processes([reading("a.log", f"[default5]:{CLOSED}")]).local(None, 5, "a.log") is None


def test_the_folder_of_one_agent_numbers_its_ranks_in_a_row() -> None:
    """A node's folders beside two tables: what a log of one worker says of its rank counts for those beside it."""
    told = ((node, local) for node in (0, 1) for local in (0, 1, 2, 5))
    logs = [
        reading(f"logs/n{node}/none_x/attempt_0/{local}/stderr.log", f"[rank{8 * node + local}]: {CLOSED}")
        for node, local in told
    ]
    mapping = Processes(logs)
    assert mapping.local(None, 3, "logs/n1/none_x/attempt_0/3/stdout.log") == 11
    assert mapping.local(None, 3, "logs/n0/none_x/attempt_0/3/stdout.log") == 3
    assert mapping.local(None, 3, "logs/n2/none_x/attempt_0/3/stdout.log") is None
    assert mapping.local(None, 0, "logs/n2.err") is None
