"""The measured sizes of aborted gloo receives, and who of a pair is named."""

from __future__ import annotations

import pytest

from hangscope.explain.statements.gloo_sizes import AbortedPair, has_fewer_rows, part_of
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.incident import CallKind


@pytest.mark.parametrize(
    ("op", "elements", "dtype", "members", "part"),
    [
        ("all_reduce", 100, "Float", 2, 100),
        ("all_reduce", 1000, "Float", 3, 668),
        ("all_reduce", 1000, "Float", 4, 500),
        ("all_reduce", 1001, "Float", 4, 504),
        ("all_reduce", 10_000_000, "Float", 2, 1_000_000),
        ("all_reduce", 10_000_000, "Float", 3, 1_025_644),
        ("all_reduce", 1000, "Double", 3, 1336),
        ("all_reduce", 100, "Half", 3, 34),
        ("reduce", 1000, "Float", 4, 500),
        ("all_gather", 1001, "Float", 4, 2002),
        ("all_gather_into_tensor", 9, "Float", 2, 18),
        ("broadcast", 1000, "Float", 4, 4000),
        ("send", 1000, "Float", 4, None),
    ],
)
def test_gloo_sends_parts_of_these_sizes(
    op: str, elements: int, dtype: str, members: int, part: int | None
) -> None:
    kind = CallKind(op, "gloo", ((elements,),), input_dtypes=(dtype,))
    assert part_of(kind, members) == part


def _printed(rank: int, text: str) -> Printed:
    return Printed(
        f"{rank}.log", 1, text, rank=rank, templates=("batch #: # rows",), counts=(4,), numbers=(1,), texts=(text,), earlier=("",), behind=(0,)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("usual", "own", "fewer"), [(8, 5, True), (16, 16, True), (8, 6, False), (7, 5, False)]
)
def test_printed_sizes_show_which_of_two_messages_is_the_usual_one(usual: int, own: int, fewer: bool) -> None:
    aborted = GlooSizeMismatch("2.log", 9, "512 vs 320", rank=2, received=512, expected=320)
    lines = [_printed(rank, f"batch 7: {own if rank == 2 else usual} rows") for rank in range(4)]
    assert has_fewer_rows(AbortedPair(2, (1,), (), (), aborted), lines) is fewer
