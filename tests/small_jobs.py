"""Small jobs of one loop, in which one rank does something else: made for any number of ranks and any odd one among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from hangscope.api import Report
from tests.dump_writer import Recorder, job
from tests.verdicts import judged

#: (number of ranks, the odd one)
ODD_ONES = st.integers(3, 6).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))

Last = Callable[[Recorder, bool], object]


def loop(size: int, steps: int = 12) -> list[Recorder]:
    """Return ranks that have made `steps` rounds of an all_reduce and an all_gather together."""
    recorders = job(size)
    for recorder in recorders:
        for _ in range(steps):
            due(recorder, "completed").call("all_gather", outputs=[[8]] * size, line=43)
    return recorders


def due(recorder: Recorder, state: str = "started", **other: Any) -> Recorder:
    """Make the call that comes next in the loop, as the others do or with another size or type."""
    return recorder.call("all_reduce", **{"sizes": [[1024]], "line": 41, "state": state, **other})


def frozen(recorders: list[Recorder], odd: tuple[int, ...], last: Last, **logs: list[str]) -> Report:
    """Return the report on a job whose ranks end with `last`, which is told whether a rank is one of the odd ones."""
    for recorder in recorders:
        last(recorder, recorder.rank in odd)
    with TemporaryDirectory() as folder:
        return judged(Path(folder), recorders, **logs)
