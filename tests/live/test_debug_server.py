"""A job with nothing of hangscope in it, but with torch's debug server: `hangscope capture` asks that."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.live.jobs import hangscope, started, until
from tests.live.torch_jobs import free_port, job, line_of, torchrun

pytestmark = pytest.mark.real
pytest.importorskip("torch.distributed.debug", reason="torch before 2.13 has no debug server")


def test_the_debug_server_gives_stacks_and_recorders_of_all_ranks(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("tabulate", reason="torch's debug server needs tabulate: the `live` extra")
    settings = job("served", tmp_path, environment)
    with started([*torchrun("served", 2), str(free_port())], tmp_path, settings) as process:
        left = tmp_path / "left"

        def captured() -> bool:
            words = hangscope("capture", str(process.pid), "--dir", "left")
            subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, timeout=60, check=False)
            stacks = [path.read_text() for path in left.glob("capture_*/stack_rank_1.txt")]
            dumps = list(left.glob("capture_*/comm_lib_trace_rank_1.json"))
            return len(dumps) >= 2 and sum("load" in text for text in stacks) >= 2

        until(captured, 90)
        assert process.poll() is None
    last = max(left.glob("capture_*"))
    assert {f"comm_lib_trace_rank_{rank}.json" for rank in (0, 1)} <= {path.name for path in last.iterdir()}
    done = subprocess.run(
        hangscope("analyze", "-q", "--format", "json", "left"),
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)["verdict"]
    assert (told["cause"], told["culprit_ranks"]) == ("stuck_rank", [1])
    assert told["location"]["line"] == line_of("served")
