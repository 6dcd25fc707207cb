"""Lines of any program: those that are alike together, with their kinds, their ranks and when they were printed."""

from __future__ import annotations

from hangscope.ingest.excerpts.line_groups import BAR, ERROR, OTHER, WAIT, LineGroup, line_groups


def read(*lines: str) -> list[LineGroup]:
    return list(line_groups(enumerate(lines, 1)))


def test_lines_that_differ_in_numbers_are_one_group_with_its_span() -> None:
    (group,) = read(*(f"10:0{n}:05 core {n} is waiting for its peers" for n in range(4)))
    assert (group.kind, group.count, group.numbers) == (WAIT, 4, (1, 2, 3, 4))
    assert (group.ended or 0) - (group.began or 0) == 180


def test_what_several_ranks_printed_is_kept_with_who_and_of_how_many() -> None:
    (group,) = read("init rank: 0/4 uses card 0", "init rank: 2/4 uses card 2", "init done")
    assert (group.kind, group.ranks, group.size) == (OTHER, (0, 2), 4)


def test_a_bar_of_a_data_set_is_one_and_a_bar_of_steps_is_none() -> None:
    found = read(
        "Map (num_proc=4):  70%|###   | 70/100 [01:00<00:20, 1.2 examples/s]",
        " 45%|##   | 45/99 [01:00<00:20, 1.2it/s]",
    )
    assert [(g.kind, g.text) for g in found] == [
        (BAR, "Map (num_proc=4): 70/100 [01:00<00:20, 1.2 examples/s]")
    ]


def test_words_of_failure_that_report_none_are_no_errors() -> None:
    assert not read(
        "0 errors found",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "Your job may now hang or fail.",
        "    raise TimeoutError",
    )
    assert [g.kind for g in read("h:1:2 [0] NET/X plugin initialization failed")] == [ERROR]
