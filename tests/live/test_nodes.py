"""One frozen torchrun job on two nodes, each under its own `hangscope run`: with a disk that both see, and without."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import analyze
from tests.live.jobs import Place, hangscope, left_in, until
from tests.live.torch_jobs import free_port, job, line_of, torchrun
from tests.needs import needs

pytestmark = [
    pytest.mark.real,
    needs("torch"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give each node a name of its own"),
]


def on_host(name: str, command: list[str]) -> list[str]:
    """Return the command line that runs a command where the host has another name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh", *command]


def run_on_two_nodes(
    here: Place,
    directories: tuple[Path, Path],
    script: str = "sleeping",
    words_of_script: tuple[str, ...] = (),
    store: str = "127.0.0.1",
) -> list[tuple[int, str]]:
    """Run a job of two nodes with a rank each until it ends, or was found frozen; return each node's exit code and stderr.

    `store` is the address that the second node is told.
    """
    port, running = free_port(), []
    options = ["--hang-timeout", "8" if words_of_script else "6", "--init-timeout", "30", "--on-hang", "kill"]
    try:
        for number, directory in enumerate(directories):
            home = here.below(f"node{number}")
            settings = job(script, home)
            words = [*torchrun(script, 1, nodes=2, node=number, port=port), *words_of_script]
            if number:
                words = [word.replace("master-addr=127.0.0.1", f"master-addr={store}") for word in words]
            running.append(
                subprocess.Popen(
                    on_host(f"node{number}", hangscope("run", "--dir", str(directory), *options, "--", *words)),
                    cwd=home, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        if directories[0] != directories[1] or store != "127.0.0.1":  # no node knows enough to end the job
            for directory in directories:
                until((directory / "report.json").exists, 120)
            for process in running:
                process.terminate()
        told = [process.communicate(timeout=180)[1] for process in running]
        assert not left_in(here / "node0") and not left_in(here / "node1")
        return [(process.returncode, text) for process, text in zip(running, told, strict=True)]
    finally:
        for process in running:
            process.kill()
            process.communicate()
        for home in (here / "node0", here / "node1"):
            for pid in left_in(home):
                os.kill(pid, 9)


def report(folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return answer


def test_nodes_that_share_a_disk_make_one_report(here: Place) -> None:
    left = here.left
    ends = run_on_two_nodes(here, (left, left))
    assert all(code != 0 for code, _ in ends)
    told = [text for _, text in ends]
    assert sum("hangscope: Wrote " in text for text in told) == 1
    assert sum("writes the report, in" in text for text in told) == 1
    both = {"stack_rank_0.txt", "stack_rank_1.txt", "comm_lib_trace_rank_0", "comm_lib_trace_rank_1"}
    assert any(both <= set(os.listdir(capture)) for capture in left.glob("capture_*"))
    verdict = report(left)["verdict"]
    assert (verdict["cause"], verdict["culprit_ranks"]) == ("stuck_rank", [1])
    assert verdict["location"]["line"] == line_of("sleeping")
    assert json.loads(analyze(left).to_json())["verdict"] == verdict
    assert not [w for w in report(left)["warnings"] if w["code"] == "ranks_elsewhere"]


def test_a_node_that_was_told_another_address_is_named(here: Place) -> None:
    left = here.left
    run_on_two_nodes(here, (left, left), store="192.0.2.1")  # nobody's
    assert not list(left.glob("attempt-*"))
    verdict = report(left)["verdict"]
    assert (verdict["cause"], verdict["culprit_ranks"]) == ("init_hang", [1])
    assert "(host node1)" in verdict["summary"] and "192.0.2.1:" in verdict["summary"]
    assert json.loads(analyze(left).to_json())["verdict"] == verdict


def test_a_node_that_waits_for_long_work_on_another_is_not_frozen(here: Place) -> None:
    left = here.left
    ends = run_on_two_nodes(here, (left, left), "long_work", ("evaluate", "16"))
    assert [(code, "capturing the job" in text) for code, text in ends] == [(0, False)] * 2, ends


def test_nodes_without_a_shared_disk_say_what_is_missing_and_how_to_join_it(here: Place) -> None:
    folders = (here / "node0" / "left", here / "node1" / "left")
    ends = run_on_two_nodes(here, folders)
    packs = []
    for number, (folder, (_, text)) in enumerate(zip(folders, ends, strict=True)):
        answer = report(folder)
        missing = next(w for w in answer["warnings"] if w["code"] == "ranks_elsewhere")
        there = next(r["rank"] for r in answer["ranks"] if r["absence"] == "no dump")
        assert missing["message"].startswith(f"rank {there} of 2 left nothing on this node")
        told = answer["verdict"]
        assert told is None or there not in told["culprit_ranks"] or told["confidence"] == "low"
        assert "partial data: dumps of 1 of 2 ranks" in text
        assert f"hangscope pack {folder} -o NODE.hangpack" in " ".join(text.split())
        page = (folder / "report.html").read_text()
        assert "PARTIAL DATA" in page.upper() and "NODE.hangpack" in page
        packs.append(str(here / f"node{number}.hangpack"))
        printed(here, "pack", str(folder), "-o", packs[-1])
    joined = json.loads(printed(here, "analyze", "--format", "json", *packs))["verdict"]
    assert (joined["cause"], joined["culprit_ranks"]) == ("stuck_rank", [1])
    assert joined["location"]["line"] == line_of("sleeping")


def printed(here: Place, *words: str) -> str:
    done = here.ran(hangscope(*words))
    assert done.returncode in (0, 1), done.stderr  # 1: `analyze` found a hang
    return done.stdout
