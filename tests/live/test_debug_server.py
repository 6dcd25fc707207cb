"""A job with nothing of hangscope in it, but with torch's debug server: `hangscope capture` asks that."""

from __future__ import annotations

import json
import os
import urllib.request

import pytest

from hangscope import hooks
from tests.live.jobs import Place, hangscope, until
from tests.live.torch_jobs import free_port, job, line_of, torchrun
from tests.needs import needs

pytestmark = [pytest.mark.real, needs("torch")]


@pytest.fixture(autouse=True)
def debug_server() -> None:
    pytest.importorskip("torch.distributed.debug", reason="torch before 2.13 has no debug server")


TRAIN = """
import time, torch, torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    for step in range(100):
        if step == 5 and dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(torch.ones(4))
"""


def needed() -> None:
    """Skip where something is missing that torch's debug server imports."""
    for name in ("tabulate", "requests"):
        pytest.importorskip(name, reason="torch's debug server needs it: the `live` extra")


def test_the_page_of_the_hook_is_the_report_of_the_frozen_job(here: Place) -> None:
    needed()
    port = free_port()
    (here / "train.py").write_text(TRAIN)
    (here / "hook.py").write_text(hooks.text("debug").replace("25999", str(port)))
    settings = job("served", here)
    settings["PYTHONPATH"] = f"{here}{os.pathsep}{settings['PYTHONPATH']}"
    with here.started(torchrun("hook", 2), settings) as process:

        def told() -> bool:
            try:
                with urllib.request.urlopen(f"http://localhost:{port}/hangscope", timeout=60) as reply:
                    page = reply.read().decode()
            except OSError:
                return False  # the server is not there yet
            return "train.py:9" in page and "stuck_rank" in page

        until(told, 120)
        assert process.poll() is None


def test_the_debug_server_gives_stacks_and_recorders_of_all_ranks(here: Place) -> None:
    needed()
    settings = job("served", here)
    with here.started([*torchrun("served", 2), str(free_port())], settings) as process:
        left = here.left

        def captured() -> bool:
            words = hangscope("capture", str(process.pid), "--dir", "left")
            here.ran(words, settings)
            stacks = [path.read_text() for path in left.glob("capture_*/stack_rank_1.txt")]
            dumps = list(left.glob("capture_*/comm_lib_trace_rank_1.json"))
            return len(dumps) >= 2 and sum("load" in text for text in stacks) >= 2

        until(captured, 90)
        assert process.poll() is None
    last = max(left.glob("capture_*"))
    assert {f"comm_lib_trace_rank_{rank}.json" for rank in (0, 1)} <= {path.name for path in last.iterdir()}
    done = here.ran(hangscope("analyze", "-q", "--format", "json", "left"), settings)
    told = json.loads(done.stdout)["verdict"]
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of("served")
