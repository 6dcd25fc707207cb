"""At which lines ranks stand by stacks of one moment: what they prove of a job that may be moving, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.explain.text.sites import sites
from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import short, status, timeout, told
from tests.verdicts import TIMED_OUT, blame

BACKWARD = (
    ("autograd/graph.py", "_engine_run_backward"),
    ("autograd/__init__.py", "backward"),
    ("_tensor.py", "backward"),
)
HEAD = "Current thread 0x00007f4b7d1296c0 (most recent call first):"


def _in(op: str, line: int) -> list[str]:
    return [
        HEAD,
        f'  File "{TORCH}/distributed/distributed_c10d.py", line 4394 in {op}',
        f'  File "{SCRIPT}", line {line} in main',
    ]


def _stacks(odd: list[str], others: list[str]) -> dict[str, str | list[str]]:
    return {f"stack_rank_{r}.txt": odd if r == 2 else others for r in range(3)}


def test_calls_of_one_operation_at_two_lines_of_a_loop_prove_no_freeze(tmp_path: Path) -> None:
    """A moving job shows the like: its ranks are asked one after the other, and the calls would meet."""
    files = _stacks(_in("all_gather_into_tensor", 31), _in("all_gather_into_tensor", 30))
    report = told(tmp_path, files)
    assert blame(report) == ("inconclusive", "unknown", ())


def test_the_same_stacks_with_a_timeout_are_of_a_frozen_job(tmp_path: Path) -> None:
    files = _stacks(_in("all_gather_into_tensor", 31), _in("all_gather_into_tensor", 30))
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), "medium")


@pytest.mark.parametrize(("ended", "level"), [(False, "low"), (True, "medium")])
def test_calls_of_two_operations_do_not_meet_and_are_a_guess_of_one_moment(
    tmp_path: Path, ended: bool, level: str
) -> None:
    files = _stacks(_in("broadcast", 31), _in("all_gather_into_tensor", 30))
    if ended:
        files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), level)


def test_a_stack_names_its_rank_although_the_logs_of_the_others_alone_were_collected(tmp_path: Path) -> None:
    files = _stacks(_in("broadcast", 31), _in("all_gather_into_tensor", 30))
    for rank in (0, 1):
        files[f"rank{rank}.log"] = [f"[rank{rank}]: {TIMED_OUT}"]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), "medium")


def test_who_waits_in_a_receive_may_wait_for_one_of_those_that_are_in_another_call(tmp_path: Path) -> None:
    files = _stacks(_in("recv", 31), _in("all_gather_into_tensor", 30))
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), "low")


def test_sends_and_receives_of_one_moment_are_a_guess(tmp_path: Path) -> None:
    assert short(told(tmp_path, _stacks(_in("send", 31), _in("recv", 30)))) == ("p2p_mismatch", (), "low")


PIPELINE = [
    HEAD,
    f'  File "{TORCH}/distributed/pipelining/schedules.py", line 683 in _wait_batch_p2p',
    f'  File "{TORCH}/distributed/pipelining/schedules.py", line 785 in step',
    f'  File "{SCRIPT}", line 26 in main',
]
MEGATRON = [
    HEAD,
    '  File "/opt/venv/lib/python3.11/site-packages/megatron/core/pipeline_parallel/p2p_communication.py", line 367 in _communicate',
    f'  File "{SCRIPT}", line 26 in main',
]
FUNCTIONAL = [
    HEAD,
    f'  File "{TORCH}/distributed/_functional_collectives.py", line 150 in wait_tensor',
    f'  File "{SCRIPT}", line 26 in main',
]


@pytest.mark.parametrize("waits", [PIPELINE, MEGATRON, FUNCTIONAL])
def test_who_waits_in_a_librarys_own_wait_is_not_at_work(tmp_path: Path, waits: list[str]) -> None:
    """The wait itself has no Python frame: who stands in the line that makes it is in another call than the rest."""
    files: dict[str, str | list[str]] = {
        f"stack_rank_{r}.txt": waits if r > 3 else _in("all_reduce", 31) for r in range(6)
    }
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(4)]
    cause, ranks, level = short(told(tmp_path, files))
    assert cause != "stuck_rank" and (ranks, level) == ((), "low")  # one of the two may wait for the other


def test_stages_that_wait_for_each_other_at_one_moment_are_any_pipeline(tmp_path: Path) -> None:
    assert told(tmp_path, _stacks(PIPELINE, PIPELINE)).status == "inconclusive"


def _failed(rank: int, group: str, op: str, frame: str) -> list[str]:
    """Return what a rank's watchdog tells of the call that timed out: its group, and where it was made."""
    text = f"[PG ID 1 PG GUID {group} Rank {rank}] Stack trace of the failed collective: "
    return [
        timeout(rank, op=op, seq=8),
        status(rank, 8, 8, 7, group=f"PG ID 1 PG GUID {group} "),
        f"[rank{rank}]:[E1016 03:31:38.1 ProcessGroupNCCL.cpp:730] {text}",
        f"#0 {op.lower()} from {TORCH}/distributed/distributed_c10d.py:2968",
        f"#1 {frame}",
    ]


