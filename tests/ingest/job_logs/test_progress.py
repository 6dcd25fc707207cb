"""Of many lines of one writer only the last counts, and lines that only look alike are not taken for one writer's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hangscope.ingest.job_logs.last_lines import last_lines
from hangscope.ingest.lines import kept_text
from hangscope.ingest.lines.kept_text import KeptText

FORMS = (
    "[default{rank}]:2026-11-20 15:{minute:02}:{second:02} | INFO | trainer.py:412 | epoch 3 step {step} loss=2.{step}",
    "[rank{rank}]:[I1120 15:{minute:02}:{second:02}.220687360 train.py:1] step {step}",
    "{rank}: step {step}",
    "2026-11-20 15:{minute:02}:{second:02},123 app r{rank}: train step {step} done",
)


def progress_in(windows: list[tuple[int, bytes]]) -> list[Any]:
    return [event for event in last_lines(KeptText(windows)) if event.kind in ("progress", "loop_length")]


@pytest.mark.parametrize("form", FORMS)
def test_each_writer_has_its_own_last_step(form: str) -> None:
    rng = random.Random(form)
    lines, last = [], {}
    for step in range(1000, 1400):
        rank = rng.randrange(10, 14)
        lines.append(form.format(rank=rank, step=step, minute=step // 60 % 60, second=step % 60))
        last[rank] = (step, len(lines))
    data = "\n".join([*lines, ""]).encode()
    cut = data.index(b"\n", len(data) // 2) + 1
    windows = [(1, data[:cut]), (1 + data[:cut].count(b"\n"), data[cut:])]
    events = progress_in(windows)
    writers = last if form != FORMS[3] else {0: max(last.values())}  # a name inside the text is no writer's
    assert [(event.step, event.line) for event in events] == sorted(writers.values())


def test_lines_of_a_form_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    real = kept_text.strip_prefix
    monkeypatch.setattr(kept_text, "strip_prefix", lambda *parts: parsed.append(parts) or real(*parts))
    lines = (
        FORMS[0].format(rank=i % 8, step=1000 + i, minute=i // 60 % 60, second=i % 60) for i in range(2000)
    )
    events = progress_in([(1, "\n".join(lines).encode())])
    assert [event.step for event in events] == list(range(2992, 3000))
    assert len(parsed) == 16  # of each writer the last, and the one before for its pace
    assert {event.pace for event in events} == {8.0}


def test_the_step_of_a_scheduler_is_none_of_the_jobs() -> None:
    lines = [
        "2026-11-20 15:47:03 - INFO - step 2002 | loss 2.19",
        "2026-11-20 15:47:05 - INFO - step 2003 | loss 2.14",
        "slurmstepd: error: *** STEP 6622.0 ON gpu02 CANCELLED AT 2026-11-20T16:18:00 ***",
    ]
    (event,) = progress_in([(1, "\n".join(lines).encode())])
    assert (event.step, event.pace) == (2003, 2.0)


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("rank 2: 312 batches", 312),
        ("[rank 2] loader has 312 batches", 312),
        ("rank 2: len(train_loader) = 312", 312),
        ("rank 2: steps per epoch: 312", 312),
        ("rank 2: 312 batches done", None),
        ("rank 2: 312 batches/s", None),
        ("rank 2: step 312", None),
    ],
)
def test_how_long_a_loop_is(line: str, total: int | None) -> None:
    events = progress_in([(1, line.encode())])
    assert [e.total for e in events if e.kind == "loop_length"] == ([] if total is None else [total])


@pytest.mark.parametrize(
    "line", ["ep 2 finished, 410 its", "epoch 2 done after 410 steps", "410 batches, loader empty"]
)
def test_how_many_steps_a_loop_had_that_ended(line: str) -> None:
    (event,) = progress_in([(1, line.encode())])
    assert event.kind == "progress" and (getattr(event, "done", None), getattr(event, "total", None)) == (
        True,
        410,
    )
