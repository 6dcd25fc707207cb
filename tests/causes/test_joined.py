"""Who did not join, where the store counts and the others' tracebacks show them in it."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, told

FRAME = [
    "{rank}: Traceback (most recent call last):",
    '{rank}:   File "/workspace/train.py", line 9, in <module>',
    "{rank}:     dist.init_process_group('gloo')",
    '{rank}:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2169, in init_process_group',
]
COUNT = "0: torch.distributed.DistStoreError: Timed out after 91 seconds waiting for clients. {came}/4 clients joined."
KEY = "{rank}: torch.distributed.DistStoreError: wait timeout after 90000ms, keys: /default_pg/0//cpu//0/0"


def lines(came: int) -> list[str]:
    begun = [f"{rank}: task {rank} of 4 begins" for rank in range(4)]
    first = [line.format(rank=0) for line in FRAME] + [COUNT.format(came=came)]
    others = [line.format(rank=rank) for rank in (1, 3) for line in (*FRAME, KEY)]
    return [*begun, *first, *others]


def test_the_one_that_is_not_in_the_store_has_not_joined(tmp_path: Path) -> None:
    assert judged(told(tmp_path, lines(3))).culprit_ranks == (2,)


def test_who_did_not_join_is_not_known_where_the_count_is_another(tmp_path: Path) -> None:
    assert judged(told(tmp_path, lines(2))).culprit_ranks == ()
