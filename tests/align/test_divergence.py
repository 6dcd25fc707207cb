"""The first call of a group on which its members do not agree."""

from __future__ import annotations

from hangscope.align.divergence import first_mismatch
from hangscope.align.matching import hard_keys
from tests.align.test_frontier import views
from tests.dump_writer import job


def test_two_short_histories_may_differ_where_the_largest_class_has_no_call() -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=5)
        if recorder.rank > 1:
            recorder.call("all_reduce", dtype="Half" if recorder.rank == 2 else "Float", state="scheduled")
    (view,) = views(recorders)
    mismatch = first_mismatch(view, hard_keys(view.kinds))
    assert mismatch is not None and (mismatch.seq, mismatch.partitions) == (6, ((2,), (3,)))