def test_calls_on_groups_of_their_own_are_not_held_against_anybody(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait for rank 2 in their group, all others for them in theirs: no call of one has to meet one of the other."""
    lines: dict[str, str | list[str]] = {}
    for rank in (0, 1, 3, 4, 5):
        own = rank < 2
        group, op = ("11(tp)", "ALLREDUCE") if own else ("4(dp)", "BROADCAST")
        frame = f"{'reduce' if own else 'sync'} from {SCRIPT}:{35 if own else 80}"
        lines[f"rank_{rank}.log"] = _failed(rank, group, op, frame)
    lines["rank_2.log"] = ["[rank2]: step 7"]
    case = told(tmp_path, lines).analysis.case
    assert set(case.statements.whereabouts) == {0, 1, 3, 4, 5}
    assert sites(case.incident, case.statements) is None


@pytest.mark.parametrize(("size", "level"), [(2, "medium"), (4, "low")])
def test_one_against_one_of_four_is_a_guess(tmp_path: Path, size: int, level: str) -> None:
    """Ranks that nobody saw may stand on either side."""
    save = _in("gather_object", 31)
    save.insert(2, f'  File "{TORCH}/distributed/checkpoint/state_dict_saver.py", line 180 in save')
    step = [f'  File "{TORCH}/{file}", line 9 in {name}' for file, name in BACKWARD]
    step = [HEAD, *step, f'  File "{SCRIPT}", line 29 in main']
    files: dict[str, str | list[str]] = {"stack_rank_0.txt": save, "stack_rank_1.txt": step}
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(size)]
    cause, ranks, sure = short(told(tmp_path, files))
    assert (cause, ranks, sure) == ("rank_conditional_collective", (0,), level)


def test_recvs_that_the_quoted_lines_name_face_each_other(tmp_path: Path) -> None:
    lines = []
    for rank in (0, 1):
        lines += [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "/workspace/ring.py", line 37, in pass_on',
            f"[rank{rank}]:     dist.recv(buf, src={1 - rank})",
            f"[rank{rank}]: RuntimeError: [/build/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 300000ms for recv operation to complete",
        ]
    assert short(told(tmp_path, lines))[:2] == ("p2p_mismatch", ())


LINES = [f'  File "{SCRIPT}", line {line} in main' for line in (30, 31)]


RECEIVING = [
    HEAD,
    '  File "/opt/venv/lib/python3.11/site-packages/megatron/core/pipeline_parallel/p2p_communication.py", line 480 in recv_backward',
    f'  File "{SCRIPT}", line 26 in main',
]
WRITING = [HEAD, '  File "/usr/lib/python3.11/json/__init__.py", line 238 in dumps', LINES[0]]


@pytest.mark.parametrize(("partner", "level"), [(_in("all_reduce", 31), "medium"), (RECEIVING, "low")])
def test_who_works_while_stages_wait_in_a_receive_holds_them_up_and_surely_so_beside_a_partner_in_a_reduction(
    tmp_path: Path, partner: list[str], level: str
) -> None:
    """One stage of a pipeline always works while others wait for it; members of one stage work together."""
    files: dict[str, str | list[str]] = {f"stack_rank_{r}.txt": RECEIVING for r in range(6)}
    files |= {"stack_rank_6.txt": WRITING, "stack_rank_7.txt": partner}
    assert short(told(tmp_path, files)) == ("stuck_rank", (6,), level)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (
            [
                "futex_wait_cancelable",
                "take_gil (tstate=0x55) at Python/ceval_gil.h:241",
                "THPFunction_apply",
            ],
            (1,),
        ),
        (["__lll_lock_wait () at lowlevellock.c:52", "pthread_mutex_lock", "my_ext::refill()"], (1,)),
        (["__lll_lock_wait () at lowlevellock.c:52", "pthread_mutex_lock", "ncclGroupEnd"], ()),
        (["at::native::add_kernel", "at::_ops::add::call"], ()),
    ],
)
def test_who_waits_for_a_lock_by_its_native_stack_is_held_up(
    tmp_path: Path, frames: list[str], named: tuple[int, ...]
) -> None:
    files: dict[str, str | list[str]] = {f"stack_rank_{r}.txt": _in("all_reduce", 31) for r in (0, 2, 3)}
    stack = [f"#{n}  {frame}" for n, frame in enumerate(frames)]
    files["stack_rank_1.txt"] = ['Thread 1 (LWP 5012 "python"):', *stack]
    report = told(tmp_path, files)
    assert report.verdict is not None and report.verdict.culprit_ranks == named


def test_a_stack_that_a_person_shortened_is_at_the_place_of_a_whole_one(tmp_path: Path) -> None:
    barrier = "    barrier (torch/distributed/distributed_c10d.py:3696)\n    save (lightning/strategies/ddp.py:290)\n"
    text = (
        f"it hangs after validation\n\npid 3300 (rank 0)\n{barrier}    on_end (lightning/callbacks.py:327)\n"
        "pid 3301 (rank 1)\n    backward / _run (torch/autograd/__init__.py:251)\n    step (lightning/module.py:12)\n"
        f"pid 3302 (rank 2), pid 3303 (rank 3)\n{barrier}"
    )
    report = told(tmp_path, {"paste.txt": text})
    assert blame(report) == ("hang", "rank_conditional_collective", (1,))


ABORTED = "RuntimeError: NCCL communicator was aborted on rank {rank}.  Original reason for failure was: [Rank {rank}] Watchdog caught collective operation timeout"


def _aborted(rank: int, call: str, line: int) -> list[str]:
    return [
        "Traceback (most recent call last):",
        f'  File "{SCRIPT}", line {line}, in train',
        f'  File "{TORCH}/{call.rpartition(" ")[0]}", line 200, in {call.rpartition(" ")[2]}',
        ABORTED.format(rank=rank),
    ]


def test_the_watchdogs_one_number_is_of_two_calls_where_tracebacks_show_two(tmp_path: Path) -> None:
    """NCCL's barrier is an all_reduce; the tracebacks without prefixes name their ranks in their messages."""
    waits = [timeout(rank) for rank in range(4)]
    barrier = _aborted(3, "distributed/distributed_c10d.py barrier", 77)
    steps = [
        f"21:4{n}:12 TRAIN batch 0/{n}00 loss 2.0{rank} rank {rank}" for n in (1, 2) for rank in range(4)
    ]
    left = "21:44:20 left train loop after 2287 batches, rank 3"
    backward = _aborted(1, "autograd/__init__.py backward", 58)
    assert short(told(tmp_path / "a", [*waits, *barrier, *backward]))[0] != "network_stall"
    lines = [*steps, left, *waits, *barrier, *backward]
    assert short(told(tmp_path / "b", lines)) == ("rank_conditional_collective", (3,), "low")


@pytest.mark.parametrize(
    ("file", "apart"), [(f"{TORCH}/distributed/checkpoint/utils.py", False), ("/workspace/save.py", True)]
)
def test_steps_of_one_function_of_torch_follow_each_other_and_are_no_mismatch(
    tmp_path: Path, file: str, apart: bool
) -> None:
    """A plan is gathered at rank 0 and scattered from it: who has sent its part waits for the same rank."""
    files: dict[str, str | list[str]] = {}
    for rank, (step, line) in enumerate(
        [("gather_object", 210), ("scatter_object", 233), ("scatter_object", 233)]
    ):
        files[f"stack_rank_{rank}.txt"] = [
            HEAD,
            f'  File "{TORCH}/distributed/distributed_c10d.py", line {2000 + line} in {step}',
            f'  File "{file}", line {line} in reduce_scatter',
            f'  File "{TORCH}/distributed/checkpoint/state_dict_saver.py", line 350 in save',
            f'  File "{SCRIPT}", line 77 in main',
        ]
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    report = told(tmp_path, files)
    assert (short(report)[0] == "rank_conditional_collective") is apart
    case = report.analysis.case
    assert (sites(case.incident, case.statements) is not None) is apart
