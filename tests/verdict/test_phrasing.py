"""A title is a whole clause of at most 80 characters, and what to do begins with a verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.verdict.phrasing import TITLE, clauses, condensed, imperative
from tests.text_lines import judged, told


def test_a_title_shortens_the_contrast_before_it_drops_it() -> None:
    claim = "Rank 41 called all_gather_into_tensor([64] Float) while the others called reduce_scatter_tensor([512] Float)"
    assert (
        condensed(claim, TITLE) == "Rank 41 called all_gather_into_tensor, the others reduce_scatter_tensor"
    )


def test_a_clause_never_ends_in_a_quotation_or_with_a_preposition() -> None:
    assert clauses(f"The last line is 'AllReduce: {'0x7f ' * 30}'", TITLE).endswith("…")
    assert (
        clauses(f"Rank 3 raised Error: bad value in: {'x' * 80}", TITLE) == "Rank 3 raised Error: bad value"
    )


def test_a_title_that_would_quote_half_a_line_says_that_no_cause_is_shown(tmp_path: Path) -> None:
    line = "2026-02-03 11:42:20 agent.cc:91 Waiting for the placement of 64 actors since 490 seconds, none placed"
    verdict = judged(told(tmp_path, [line]))
    assert "…" not in verdict.title and "'" not in verdict.title and "placement" in verdict.summary


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ("the logs of rank 2", "Collect the logs of rank 2"),
        ("whether rank 2 is alive", "Find out whether rank 2 is alive"),
        ("only if it still runs: its stack", "If it still runs, collect its stack"),
        ("NCCL_DEBUG=INFO of every rank", "Collect NCCL_DEBUG=INFO of every rank"),
        ("a run with USE_LIBUV=0", "Try a run with USE_LIBUV=0"),
        ("kubectl describe pod web-0", "Run kubectl describe pod web-0"),
        ("Take a stack of rank 2", "Take a stack of rank 2"),
    ],
)
def test_what_is_wanted_becomes_a_step(wanted: str, step: str) -> None:
    assert imperative(wanted) == step
