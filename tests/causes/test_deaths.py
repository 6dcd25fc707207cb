"""Verdicts from text alone: who died first, restarts, and stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import (
    CLOSED,
    at,
    c10,
    judged,
    raised,
    short,
    timeout,
    told,
)

BARRIER = "CollectiveFingerPrint(SequenceNumber=4OpType=BARRIER)"

# --- deaths ---


@pytest.mark.parametrize(
    ("seconds", "hosts", "expected"),
    [
        ((10, 14), ("", ""), ((2,), "high")),
        ((10, 10), ("", ""), ((1, 2), "medium")),
        ((10, 13), ("gpu01: ", "gpu02: "), ((1, 2), "medium")),
        ((10, 40), ("gpu01: ", "gpu02: "), ((2,), "high")),
    ],
)
def test_the_first_death_wins_as_far_as_clocks_tell(
    tmp_path: Path, seconds: tuple[int, int], hosts: tuple[str, str], expected: object
) -> None:
    lines = at(seconds[1], raised(1, "KeyError: 'b'"), hosts[1]) + at(
        seconds[0], raised(2, "ValueError: a"), hosts[0]
    )
    report = told(tmp_path, [*lines, timeout(0), timeout(3)])
    verdict = judged(report)
    assert verdict.cause == "crashed_rank" and (verdict.culprit_ranks, verdict.confidence) == expected
    assert sum("later or as a consequence" in e.text for e in verdict.evidence) == 2 - len(
        verdict.culprit_ranks
    )


def test_a_cause_beats_an_earlier_consequence(tmp_path: Path) -> None:
    lines = at(11, raised(1, CLOSED)) + at(
        12, raised(2, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    )
    report = told(tmp_path, [*lines, timeout(0)])
    assert short(report) == ("crashed_rank", (2,), "high")


@pytest.mark.parametrize(("size", "died"), [("more than 1EB memory", ()), ("2.00 GiB", (2,))])
@pytest.mark.parametrize("own", [True, False])
def test_who_asks_for_the_size_in_a_buffer_that_no_call_filled_did_not_run_out_of_memory(
    tmp_path: Path, size: str, died: tuple[int, ...], own: bool
) -> None:
    lines = [timeout(2 if own else 0, op="_ALLGATHER_BASE")]
    lines += raised(2, f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}.")
    assert judged(told(tmp_path, lines)).culprit_ranks == died


def test_an_xid_names_the_rank_of_its_process(tmp_path: Path) -> None:
    agent = "E1120 15:13:24.653000 17250 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 2 (pid: 4102) of binary: python\n"
    kernel = "[Fri Nov 20 15:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4102, name=python, GPU has fallen off the bus.\n"
    report = told(
        tmp_path,
        {"kernel.log": kernel, "torchrun.stderr": agent, "all.log": [timeout(0), timeout(1), timeout(3)]},
    )
    assert short(report)[:2] == ("gpu_stall", (2,))


def test_an_illegal_access(tmp_path: Path) -> None:
    lines = raised(2, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    assert short(told(tmp_path, [timeout(0), timeout(1), timeout(3), *lines]))[:2] == ("gpu_stall", (2,))


AGENT = "E1120 15:13:24.653000 17250 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: {rank} (pid: {pid}) of binary: python"


@pytest.mark.parametrize(("attempt", "culprit"), [(None, 2), (1, 2), (0, 1)])
def test_restarts_in_one_file(tmp_path: Path, attempt: int | None, culprit: int) -> None:
    lines = [
        *raised(1, "ValueError: a"),
        AGENT.format(rank=1, pid=11),
        *raised(2, "KeyError: 'b'"),
        AGENT.format(rank=2, pid=12),
    ]
    report = told(tmp_path, lines, world_size=4, attempt=attempt)
    assert judged(report).culprit_ranks == (culprit,)
    assert [n.code for n in report.warnings] == ["several_attempts"]


@pytest.mark.parametrize(("attempt", "culprit"), [(None, 2), (0, 1)])
def test_restarts_in_folders(tmp_path: Path, attempt: int | None, culprit: int) -> None:
    files: dict[str, str | list[str]] = {
        f"log/none_x/attempt_{a}/{r}/stderr.log": raised(r, "ValueError: a" if r == a + 1 else CLOSED)
        for a in (0, 1)
        for r in range(3)
    }
    report = told(tmp_path, files, attempt=attempt)
    assert short(report)[:2] == ("crashed_rank", (culprit,))
    assert [n.code for n in report.warnings] == ["earlier_attempt"]


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ((0, 1), "no input is of restart attempt 7: there are 0, 1"),
        ((), "no input is of restart attempt 7: no input states any"),
    ],
)
def test_an_attempt_that_no_input_is_of(tmp_path: Path, folders: tuple[int, ...], message: str) -> None:
    files: dict[str, str | list[str]] = {
        f"log/none_x/attempt_{a}/2/stderr.log": raised(2, "ValueError: a") for a in folders
    } or {"train.log": raised(2, "ValueError: a")}
    report = told(tmp_path, files, attempt=7)
    assert message in [n.message for n in report.warnings]
    # nothing of another attempt is taken for the one that was asked for
    assert report.verdict is not None and (report.verdict.cause == "unknown") == bool(folders)


# --- stacks of all ranks in one file ---


def test_stacks_of_the_debug_server(tmp_path: Path) -> None:
    inside = "    wait (threading.py:320)\n    all_reduce (torch/distributed/distributed_c10d.py:3252)\n    train (train.py:11)\n    <module> (train.py:20)\n"
    outside = "    read (data.py:3)\n    train (train.py:9)\n    <module> (train.py:20)\n"
    text = "".join(
        f'=== Rank {r}: http://gpu07:2599{r} ===\nThread {100 + r} (idle): "MainThread"\n{outside if r == 1 else inside}\n'
        for r in range(4)
    )
    verdict = judged(told(tmp_path, {"stacks.txt": text}))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (1,))
    assert verdict.location is not None and (verdict.location.file, verdict.location.line) == ("data.py", 3)


def test_the_only_stack_is_of_the_rank_that_all_others_wait_for(tmp_path: Path) -> None:
    stack = 'Process 77: python train.py\nPython v3.11\n\nThread 77 (idle): "MainThread"\n    acquire (logging/__init__.py:920)\n    encode (rag/index.py:88)\n'
    files: dict[str, str | list[str]] = {
        "pyspy_rank2.txt": stack,
        "w.err": [timeout(rank, seq=71) for rank in (0, 1, 3)],
    }
    assert short(told(tmp_path, files))[:2] == ("stuck_rank", (2,))


def _ended(codes: dict[int, int], late: dict[int, str] | None = None, host: str = "localhost") -> list[str]:
    """Return the lines in which torchrun lists how its workers ended, some later than the others."""
    lines = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
    ]
    for number, (rank, code) in enumerate(codes.items()):
        lines += ["Root Cause (first observed failure):" if number == len(codes) - 1 else "Failures:"] * (
            number in (0, len(codes) - 1)
        )
        lines += [
            f"[{number}]:",
            f"  time      : 2026-11-22_{(late or {}).get(rank, '11:36:19')}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {5570 + rank})",
            "  error_file: <N/A>",
            "  traceback : Signal",
        ]
    return [*lines, "=" * 60]


def test_an_abort_of_which_the_rank_itself_says_nothing_is_no_death_on_gloo(tmp_path: Path) -> None:
    """Gloo aborts whoever gets a message that does not fit, and its words may not be here."""
    lines = raised(1, CLOSED) + _ended({2: -15, 1: 1, 0: -6})
    report = told(tmp_path, {"launcher.log": lines, "rank_0.log": ["step 5 loss 1.0"]})
    assert report.verdict is None or 0 not in report.verdict.culprit_ranks


def test_a_kill_of_which_the_rank_itself_says_nothing_is_one(tmp_path: Path) -> None:
    lines = raised(1, CLOSED) + _ended({2: -15, 1: 1, 0: -9})
    assert short(told(tmp_path, {"launcher.log": lines, "rank_0.log": ["step 5 loss 1.0"]}))[:2] == (
        "crashed_rank",
        (0,),
    )


@pytest.mark.parametrize("late", [{}, {1: "11:36:45"}])
def test_aborts_in_one_second_do_not_tell_who_was_first(tmp_path: Path, late: dict[int, str]) -> None:
    """The launcher's first observed failure is whom it polled first."""
    verdict = judged(told(tmp_path, _ended({1: -6, 2: -6, 3: -6, 0: -6}, late)))
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())
    assert verdict.confidence != "high"


