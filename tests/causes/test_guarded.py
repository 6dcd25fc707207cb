"""A collective that only rank 0 calls, by the program's code in a pasted text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, timeout, told

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
