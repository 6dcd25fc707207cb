"""What absence tells: of ranks that nobody collected nothing, of ranks whose connections stayed open that they live."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, job
from tests.text_lines import CLOSED, raised, timeout, told
from tests.verdicts import TIMED_OUT, blame, judged, level


def gloo_dumps(size: int, gone: int) -> list:
    recorders = job(size, backend="gloo")
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41)
        if recorder.rank != gone:
            recorder.call("all_reduce", line=41, state="scheduled")
    return [recorder for recorder in recorders if recorder.rank != gone]


def test_open_connections_show_that_a_rank_lives(tmp_path: Path) -> None:
    """A process that ends closes its connections at once; all peers of this one waited until their timeouts."""
    logs = {f"rank{r}": [f"[rank{r}]: step 5", *(raised(r, TIMED_OUT) if r != 2 else ())] for r in range(4)}
    report = judged(tmp_path, gloo_dumps(4, 2), **logs)
    assert blame(report) == ("hang", "stuck_rank", (2,)) and level(report) == "high"


def test_a_closed_connection_does_not(tmp_path: Path) -> None:
    logs = {f"rank{r}": [f"[rank{r}]: step 5", *(raised(r, TIMED_OUT) if r != 2 else ())] for r in range(4)}
    logs["rank1"] = raised(1, CLOSED)
    assert blame(judged(tmp_path, gloo_dumps(4, 2), **logs)) == ("hang", "crashed_rank", (2,))


@pytest.mark.parametrize(("op", "cause"), [("gather", "stuck_rank"), ("all_reduce", "crashed_rank")])
def test_who_is_done_with_a_call_to_a_root_tells_nothing_of_connections(
    tmp_path: Path, op: str, cause: str
) -> None:
    """Senders of a gather are done when they have sent; that the root still waits shows that no connection closed."""
    recorders = job(5, backend="gloo")
    for recorder in recorders:
        recorder.call(op, times=12, line=41)
        recorder.call(op, line=41, state="completed" if recorder.rank in (1, 2) else "scheduled")
    report = judged(tmp_path, [recorder for recorder in recorders if recorder.rank != 3])
    assert blame(report) == ("hang", cause, (3,))


@pytest.mark.parametrize("collected", [range(4), range(5)])
def test_half_of_the_logs_accuse_nobody_of_the_other_half(tmp_path: Path, collected: range) -> None:
    """They lie on another node."""
    report = told(tmp_path, {f"rank_{r}.log": [timeout(r)] for r in collected}, world_size=8)
    assert report.status == "hang"
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


def test_several_ranks_without_a_dump_were_rather_not_collected(tmp_path: Path) -> None:
    recorders = job(8)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41).call("all_reduce", line=41, state="started")
    report = judged(tmp_path, recorders[:5], **{f"rank{r}": ["step 5"] for r in range(8)})
    assert report.verdict is not None and report.verdict.culprit_ranks == ()


P2P = ["send", "recv"]


def test_stages_that_all_wait_in_sends_and_receives_do_not_accuse_each_other(tmp_path: Path) -> None:
    """They stand at different lines by nature."""

    def traceback(rank: int, op: str) -> list[str]:
        return [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "/workspace/stages.py", line {20 + rank // 3}, in forward',
            f"[rank{rank}]:     dist.{op}(x, {rank + 1})",
            f'[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2753, in {op}',
            f"[rank{rank}]:     work.wait()",
            f"[rank{rank}]: {TIMED_OUT}",
        ]

    logs = {f"rank{r}": traceback(r, P2P[r < 3]) for r in range(4)}
    assert blame(judged(tmp_path, **logs)) == ("hang", "p2p_mismatch", ())


STORE = "torch.distributed.DistStoreError: wait timeout after 9000ms, keys: /default_pg/0//2//cpu//0/3"
JOINED = (
    "torch.distributed.DistStoreError: Timed out after 11 seconds waiting for clients. 3/4 clients joined."
)


def test_who_waits_for_the_store_is_not_dead_and_who_is_waited_for_is_named(tmp_path: Path) -> None:
    """Rank 3 left a dump with an open call of the group before; the others are at the next group's making."""
    recorders = job(4)
    recorders[3].call("all_reduce", times=4, line=41).call("all_reduce", line=41, state="started")
    logs = {f"rank{r}": raised(r, STORE) if r != 3 else ["warm"] for r in range(4)}
    assert blame(judged(tmp_path, recorders[3:], **logs)) == ("hang", "init_hang", (3,))


def test_the_one_whose_log_waits_for_nobody_has_not_joined(tmp_path: Path) -> None:
    logs = {
        f"rank{r}": raised(r, JOINED if r == 0 else STORE[:-1] + "0") if r != 2 else ["resolving"]
        for r in range(4)
    }
    report = judged(tmp_path, **logs)
    assert blame(report) == ("hang", "init_hang", (2,)) and level(report) == "medium"


def test_the_only_stack_that_was_taken_shows_the_silent_rank_alive(tmp_path: Path) -> None:
    """Nobody else's stack is here to compare it with; the others' watchdogs say that they wait."""
    stack = ["Process 811: python serve/embed.py", "Python v3.11.4", "", 'Thread 811 (idle): "MainThread"']
    stack += [
        "    acquire (logging/__init__.py:920)",
        "    index_shard (serve/embed.py:71)",
        "    main (serve/embed.py:140)",
    ]
    logs = {
        "job.err": [timeout(rank, op="ALLGATHER", seq=71) for rank in (0, 1, 3)],
        "pyspy_rank2.txt": stack,
    }
    report = told(tmp_path, logs, world_size=4)
    assert blame(report) == ("hang", "stuck_rank", (2,))
    assert "embed.py:71" in report.to_text(width=300)


def test_the_only_rank_that_calls_can_wait_for_is_named_although_others_were_not_collected(
    tmp_path: Path,
) -> None:
    groups = {"0": ("default_pg", range(6)), "1": ("dp", (0, 1, 2, 5)), "2": ("dp", (3, 4))}
    recorders = job(6, groups=groups)[:3]
    for recorder in recorders:
        recorder.call("all_reduce", "1", times=12, line=41).call("all_reduce", "1", line=41, state="started")
    report = judged(tmp_path, recorders)
    assert blame(report) == ("hang", "crashed_rank", (5,)) and level(report) == "low"


def test_the_call_that_a_rank_never_entered_is_at_the_others_line_and_the_rank_at_its_own_last_call(
    tmp_path: Path,
) -> None:
    groups = {"0": ("default_pg", range(4)), "1": ("dp", (0, 2)), "2": ("dp", (1, 3))}
    for rank in range(4):
        recorder = Recorder(rank, groups).call("all_reduce", line=90, times=3)
        recorder.call("all_gather", "1" if rank % 2 == 0 else "2", line=62)
        if rank != 2:
            recorder.call("all_reduce", line=91, state="started")
        recorder.write(tmp_path)
    report = analyze(tmp_path)
    verdict = report.verdict
    assert verdict is not None and verdict.culprit_ranks == (2,)
    assert verdict.title == "Rank 2 never entered all_reduce seq 4 (train.py:91)"
    assert verdict.location is not None and (verdict.location.line, verdict.location.rank) == (62, 2)
    assert "(rank 2 issued all_gather seq 1 on group 1 (dp))" in " ".join(report.to_text().split())
