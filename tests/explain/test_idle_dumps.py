"""An idle dump beside a traceback: which of them says where a rank was."""

from __future__ import annotations

from pathlib import Path

from tests.dump_writer import SCRIPT, TORCH, Recorder, world
from tests.text_lines import CLOSED
from tests.verdicts import blame, judged


def _gloo(rank: int, calls: int, waits: bool) -> Recorder:
    recorder = Recorder(rank, world(3), backend="gloo").call("all_reduce", line=20, times=calls)
    return recorder.call("all_reduce", line=20, state="scheduled") if waits else recorder


def _raised_in(rank: int, op: str, line: int) -> list[str]:
    prefix = f"[rank{rank}]: "
    return [
        f"{prefix}Traceback (most recent call last):",
        f'{prefix}  File "{SCRIPT}", line {line}, in train',
        f"{prefix}    dist.{op}(out, x)",
        f'{prefix}  File "{TORCH}/distributed/distributed_c10d.py", line 4287, in {op}',
        f"{prefix}    work.wait()",
        f"{prefix}{CLOSED}",
    ]


def test_a_rank_that_came_late_to_the_call_of_the_others_stays_the_culprit(tmp_path: Path) -> None:
    logs = {f"rank_{rank}": _raised_in(rank, "all_reduce", 20) for rank in range(3)}
    recorders = [_gloo(0, 70, False), _gloo(1, 70, True), _gloo(2, 70, True)]
    assert blame(judged(tmp_path, recorders, **logs))[2] == (0,)
