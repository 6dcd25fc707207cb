"""A collective that only rank 0 calls, by the program's code in a pasted text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import CLOSED, judged, short, spy, timeout, told

GUARD = "    if accelerator.is_main_process:"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        pytest.param([GUARD, "        accelerator.save_state(out)", "    log()"], True, id="a collective"),
        pytest.param(
            ["12      if dist.get_rank() == 0:", "13          sd = model.state_dict()"],
            True,
            id="numbered lines",
        ),
        pytest.param(
            ["87      if ctx.get_world_rank() == 0:", "88          train.report(metrics)"],
            True,
            id="Ray Train",
        ),
        pytest.param(
            ["93  if gpu == 0:", "96      pred = net(x)", "    <module> (main.py:96)"],
            True,
            id="a stack in it",
        ),
        pytest.param(
            ["93  if gpu == 0:", "96      pred = net(x)", '  File "main.py", line 96 in <module>'],
            True,
            id="a faulthandler's stack in it",
        ),
        pytest.param(["93  if gpu == 0:", "96      pred = net(x)"], False, id="any call"),
        pytest.param(
            [GUARD, "        torch.save(sd, out)", "    dist.barrier()"], False, id="below the branch"
        ),
        pytest.param(
            ["    if not accelerator.is_main_process:", "        dist.barrier()"], False, id="the others"
        ),
        pytest.param(
            [
                "84      def on_end(self, trainer):",
                "85          if not trainer.is_global_zero:",
                "86              return",
                "..      ...",
                "96          trainer.strategy.barrier()",
            ],
            True,
            id="all others return",
        ),
        pytest.param(
            ["  def f():", "    if rank != 0:", "        return", "  def g():", "    dist.barrier()"],
            False,
            id="in another function",
        ),
        pytest.param([GUARD, "        print(acc)  # dist.barrier()"], False, id="a comment"),
        pytest.param(
            [GUARD, "        dist.barrier()", "    else:", "        dist.barrier()"],
            False,
            id="and the others",
        ),
        pytest.param(
            ["# --fsdp full_shard", "if args.local_rank == 0:", "    trainer.save_model(out)"],
            True,
            id="a model that is sharded",
        ),
        pytest.param(
            ["# ddp", "if args.local_rank == 0:", "    trainer.save_model(out)"], False, id="one that is not"
        ),
        pytest.param(
            ["    if args.local_rank == 0:", "        dist.barrier()", "# on 2 nodes"],
            False,
            id="several nodes",
        ),
    ],
)
def test_a_collective_behind_a_guard_is_rank_0s_alone(tmp_path: Path, code: list[str], named: bool) -> None:
    waits = [timeout(rank, op="_ALLGATHER_BASE") for rank in (1, 2, 3)]
    verdict = judged(told(tmp_path, ["torchrun --nproc_per_node=4 train.py", *code, *waits]))
    assert verdict.culprit_ranks == (0,)  # it alone does not time out
    assert (verdict.cause == "rank_conditional_collective") is named
    assert ("only rank 0 calls" in verdict.explanation.lower()) is named


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        ("gather_metrics (train.py:60)", ("rank_conditional_collective", (0,))),
        ("evaluate (train.py:60)", ("early_exit", (1,))),
    ],
)
def test_rank_0s_stack_in_the_guarded_call_outranks_the_quiet_exit_of_another_rank(
    tmp_path: Path, frame: str, answer: tuple[str, tuple[int, ...]]
) -> None:
    code = ["    if dist.get_rank() == 0:", "        gather_metrics(m)"]
    inside = "all_gather_into_tensor (torch/distributed/distributed_c10d.py:3252)"
    left = "[2026-04-03 10:00:00,902] [INFO] [launch.py:351:main] Process 52 exits successfully."
    lines = ["torchrun --nproc_per_node=4 train.py", *code, "[rank 1] pid 52 starts"]
    lines += [*spy("rank 0 (pid 51):", 51, inside, frame, "<module> (train.py:90)"), left]
    assert short(told(tmp_path, [*lines, *(timeout(rank) for rank in (0, 2, 3))]))[:2] == answer


@pytest.mark.parametrize(("again", "named"), [(True, True), (False, False)])
def test_a_call_that_a_traceback_quotes_is_no_second_call(tmp_path: Path, again: bool, named: bool) -> None:
    quoted = ["Traceback (most recent call last):", '  File "train.py", line 14, in <module>']
    lines = [
        "torchrun --nproc_per_node=4 train.py",
        GUARD,
        "        accelerator.save_state(out)",
        "    log()",
    ]
    lines += [*(quoted if again else []), "    accelerator.save_state(out)", *([CLOSED] if again else [])]
    waits = [timeout(rank, op="_ALLGATHER_BASE") for rank in (1, 2, 3)]
    verdict = judged(told(tmp_path, [*lines, *waits]))
    assert ("only rank 0 calls accelerator.save_state" in verdict.explanation.lower()) is named


LOOP = [
    "    for name in names:",
    "        infer(name)",
    "        if rank == 0:",
    "            evaluate(name)",
    "            if mode == 'infer':",
    "                continue",
    "        if world > 1:",
    "            dist.barrier()",
]


@pytest.mark.parametrize(
    ("code", "named"),
    [
        pytest.param(LOOP, (0,), id="rank 0 goes on to the next round"),
        pytest.param([line for line in LOOP if "continue" not in line], (), id="it does not leave"),
        pytest.param(
            [*LOOP[:-2], "    log()", "def other():", "    dist.barrier()"], (), id="in another function"
        ),
    ],
)
def test_rank_0_lacks_a_collective_before_which_it_leaves(
    tmp_path: Path, code: list[str], named: tuple[int, ...]
) -> None:
    report = told(tmp_path, [*(timeout(rank) for rank in (1, 2, 3)), "", "my loop:", "", *code])
    left = judged(report).culprit_ranks == named == (0,) and "takes `continue`" in report.to_text()
    assert left == bool(named)
