"""What else a pasted text says about the answer: settings that differ, and what commands show of a port or a process."""

from __future__ import annotations

from pathlib import Path

from hangscope.ingest.excerpts.commands import Unlike, unlike_settings
from tests.text_lines import judged, told

BIND = "0: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 57216, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
ROWS = ["min_nodes : 2", "max_nodes : 2", "nproc_per_node : 4", "rdzv_backend : c10d", "max_restarts : 0"]
TIMEOUT = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"


def launched(task: int, run_id: int) -> list[str]:
    rows = [*ROWS, f"run_id : {run_id}", f"node_rank : {task}"]
    return [f"{task}: I0114 10:20:31.518000 88412 launcher/api.py:194]   {row}" for row in rows]


def test_a_setting_that_differs_where_all_others_agree_is_the_answer(tmp_path: Path) -> None:
    verdict = judged(
        told(tmp_path, [*launched(0, 21903), *launched(1, 7466), f"1: {TIMEOUT}", f"0: {TIMEOUT}"])
    )
    assert "Task 0 was started with run_id 21903, task 1 with 7466" in verdict.explanation
    assert verdict.advice[0] == "Start every part of the job with the same run_id."


def test_settings_of_a_title_are_those_of_its_part() -> None:
    args = "ServerArgs(tp_size=16, nnodes=2, node_rank={r}, dtype='bfloat16', cuda_graph_max_bs={b}, mem_free=0.{b})"
    lines = ["node-a:", args.format(r=0, b=160), "", "node-b:", args.format(r=1, b=512)]
    assert unlike_settings(lines) == (Unlike("cuda_graph_max_bs", ("node-a", "160"), ("node-b", "512")),)


def test_one_setting_alone_or_many_that_differ_compare_two_programs() -> None:
    assert unlike_settings(["0: run_id: 1", "1: run_id: 2"]) == ()
    many = [f"{task}: {name}: {task + 1}" for task in (0, 1) for name in ("run_id", "min_nodes", "max_nodes")]
    assert unlike_settings([*launched(0, 1), *launched(1, 1), *many]) == ()


def test_a_command_that_shows_who_holds_the_port_is_quoted(tmp_path: Path) -> None:
    shown = 'ESTAB  0  0   10.30.0.17:57216   10.30.8.4:4317   users:(("otelcol",pid=3127,fd=14))'
    lines = [BIND, "", "$ ss -tnp | grep 57216", shown, "$ sacct -j 57216", "57216 FAILED 1:0"]
    said = judged(told(tmp_path, lines)).explanation
    assert "'ss -tnp | grep 57216' shows" in said and "otelcol" in said and "sacct" not in said