@pytest.mark.parametrize(("when", "named"), [("11:36:17", (1,)), ("11:36:19", ())])
def test_an_end_of_another_kind_before_all_aborts_is_the_one_that_they_answer(
    tmp_path: Path, when: str, named: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, _ended({0: -6, 1: 1, 2: -15, 3: -6}, {1: when})))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == (
        "crashed_rank",
        named,
        "medium" if named else "low",
    )


@pytest.mark.parametrize(("others", "named"), [(-9, ()), (-15, (1,)), (-6, (1,))])
def test_a_signal_that_ended_all_processes_at_once_is_no_rank_s_own_end(
    tmp_path: Path, others: int, named: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, _ended({0: others, 1: -9, 2: others})))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", named)


@pytest.mark.parametrize("said", [True, False])
def test_who_outlived_the_grace_of_its_own_agent_was_not_the_first(tmp_path: Path, said: bool) -> None:
    """Another node's ranks wait for half an hour: only on its own node was the agent's answer half a minute."""
    word = "2026-11-22 11:36:49,101 torch.distributed.elastic.multiprocessing.api: [WARNING] Unable to shutdown process 5572 via 15, forcefully exiting via 9"
    files: dict[str, str | list[str]] = {
        "node0.log": [
            timeout(0),
            timeout(1),
            *_ended({1: -6, 0: -6}, {0: "12:06:21", 1: "12:06:21"}, "gpu01"),
        ],
        "node1.log": [*([word] if said else []), *_ended({2: -9, 3: 1}, {2: "11:36:49"}, "gpu02")],
    }
    assert short(told(tmp_path, files))[:2] == ("crashed_rank", (3,))


