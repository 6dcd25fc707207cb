"""Ranks of inference workers, from the names of their processes."""

from __future__ import annotations

import pytest

from hangscope.ingest.stacks.threads import ranks_of_titles


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["VLLM::Worker_TP0", "VLLM::Worker_TP1"], [0, 1]),
        (["VLLM::Worker_TP3_EP3"], [3]),
        (["sglang::scheduler_TP5"], [5]),
        (["sglang::scheduler_DP0_TP0_EP0", "sglang::scheduler_DP1_TP1_EP1"], [0, 1]),
        (["VLLM::Worker_PP1_TP0", "VLLM::Worker_PP0_TP0", "VLLM::Worker_PP0_TP1", "VLLM::Worker_PP1_TP1"], [2, 0, 1, 3]),
        (["VLLM::Worker_DP1_TP0", "VLLM::Worker_DP0_TP0", "VLLM::Worker_DP0_TP1", "VLLM::Worker_DP1_TP1"], [2, 0, 1, 3]),
        (["sglang::scheduler_PP1_ATTN_CP0_TP0", "sglang::scheduler_PP0_ATTN_CP0_TP0"], [1, 0]),
    ],
)  # fmt: skip
def test_places_are_ranks(titles: list[str], ranks: list[int]) -> None:
    assert ranks_of_titles(dict(enumerate(titles))) == dict(enumerate(ranks))


@pytest.mark.parametrize(
    "titles",
    [
        ["VLLM::EngineCore_DP0", "VLLM::APIServer", "python train.py", "sglang::detokenizer"],
        ["VLLM::Worker_PP1_TP0"],  # how wide a stage is, nothing tells
        ["VLLM::Worker_PP0_TP0", "VLLM::Worker_PP0_TP1", "VLLM::Worker_PP1_TP1"],
        ["sglang::scheduler_DP0_TP0", "sglang::scheduler_DP1_TP0"],  # replicas, each a world of its own
        [],
    ],
)
def test_what_tells_no_rank(titles: list[str]) -> None:
    assert ranks_of_titles(dict(enumerate(titles))) == {}
