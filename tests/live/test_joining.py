"""Which folder each run gets: its own, the one that another node of the same job has just made, or the next attempt's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hangscope.live.folder import RunFolder
from hangscope.live.watch import nodes
from hangscope.live.watch.nodes import Nodes


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that makes this process appear to be on another host."""
    return lambda name: monkeypatch.setattr(nodes, "_host", lambda: name)


def test_a_second_node_of_a_running_job_joins_its_folder(tmp_path: Path, on_host) -> None:  # type: ignore[no-untyped-def]
    on_host("node0")
    first = RunFolder(tmp_path / "run").make()
    Nodes(first.path)
    on_host("node1")
    assert RunFolder(tmp_path / "run").make() == first


@pytest.mark.parametrize("begun", [False, True])
def test_nodes_that_start_in_the_same_moment_share_one_folder(tmp_path: Path, on_host, begun: bool) -> None:  # type: ignore[no-untyped-def]
    on_host("node0")
    first = RunFolder(tmp_path / "run").make()  # it has not shown itself yet, or not yet said whose it is
    here = first.path / "nodes" / "node0.1.here"
    if begun:
        here.touch()
    later = threading.Timer(0.3, here.write_text, [nodes._job()])
    later.start()
    on_host("node1")
    assert RunFolder(tmp_path / "run").make() == first
    later.join()


def test_both_nodes_of_a_requeued_job_share_the_next_attempt(tmp_path: Path, on_host) -> None:  # type: ignore[no-untyped-def]
    before = RunFolder(tmp_path / "run").make()
    for host in ("node0", "node1"):
        on_host(host)
        Nodes(before.path).show("done")
    (before.path / "report.json").write_text("{}")
    on_host("node0")
    second = RunFolder(tmp_path / "run").make()
    Nodes(second.path)
    on_host("node1")
    assert RunFolder(tmp_path / "run").make() == second != before


def test_a_second_run_on_the_same_host_gets_a_folder_of_its_own(tmp_path: Path, on_host) -> None:  # type: ignore[no-untyped-def]
    on_host("node0")
    first = RunFolder(tmp_path / "run").make()
    Nodes(first.path)
    assert RunFolder(tmp_path / "run").make().path == first.path / "attempt-2"


def test_an_abandoned_folder_costs_no_time(tmp_path: Path, on_host, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    on_host("node0")
    first = RunFolder(tmp_path / "run").make()
    mark = Nodes(first.path)
    old = time.time() - 3600
    os.utime(first.path / "nodes" / f"{mark.name}.here", (old, old))
    on_host("node1")
    began = time.monotonic()
    assert RunFolder(tmp_path / "run").make() != first
    assert time.monotonic() - began < 1
