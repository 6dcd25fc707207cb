"""What the ranks printed themselves, aligned over ranks: evidence of its own, and a weak one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hangscope.model.conclusion import Verdict
from tests.conftest import analyze

TIMEOUT = "[rank{r}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 60000ms for recv operation to complete"


def judged(folder: Path, own: Mapping[int, list[str]]) -> tuple[str, Verdict | None]:
    """Return status and verdict on one file per rank: what it printed, and that it timed out."""
    for rank, lines in own.items():
        (folder / f"rank{rank}.log").write_text("\n".join([*lines, TIMEOUT.format(r=rank)]) + "\n")
    report = analyze(str(folder))
    return report.status, report.verdict


def course(rank: int, *last: str) -> list[str]:
    """Return what a rank prints in a loop, and then."""
    return [f"fetched shard {n} of {rank}, {4000 + 3 * n} tokens" for n in range(6)] + [*last]


def test_a_rank_whose_output_ends_earlier_is_named_as_a_guess(tmp_path: Path) -> None:
    own = {r: course(r, "packing sequences", f"loss is {2.1 + r}") for r in range(4)}
    own[2] = course(2, "packing sequences")
    status, verdict = judged(tmp_path, own)
    assert status == "hang" and verdict is not None
    assert (verdict.culprit_ranks, verdict.confidence) == ((2,), "low")


def test_a_rank_that_prints_another_line_last_is_named_as_a_guess(tmp_path: Path) -> None:
    own = {r: course(r, "packing sequences") for r in range(4)}
    own[3] = course(3, "refreshing the tokenizer cache")
    status, verdict = judged(tmp_path, own)
    assert status == "hang" and verdict is not None
    assert (verdict.culprit_ranks, verdict.confidence) == ((3,), "low")


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({0: course(0, "logged to disk"), **{r: course(r) for r in (1, 2, 3)}}, id="rank 0 prints more"),
        pytest.param({r: course(r, *["saved", "uploaded"][: 2 * (r == 0)], "evaluating") for r in range(4)}, id="rank 0 prints more in between"),
        pytest.param({r: course(r, ("left", "right")[r % 2], "evaluating") for r in range(4)}, id="half against half in between"),
        pytest.param({r: course(r, f"\r 4%|# | {r}/99 [00:0{r}<01:00]") for r in range(4)}, id="bars"),
        pytest.param({r: course(r, ("left", "right")[r % 2]) for r in range(4)}, id="half against half"),
        pytest.param({0: course(0), 1: course(1, "on its own")}, id="two ranks"),
        pytest.param({r: course(r, f"took {r}.25 s") for r in range(4)}, id="numbers"),
    ],
)  # fmt: skip
def test_what_healthy_ranks_print_differently_names_nobody(
    tmp_path: Path, own: Mapping[int, list[str]]
) -> None:
    status, verdict = judged(tmp_path, own)
    assert status == "hang" and verdict is not None
    assert verdict.culprit_ranks == ()
