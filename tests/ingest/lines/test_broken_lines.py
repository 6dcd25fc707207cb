"""Lines that a terminal broke at its edge are put together; tables, progress bars and lines of equal width are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.lines.pasted import repair
from tests.text_lines import timeout, told

WIDTH = 90


def broken(line: str) -> list[str]:
    return [line[i : i + WIDTH] for i in range(0, len(line), WIDTH)]


def test_what_reaches_the_edge_goes_on_in_the_next_line() -> None:
    lines = [
        f"[rank{r}]: a message of no form that is known, whose words go on {'and on ' * 12}" for r in (0, 1)
    ]
    whole = repair("\n".join(part for line in lines for part in broken(line)).encode())[0].decode()
    assert [line.rstrip() for line in whole.split("\n") if line] == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        [f"|   {n}  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |" for n in range(4)],
        [f"step {n} loss 2.33 grad_norm 0.41 tokens per second 4100 memory 61 GiB lr 0.0001 tflops 390.1" for n in range(4)],
        ["  File \"/workspace/train.py\", line 40, in step_of_the_training_loop_with_a_long_name_of_its_own", "    step()"] * 3,
    ],
)  # fmt: skip
def test_lines_of_one_width_stay_apart(lines: list[str]) -> None:
    assert not repair("\n".join(lines).encode())[1]


def test_a_paste_without_a_last_line_feed_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("\n".join(part for r in (0, 1) for part in broken(timeout(r))))
    assert told(tmp_path, {}).verdict is not None


def test_a_line_that_begins_with_a_clock_is_no_rest_of_another() -> None:
    lines = [
        f"[10:17:05.41{n}][worker {n}][I] round 3: mean score 0.05757 over 120 answers" for n in range(6)
    ]
    assert not repair("\n".join(lines).encode())[1]


def test_the_halves_of_a_number_are_joined_without_a_blank() -> None:
    wide = "x" * 80
    text = f"{wide} NumelOut=3\n276800, done\n{wide} NumelOut=34\n5 done\n{wide} NumelOut=4\n4 done\n"
    joined, breaks = repair(text.encode())
    assert breaks == 3 and b"NumelOut=3276800, done" in joined and b"NumelOut=44 done" in joined


def test_a_sentence_wider_than_the_terminal_does_not_hide_its_edge() -> None:
    """A person writes paragraphs of one line; the same line printed twice reaches no edge."""
    lines = [
        f"[rank{r}]: a message of no form that is known, whose words go on {'and on ' * 12}" for r in (0, 1)
    ]
    parts = [part for line in lines for part in broken(line)]
    text = "\n".join(["My job dies after some hundred steps, " + "whatever I try, " * 12, "", *parts])
    whole = repair(text.encode())[0].decode().split("\n")[2:]
    assert [line.rstrip() for line in whole if line] == [line.rstrip() for line in lines]
    twice = [f"{'x' * WIDTH}", "KeyboardInterrupt"] * 2
    assert repair("\n".join(["machine A", *twice]).encode())[1] == 0


def test_blanks_with_which_a_terminal_pads_its_lines_hide_no_edge() -> None:
    lines = [f"[rank{r}]: {'words' * 14} NumelIn=32{r}1648, NumelOut=32{r}1648 {'words' * 9}" for r in (0, 1)]
    parts = [part + " " * 30 for line in lines for part in broken(line)]
    whole = repair("\n".join(parts).encode())[0].decode()
    assert [line.rstrip() for line in whole.split("\n") if line.strip()] == lines
