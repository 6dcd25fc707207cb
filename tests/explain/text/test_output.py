"""What output tells: totals of steps that differ, who is apart from a backward pass, who is past the making of a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import CLOSED, judged, short, told
from tests.verdicts import TIMED_OUT

ABORTED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes."
    " 17220 vs 4. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"
)


def _backward(rank: int, line: int = 40) -> str:
    lines = [
        "Traceback (most recent call last):",
        f'  File "{SCRIPT}", line {line}, in train',
        "    loss.backward()",
        f'  File "{TORCH}/autograd/graph.py", line 979, in _engine_run_backward',
        "    return Variable._execution_engine.run_backward(",
        CLOSED,
    ]
    return "\n".join(f"[rank{rank}]: {text}" for text in lines)


def _in_call(rank: int, op: str, line: int) -> str:
    lines = [
        "Traceback (most recent call last):",
        f'  File "{SCRIPT}", line {line}, in main',
        f"    dist.{op}(x)",
        f'  File "{TORCH}/distributed/distributed_c10d.py", line 900, in {op}',
        "    work.wait()",
        TIMED_OUT,
    ]
    return "\n".join(f"[rank{rank}]: {text}" for text in lines)


def _logs(totals: dict[int, int], step: int = 20) -> dict[str, str | list[str]]:
    """Return logs of ranks that count to `step` of their totals; the one with the fewest is aborted, the others are in a backward pass."""
    least = min(totals, key=lambda rank: totals[rank])
    return {
        f"rank_{rank}.log": f"epoch 0 step {step}/{total} loss 1.25\n"
        + (ABORTED if rank == least else _backward(rank))
        + "\n"
        for rank, total in totals.items()
    }


def test_totals_tell_nothing_in_the_first_half_of_a_loop(tmp_path: Path) -> None:
    assert short(told(tmp_path, _logs({0: 60, 1: 60, 2: 59})))[0] != "uneven_loader"


def test_whose_buffer_does_not_fit_a_gradient_bucket_is_in_another_call(tmp_path: Path) -> None:
    assert short(told(tmp_path, _logs({0: 30, 1: 30, 2: 30})))[1] == (
        0,
    )  # aborted, where two are in one backward pass


def test_two_lines_of_a_backward_pass_set_nobody_apart(tmp_path: Path) -> None:
    logs = {
        "rank_0.log": ABORTED + "\n",
        "rank_1.log": _backward(1) + "\n",
        "rank_2.log": _backward(2, 44) + "\n",
    }
    assert short(told(tmp_path, logs))[1] == ()


@pytest.mark.parametrize("size", [3, 6])
def test_who_is_past_the_making_of_a_group_is_not_blamed_for_it(tmp_path: Path, size: int) -> None:
    lines = [_in_call(0, "all_reduce", 17), *(_in_call(rank, "new_group", 10) for rank in range(1, size))]
    cause, ranks, confidence = short(told(tmp_path, lines))
    assert ranks == () and confidence == "low" and cause != "unknown"


def test_who_alone_makes_a_group_is(tmp_path: Path) -> None:
    lines = [_in_call(0, "new_group", 10), *(_in_call(rank, "all_reduce", 17) for rank in range(1, 4))]
    assert short(told(tmp_path, lines))[1] == (0,)


def test_who_is_silent_beside_an_aborted_rank_may_have_been_ended_first(tmp_path: Path) -> None:
    logs = {
        "rank_0.log": ABORTED + "\n",
        "rank_1.log": _in_call(1, "all_gather", 9) + "\n",
        "rank_2.log": "step 3/9\n",
    }
    assert short(told(tmp_path, logs))[1] == ()


def test_who_is_silent_beside_an_abort_that_names_no_rank_may_be_the_aborted_one(tmp_path: Path) -> None:
    lines = [
        _in_call(0, "all_gather", 9),
        _in_call(1, "all_gather", 9),
        _in_call(3, "all_gather", 9),
        *ABORTED.split("\n"),
    ]
    assert short(told(tmp_path, lines))[1] == (2,)


def _collected(quiet: tuple[int, ...], failed: tuple[int, ...]) -> dict[str, str | list[str]]:
    """Return the logs of ranks that all count a step, and of which those that `failed` lost a peer."""
    return {
        f"rank_{rank}.log": [
            f"[rank{rank}] step 40",
            *([f"[rank{rank}]: {CLOSED}"] if rank in failed else []),
        ]
        for rank in (*quiet, *failed)
    }


def test_of_a_partial_collection_one_log_that_ends_in_silence_is_a_guess(tmp_path: Path) -> None:
    report = told(tmp_path, _collected((1,), (0, 2, 5, 6)), world_size=7)
    assert short(report) == ("crashed_rank", (1,), "low")


@pytest.mark.parametrize(("quiet", "failed"), [((1, 3), (0, 2, 5, 6)), ((), (0, 2, 5, 6)), ((1,), (0, 2))])
def test_several_silent_logs_and_few_that_failed_accuse_nobody(
    tmp_path: Path, quiet: tuple[int, ...], failed: tuple[int, ...]
) -> None:
    report = told(tmp_path, _collected(quiet, failed), world_size=7)
    assert report.verdict is None or not report.verdict.culprit_ranks


def test_a_message_that_does_not_fit_tells_neither_who_is_odd_nor_in_which_way(tmp_path: Path) -> None:
    report = told(tmp_path, {"job.log": ABORTED + "\n"}, world_size=4)
    assert short(report) == ("collective_mismatch", (), "low")
    assert judged(report).alternatives[0].cause == "rank_conditional_collective"


@pytest.mark.parametrize(("left", "named", "level"), [((2,), (2,), "low"), ((2, 3), (), "low")])
def test_where_others_stand_in_sends_and_receives_who_left_for_a_call_of_all_is_a_guess(
    tmp_path: Path, left: tuple[int, ...], named: tuple[int, ...], level: str
) -> None:
    """At which of its sends and receives a rank stands is its part's nature, and sets it apart from nobody."""
    pairs = {0: ("recv", 25), 1: ("recv", 48), 3: ("send", 46)}
    stood = {rank: ("barrier", 58) if rank in left else pairs[rank] for rank in range(4)}
    lines = {f"rank_{rank}.log": _in_call(rank, *call) + "\n" for rank, call in stood.items()}
    verdict = judged(told(tmp_path, dict(lines)))
    assert (verdict.culprit_ranks, verdict.confidence) == (named, level)
    assert "printed" not in verdict.summary


