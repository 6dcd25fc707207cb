"""A short text as a whole: its stage, the sizes that it states, its most telling line, a pattern that breaks off."""

from __future__ import annotations

import pytest

from hangscope.ingest.excerpts.excerpt import Excerpt, excerpt
from hangscope.ingest.lines.kept_text import KeptText


def read(text: str) -> Excerpt:
    found = excerpt(KeptText([(1, text.encode())], "train.log"), len(text.encode()))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("[I socket.cpp:725] [c10d] The client socket has connected to [w-0]:29500", "store"),
        ("h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init START", "communicator"),
        ("INFO Loading checkpoint shards: 50%", "loading"),
        ("INFO Capturing CUDA graphs", "warming up"),
        ("Train:   0%|          | 0/100 [00:00<?, ?it/s]", "first step"),
        ("***** Running Evaluation *****", "validation"),
        ("INFO Saving model checkpoint to out/checkpoint-50", "saving"),
        ("[2026-08-11 01:52:21 TP0] Prefill batch, #new-seq: 1", "serving"),
        ("INFO calling destroy_process_group", "shutting down"),
        ("INFO loss 1.25", ""),
    ],
)
def test_the_last_stage_that_lines_show(line: str, stage: str) -> None:
    assert read(f"INFO 10:00:00 hello\n{line}\n").stage == stage


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("torchrun --nnodes=2 --nproc_per_node=8 train.py", (16,)),
        ("initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8", (8,)),
        ("  (rank=8, size=16, local=[127.0.0.1])", (16,)),
        ("DEBUG world_size=4 rank=0", (4,)),
        ("++trainer.num_nodes=1 ++trainer.devices=3", (3,)),
        ("torchrun --nproc_per_node=8 --nnodes=1:4 train.py", ()),  # elastic: not stated
        ("tensor size=16 and shape (3, 4)", ()),
        ("[rank7]: step 10", ()),  # the highest rank seen states nothing
    ],
)
def test_only_a_statement_is_a_size(text: str, sizes: tuple[int, ...]) -> None:
    assert read(text + "\n").sizes == sizes


def test_the_telling_line_is_a_programs_own_and_not_the_reporters() -> None:
    found = read("10:00:00 INFO start\n10:00:01 ERROR worker failed\n\nStuck here for hours, please help\n")
    assert (found.text, found.complaint) == (
        "10:00:01 ERROR worker failed",
        "Stuck here for hours, please help",
    )


def test_what_no_longer_follows_is_a_broken_pattern() -> None:
    turns = "".join(
        f"r{r} group {g}: {what}\n" for g in (1, 2) for what in ("created", "done") for r in (0, 1)
    )
    found = read(turns + "r0 group 3: created\nr1 group 3: created\nslurmstepd: error: CANCELLED\n")
    assert "done" in found.broken and "group 3: created" in found.broken
    assert not read(turns).broken


@pytest.mark.parametrize(
    ("slowest", "told"),
    [(4120.5, "forward-backward takes 812 ms on the fastest and 4120 ms on the slowest"), (900.0, "")],
)
def test_a_timer_that_differs_between_ranks_is_told(slowest: float, told: str) -> None:
    text = f"    forward-backward ......: (812.11, {slowest:.2f})\n    optimizer .............: (0.10, 9.20)\n iteration 901/ 90000 | loss 1.2\n"
    assert told in read(text).pace and bool(told) == bool(read(text).pace)
