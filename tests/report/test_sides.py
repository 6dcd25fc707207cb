"""Whose call is whose: what only the culprit issued is not in another order, and what is not known does not differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hangscope.analysis import analyse
from hangscope.model.conclusion import CallRef
from hangscope.model.rankset import ranks_phrase
from hangscope.report.html.tables import causes
from hangscope.report.pictures.stacks import _marked
from hangscope.report.reasons import of_library_call
from hangscope.report.schema.page import PageFrame, SidePart, Table
from hangscope.report.story import mismatch
from hangscope.report.subject import Subject
from tests.dump_writer import Recorder, world
from tests.report.samples import document, mesh_job
from tests.report.test_pictures import diff_of, page_of, part_of
from tests.report.test_waits import _SAVES
from tests.verdicts import judged


def test_the_culprits_own_call_is_not_where_others_wait(tmp_path: Path) -> None:
    side, *more = page_of(judged(tmp_path, paste=_SAVES)).sides
    assert not more and side.role == "culprit" and side.title == "Rank 0, its collective"
    assert side.call == "all_gather_into_tensor seq 163244"


def test_a_value_that_is_not_known_does_not_differ() -> None:
    subject = Subject(analyse(mesh_job(8, 3)))
    assert subject.verdict is not None
    one, other = CallRef("all_reduce", 9, dtypes=("Float",)), CallRef("all_reduce", 9, dtypes=("Half",))
    one = replace(one, sizes=((4,),))
    subject.verdict = replace(subject.verdict, waiting_call=one, culprit_call=other)
    story = mismatch(subject, ())
    assert story is not None
    marks = {row.cells[0]: row.mark for row in part_of(story, Table).rows}
    assert marks["sizes"] == "" and marks["type"] == "hit"


def test_a_call_that_a_rank_never_issued_is_not_in_another_order(tmp_path: Path) -> None:
    recorders = [Recorder(rank, {**world(4), "1": ("tp", range(4))}) for rank in range(4)]
    for recorder in recorders:
        for _ in range(6):
            recorder.call("all_reduce", line=41).call("broadcast", group="1", line=43)
        if recorder.rank == 2:
            for _ in range(3):
                recorder.call("broadcast", group="1", line=43, state="scheduled")
        else:
            recorder.call("all_reduce", line=41, state="started")
    report = judged(tmp_path, recorders)
    diff = diff_of(report)
    assert report.verdict is not None and report.verdict.cause == "rank_conditional_collective"
    notes = {cell.note for row in diff.rows for cell in row.cells}
    assert diff.differences and "in another order" not in notes


def test_an_undecided_page_does_not_say_that_the_job_hangs() -> None:
    hung = document("hang_8")
    assert hung.verdict is not None
    unknown = replace(hung, verdict=replace(hung.verdict, cause="unknown", alternatives=()), hypotheses=())
    assert "is hung" in causes(unknown)[0][1]
    assert "is hung" not in causes(replace(unknown, status="inconclusive"))[0][1]


def test_frames_are_alike_whatever_part_of_their_path_is_known() -> None:
    whole = PageFrame("main", "/workspace/train/train.py", 71, True)
    frames = (PageFrame("batches", "train.py", 40, True), PageFrame("main", "train.py", 71, True))
    side = _marked(SidePart("culprit", "", "", 1, frames), SidePart("waiting", "", "", 0, (whole,)))
    assert [frame.differs for frame in side.frames] == [True, False]


def test_a_library_call_is_that_of_the_rank_whose_collective_it_makes() -> None:
    hung = document("hang_8")
    assert hung.verdict is not None
    own = CallRef("all_gather", 9)
    verdict = replace(hung.verdict, api="Accelerator.gather", op="all_reduce", seq=9, culprit_call=own)
    whose = f"of {ranks_phrase(verdict.culprit_ranks)}"
    assert of_library_call(verdict) == f"the library call {whose} that makes its own collective"
    same = replace(verdict, culprit_call=replace(own, op="all_reduce"))
    assert of_library_call(same) == "the library call that makes this collective"