@pytest.mark.parametrize(
    "field", ["2026-08-25 10:31:4{s},100 r{r} | ", "2026-08-25 10:31:4{s} | INFO | rank:{r} | "]
)
def test_a_loader_that_ended_on_one_rank_alone(tmp_path: Path, field: str) -> None:
    lines = [field.format(r=r, s=0) + "batch 733 fwd" for r in range(4)]
    lines += [field.format(r=1, s=1) + "StopIteration after 733 batches"]
    lines += [field.format(r=r, s=1) + "batch 734 fwd" for r in (0, 2, 3)]
    moves = told(tmp_path / "moves", {"all.log": lines})
    assert (moves.status, *short(moves)) == ("inconclusive", "uneven_loader", (1,), "low")
    lines += ["(watcher) no line from any rank for 10 min"]
    assert short(told(tmp_path / "stands", {"all.log": lines})) == ("uneven_loader", (1,), "low")


def test_what_one_rank_alone_printed_is_a_hint_where_nothing_shows_a_stop(tmp_path: Path) -> None:
    """It names the rank at low, the job is not said to hang, and nobody is said to wait."""
    lines = {
        f"rank_{r}.log": [
            *(f"iter {n} loss 1.{r}" for n in range(30, 33)),
            "iter 33 loss 1.2",
            "iter 34 loss 1.1",
        ]
        for r in range(4)
    }
    lines["rank_2.log"].insert(3, "batch too large, dropped")
    report = told(
        tmp_path / "alone", {name: "\n".join(text) + "\n" for name, text in lines.items()}, world_size=4
    )
    assert (report.status, *short(report)) == ("inconclusive", "rank_conditional_collective", (2,), "low")
    assert judged(report).title == "Rank 2 printed a line that no other rank printed"
    assert "waiting" not in report.to_text()
    lines["rank_1.log"].insert(3, "augmentation is off")
    two = told(tmp_path / "two", {name: "\n".join(text) + "\n" for name, text in lines.items()}, world_size=4)
    assert two.verdict is None or not two.verdict.culprit_ranks


def test_a_rank_that_leaves_by_itself_while_another_steps_on_is_named_at_low(tmp_path: Path) -> None:
    lines = [
        "[rank0] step 40 loss 2.1",
        "[rank1] early stopping, leaving the job",
        "[rank0] step 41 loss 2.0",
    ]
    report = told(tmp_path, {"job.log": "\n".join(lines) + "\n"})
    assert (report.status, judged(report).culprit_ranks, judged(report).confidence) == (
        "inconclusive",
        (1,),
        "low",
    )
    assert "early stopping, leaving the job" in judged(report).explanation


@pytest.mark.parametrize(("size", "named"), [(8, (4,)), (16, ())])
def test_a_gap_among_the_ranks_of_a_larger_collective_is_no_silence(
    tmp_path: Path, size: int, named: tuple[int, ...]
) -> None:
    """The members of which no line was collected are as silent as the rank in the gap."""
    work = f"WorkNCCL(SeqNum=40, OpType=_ALLGATHER_BASE, NumelIn=64, NumelOut={64 * size}, Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
    lines = [
        f"[rank{rank}]:[E521 13:18:09.016640231 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: {work}"
        for rank in range(8)
        if rank != 4
    ]
    assert judged(told(tmp_path, {"job.log": lines})).culprit_ranks == named
