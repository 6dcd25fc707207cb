"""Lines that a minority of the ranks printed: which count, and which are habits, reports or consequences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.explain.statements.outlier_lines import TELLING, OutlierLine, outlier_lines
from hangscope.ingest.job_logs.last_lines import Printed, last_lines
from hangscope.ingest.lines.kept_text import KeptText
from tests.conftest import analyze
from tests.text_lines import short, told
from tests.verdicts import TIMED_OUT

ORDINARY = ["step 1 loss 0.5", "step 2 loss 0.4"]


def _printed(logs: dict[int, list[str]]) -> list[Printed]:
    """Return what the ranks printed, each into its own log."""
    found = []
    for rank, lines in logs.items():
        windows = [(1, "".join(f"{line}\n" for line in lines).encode())]
        events = last_lines(KeptText(windows, f"rank_{rank}.log", own=True))
        found += [replace(event, rank=rank) for event in events if isinstance(event, Printed)]
    return found


def _told(extra: dict[int, list[str]], ranks: int = 4) -> list[OutlierLine]:
    logs = {rank: [*ORDINARY, *extra.get(rank, [])] for rank in range(ranks)}
    return list(outlier_lines(_printed(logs), set(range(ranks)), {}))


@pytest.mark.parametrize(
    "line", ["loss is nan, skipping this step", "0 graphs after filtering", "received signal 10", "auc nan"]
)
def test_a_line_that_one_rank_alone_printed_tells_whatever_its_words(line: str) -> None:
    (odd,) = _told({2: [line]})
    assert odd.ranks == (2,) and odd.how == "only" and odd.score >= TELLING
    assert odd.says() == f"only rank 2 printed this: {line}"


def test_a_line_that_all_ranks_printed_implicates_nobody() -> None:
    assert _told({rank: ["loss is nan, skipping this step"] for rank in range(4)}) == []


def test_numbers_and_names_are_masked_and_nan_is_not() -> None:
    same = {rank: [f"rank {rank} epoch 1 saved '/ckpt/{rank}.pt' loss {rank}.5"] for rank in range(4)}
    assert _told(same) == []
    assert [odd.ranks for odd in _told({**same, 3: ["rank 3 epoch 1 saved '/ckpt/3.pt' loss nan"]})] == [
        (3,),
        (3,),
    ]


def test_what_a_rank_prints_again_and_again_is_its_habit() -> None:
    assert _told({2: ["tokens per second 5"] * 6}) == []


def test_rank_0_reports_for_all_but_not_where_it_names_itself() -> None:
    assert _told({0: ["mean loss 0.3 lr 0.1"]}) == []
    assert _told({0: ["rank 0 received signal 10"]})[0].score >= TELLING


def test_one_value_among_equal_ones_is_odd() -> None:
    (odd,) = _told({rank: [f"{77 if rank == 2 else 104} samples"] for rank in range(4)})
    assert odd.ranks == (2,) and odd.how == "value"


def test_a_value_that_was_one_on_all_ranks_before_tells_where_it_differs() -> None:
    same = ["generation 3: score 0.5, best is 1", "generation 4: score 0.6, best is 1"]
    other = [same[0], "generation 4: score 0.6, best is 2"]
    (odd,) = _told({rank: other if rank == 1 else same for rank in range(4)})
    assert odd.ranks == (1,) and odd.how == "value" and odd.telling


def test_a_value_of_each_rank_s_own_tells_nothing() -> None:
    assert (
        _told({rank: [f"batch 1: {4 + rank} rows", f"batch 2: {7 - rank} rows"] for rank in range(4)}) == []
    )


def test_what_a_rank_prints_after_it_gave_up_is_no_evidence() -> None:
    logs = {rank: [*ORDINARY, *(["handler: bye"] if rank == 1 else [])] for rank in range(4)}
    assert outlier_lines(_printed(logs), set(range(4)), {(1, "rank_1.log"): 3}) == ()


@pytest.mark.parametrize(
    ("line", "torn"),
    [
        ("rank 2 saved the sha", True),
        ("rank 2", True),
        ("rank 2 saved the shard rank 2 saved the shard of the model", True),
        ("rank 2 saved the shrd of the model", True),
        ("rank 2 saved [0, 7] the shard of the model", True),
        ("rank 2 skipped the shard of the model", False),
        ("rank 2 saved the shard of the optimizer", False),
    ],
)
def test_a_damaged_copy_counts_as_the_line_that_the_others_printed(line: str, torn: bool) -> None:
    whole = {rank: [f"rank {rank} saved the shard of the model"] for rank in range(4)}
    assert any(odd.telling for odd in _told({**whole, 2: [line]})) is not torn


def test_a_line_with_a_word_of_another_one_is_no_copy() -> None:
    logs = {rank: [f"rank {rank}: vocabulary of 300 words"] for rank in range(3)}
    logs[0].append("fetch - downloading vocab.txt")
    logs[2].append("fetch - downloading merges.txt")
    odd = [o for o in _told(logs) if "merges" in o.text]
    assert [(o.ranks, o.how) for o in odd] == [((2,), "only")]


def test_a_glued_copy_tells_nothing_however_often_the_rank_printed_the_line_itself() -> None:
    steps = {rank: [f"rank {rank} step {n} loss 1.5" for n in range(5)] for rank in range(3)}
    assert not any(
        odd.telling for odd in _told({**steps, 1: [*steps[1], "rank 1 strank 1 step 4 loss 1.5"]}, 3)
    )


def _costs(*odd: tuple[int, int]) -> dict[int, list[str]]:
    """Return a line of measured costs per rank: each rank has its own a little off; `odd` are (rank, cost of its own)."""
    usual = {0: 304, 1: 309, 2: 507, 3: 303}
    own = {rank: cost - 2 for rank, cost in usual.items()} | dict(odd)
    return {
        rank: [f"costs {' '.join(str(own[r] if r == rank else cost) for r, cost in usual.items())}"]
        for rank in usual
    }


def test_the_number_that_is_furthest_off_sets_its_rank_apart() -> None:
    (odd,) = _told(_costs((3, 704)))
    assert odd.ranks == (3,) and "printed 704 where the others printed 303" in odd.note and odd.telling
    assert not _told(_costs()) and not _told(_costs((3, 704), (1, 800)))


def test_what_machines_measure_is_no_value() -> None:
    assert not _told({rank: [f"ready, rss={305 + (rank == 2)}MB in {4 + (rank == 2)}s"] for rank in range(4)})


def test_a_value_in_other_words_is_told_with_theirs() -> None:
    (odd,) = _told({rank: [f"keys={2 - (rank == 2)}: a{'' if rank == 2 else ' b'}"] for rank in range(4)})
    assert odd.ranks == (2,)


def test_files_each_of_one_rank_by_its_lines_are_compared_whatever_their_names(tmp_path: Path) -> None:
    """The record of one rank states another size than those of all others, and all the time before stated the same."""
    for rank, name in enumerate(("one", "two", "three")):
        sizes = [1500, 1500, 1500, 24000 if rank == 1 else 1500]
        lines = [
            f'{{"event": "index", "round": {n}, "rows": {size}, "rank": {rank}}}'
            for n, size in enumerate(sizes)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    found = analyze(tmp_path).analysis.case.statements.outlier_lines
    assert [(line.ranks, line.how, line.telling) for line in found] == [((1,), "value", True)]


def test_in_one_log_the_rank_that_lacks_the_last_line_of_all_others_is_the_one_they_wait_for(
    tmp_path: Path,
) -> None:
    """Each line names its rank behind the same words, the first ones that of every rank."""
    lines = [f"[io.py:61] >> [Rank {rank}] staging done, 14.{rank} GB" for rank in range(8)]
    lines += [f"[io.py:88] >> [Rank {rank}] shard write took 17.{rank}s" for rank in range(8) if rank != 5]
    lines += [f"[rank{rank}]: {TIMED_OUT}" for rank in (0, 1, 4, 7)]
    assert short(told(tmp_path, lines))[:2] == ("stuck_rank", (5,))


def test_a_sentence_behind_a_tag_that_several_ranks_have_is_a_programs(tmp_path: Path) -> None:
    """`[rank 2] ...` reads like what people write; frames of C++ and torch's remarks on errors are nobody's lines."""
    lines = [f"[rank {rank}] epoch 0 step 310 loss 1.9{rank}" for rank in range(4)]
    lines.append("[rank 2] epoch 0 finished after 311 batches, reducing train metrics")
    lines += ["[rank3]:frame #0: c10::Error::Error(c10::SourceLocation) + 0x80 (0x7f3c in libc10.so)"]
    lines += [f"[rank{rank}]: {TIMED_OUT}" for rank in (0, 1, 3)]
    found = told(tmp_path, lines).analysis.case.statements.outlier_lines
    assert [(line.ranks, "finished after" in line.text) for line in found if line.how == "only"] == [
        ((2,), True)
    ]


@pytest.mark.parametrize(("first", "named"), [(612, [(0,)]), (613, [])])
def test_whose_last_line_is_an_earlier_one_of_the_same_words_is_behind(
    first: int, named: list[object]
) -> None:
    """The excerpts of the ranks begin at other lines, so that how often each line is there shows nothing."""
    logs = {
        rank: ["batch 611 loss 0.3", "batch 612 start", "batch 612 loss 0.2", "batch 613 start"]
        for rank in range(4)
    }
    logs[0] = [f"batch {first - 1} loss 0.4", f"batch {first} start", f"batch {first} loss 0.2"]
    del logs[3][:1]
    found = outlier_lines(_printed(logs), set(range(4)), {})
    assert [line.ranks for line in found if line.lacks_the_last] == named