def test_ranks_that_fail_in_one_second_alike_are_all_named(tmp_path: Path) -> None:
    lines = [
        line for rank in (0, 1) for line in raised(rank, "ModuleNotFoundError: No module named 'kernels'")
    ]
    verdict = judged(told(tmp_path, [*lines, *_ended({1: 1, 0: 1})], world_size=4))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (0, 1)) and verdict.confidence != "high"


def test_an_abort_after_errors_of_nccl_that_other_ranks_report_is_their_consequence(tmp_path: Path) -> None:
    failed = c10(
        2,
        "[Rank 2] Collective WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.25.1",
    )
    verdict = judged(told(tmp_path, [failed, *_ended({2: -15, 1: -15, 0: -6})]))
    assert 0 not in verdict.culprit_ranks


def test_who_meets_nobody_at_rays_store_waited_for_the_one_that_did_not_come(tmp_path: Path) -> None:
    error = "RuntimeError: Unable to meet other processes at the rendezvous store. If you are using P2P communication, please check if tensors are put in the correct GPU."
    report = told(tmp_path, [line for rank in (1, 2) for line in raised(rank, error)])
    assert judged(report).culprit_ranks == ()


def test_who_lost_its_peer_on_another_node_did_not_end_first(tmp_path: Path) -> None:
    """Each node counts its local ranks from 0: of two nodes, local rank 6 is no global one."""
    lines = [
        "deepspeed zero3 on 2 nodes x 8 GPUs, the log of the master blames rank 3",
        "",
        "ip-10-0-0-70:2218804:2219990 [3] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer ip-10-0-0-82<40112>",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-01-22_03:43:31",
        "  host      : ip-10-0-0-70",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : 1 (pid: 2218804)",
        "  error_file: <N/A>",
        "",
        "[2026-01-22 03:43:22,096] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 6 (pid: 1840078) of binary: /opt/venv/bin/python",
    ]
    assert judged(told(tmp_path, lines)).culprit_ranks == ()


def test_who_tries_the_same_sample_again_is_alive(tmp_path: Path) -> None:
    line = "[rank6]: a.mp4: decode failed at frame 0 (DECORDError: cannot seek), retrying"
    verdict = judged(told(tmp_path, [line, line, *(timeout(r) for r in (0, 1, 2))]))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (6,))


def test_whom_every_stalled_tensor_of_horovod_lacks_is_stuck_where_mpirun_placed_it(tmp_path: Path) -> None:
    ready = ["ready ranks: 3, 1, 7, 0, 6, 2, 4", "ready ranks: 0, 4, 6, 7, 3, 2, 1"]
    lines = [
        "mpirun -np 8 -H hv-a:4,hv-b:4 --map-by slot python train.py",
        "",
        "[1,0]<stderr>:WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
        "[1,0]<stderr>:Stalled ops:",
        *(f"[1,0]<stderr>:allreduce.w{n} [{row}]" for n, row in enumerate(ready)),
    ]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (5,))
    assert "local rank 1 of hv-b" in " ".join((verdict.summary, *verdict.advice))


def test_what_all_ranks_raise_sets_none_apart_although_most_tracebacks_are_cut(tmp_path: Path) -> None:
    cut = [f"[rank{rank}]: {line}" for rank in (0, 1, 3) for line in ("    raise EOFError", "EOFError")]
    lines = ["torchrun --nproc_per_node=4 train.py", *raised(2, "EOFError"), *cut]
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", ())


def test_an_abort_of_which_nobody_else_reports_anything_hardly_names_its_rank(tmp_path: Path) -> None:
    line = "E0802 21:14:19.660000 21790 torch/distributed/elastic/multiprocessing/api.py:1012] failed (exitcode: -{code}) local_rank: 1 (pid: 21839) of binary: /opt/venv/bin/python"
    start = "torchrun --nproc-per-node=4 ar.py"
    assert short(told(tmp_path, [start, line.format(code=9)])) == ("crashed_rank", (1,), "high")
    assert short(told(tmp_path, [start, line.format(code=6)])) == ("crashed_rank", (1,), "low")
    aborts = "terminate called after throwing an instance of 'sycl::_V1::exception'"
    what = "  what():  level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
    several = [aborts, aborts, what, what, aborts, what]
    assert judged(told(tmp_path, [start, *several, line.format(code=6)])).culprit_ranks == ()


def test_what_fails_after_hccl_gave_up_its_wait_for_a_peer_is_no_death(tmp_path: Path) -> None:
    lines = raised(0, "ValueError: NPU function error: call failed, error code is 561000")
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", (0,))
    waited = "[rank0]: [PID: 88412] 2026-06-03-14:22:07 Get_Socket_Timeout(EI0006): Getting socket times out. Reason: 1."
    assert judged(told(tmp_path, [*lines, waited])).cause != "crashed_rank"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'index.json'", "who creates the file"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "it may be incomplete"),
        ("TypeError: unsupported operand", "Fix the TypeError"),
    ],
)
def test_the_advice_fits_the_type_of_the_exception(tmp_path: Path, error: str, wanted: str) -> None:
    assert wanted in " ".join(judged(told(tmp_path, [*raised(2, error), timeout(0)])).advice)
