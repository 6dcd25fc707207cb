"""What the parts of the page are called: sides, columns, states, boxes and tables agree with what is in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hangscope.align.waitgraph import Host, Instance
from hangscope.analysis import analyse
from hangscope.model.conclusion import CallRef
from hangscope.model.frames import Frame
from hangscope.report.html import tables
from hangscope.report.html.first_screen import FirstScreen, _fork
from hangscope.report.html.page import Page, render_html
from hangscope.report.html.tables import diff_list, stack_rows
from hangscope.report.pictures.rank_map import rank_map, steps_from_root
from hangscope.report.pictures.stacks import _both_marked, sides
from hangscope.report.schema.page import PageFrame, SidePart
from hangscope.report.schema.pictures import CallDiff, DiffCell, DiffClass, DiffRow, Moment, StripData
from hangscope.report.subject import Subject
from tests.dump_writer import Recorder, stuck, world
from tests.report.samples import document, mesh_job
from tests.report.test_pictures import diff_of, map_of, page_of
from tests.text_lines import timeout, told
from tests.verdicts import judged

OUTER, INNER = PageFrame("step", "train.py", 12, True), PageFrame("wait", "torch/x.py", 3, False)


def _library(line: int) -> PageFrame:
    return PageFrame("forward", "/opt/lib/site-packages/qwen/moe.py", line, False)


def test_a_fork_inside_of_a_library_is_shown() -> None:
    both = (SidePart("culprit", "Rank 1", "", 1, (INNER, _library(241), OUTER)),
            SidePart("waiting", "Rank 3", "", 3, (INNER, _library(236), _library(178), OUTER)))  # fmt: skip
    left, right = _both_marked(*both)
    assert [f and f.line for f in (_fork(left.frames), _fork(right.frames))] == [241, 178]
    apart = (_library(241), INNER, _library(209), replace(OUTER, line=209))
    (own, _) = _both_marked(replace(both[0], frames=apart), both[1])
    assert _fork(own.frames) == replace(OUTER, line=209, differs=True)
    data = replace(page_of(document("hang_8")), sides=(left, right))
    places = FirstScreen(replace(document("hang_8"), verdict=None), data).places
    assert [[f.line for f in side.frames] for side, _ in places] == [[241, 12], [178, 12]]


def test_the_first_frame_of_a_fork_is_not_folded() -> None:
    sample = document("stacks_1024")
    branch = replace(
        sample.stacks[1], depth=1, frames=tuple(Frame("f", "torch/nn/x.py", n) for n in range(1, 9))
    )
    rows = stack_rows(replace(sample, stacks=(sample.stacks[0], branch)))
    assert rows is not None
    assert [line for line, _ in rows.rows[1][3]] == ["x.py:1 in f", "… 6 frames of libraries", "x.py:8 in f"]
    other = replace(
        branch, depth=0, frames=(*branch.frames[:3], Frame("f", "torch/nn/x.py", 20), *branch.frames[4:])
    )
    rows = stack_rows(replace(sample, stacks=(replace(branch, depth=0), other)))
    assert rows is not None
    assert [[line for line, _ in row[3] if ".py" in line] for row in rows.rows] == [
        ["x.py:4 in f", "x.py:8 in f"],
        ["x.py:20 in f", "x.py:8 in f"],
    ]


def test_a_bar_is_explained_only_where_one_is_drawn() -> None:
    sample = document("hang_8")
    assert sample.page is not None
    alike = tuple(SidePart(role, "", "", None, (OUTER,)) for role in ("culprit", "waiting"))
    for shown, is_drawn in (
        (alike, False),
        (_both_marked(alike[0], replace(alike[1], frames=(INNER,))), True),
    ):
        page = render_html(replace(sample, page=replace(sample.page, sides=shown)))
        assert ("A bar marks" in page) is is_drawn


def test_a_side_is_all_of_its_ranks_and_shows_the_frames_of_one_that_left_some() -> None:
    subject = Subject(analyse(mesh_job(8, 3)))
    assert subject.verdict is not None
    waiting = CallRef("all_reduce", 9)
    subject.verdict = replace(subject.verdict, waiting_call=waiting, in_call=(0, 1, 2, 4, 5), seq=None)
    subject.incident.ranks[2].threads = [("MainThread", (Frame("step", "train.py", 12),))]
    subject.graph.open_calls.clear()
    side = sides(subject)[-1]
    assert side.title == "Ranks 0-2, 4 and 5, waiting (frames of rank 2)"
    assert [(frame.file, frame.line) for frame in side.frames] == [("train.py", 12)]


def test_a_side_says_what_it_last_enqueued_and_where() -> None:
    titles = [side.title for side in page_of(document("stuck")).sides]
    assert titles[0] == "Rank 3, last enqueued on group tp0 (TENSOR)", titles


def test_a_line_that_is_not_known_is_no_line_0() -> None:
    sample = document("hang_8")
    assert sample.page is not None and sample.verdict is not None
    unknown = SidePart("culprit", "Rank 3", "", 3, (PageFrame("pin_memory", "torch/_tensor.py", 0, True),))
    page = render_html(replace(sample, page=replace(sample.page, sides=(unknown,))))
    assert "_tensor.py</b>" in page and "_tensor.py:0" not in page


def test_ranks_wait_directly_in_each_collective_that_waits_for_the_root() -> None:
    """Two collectives wait for rank 3, and the verdict names one of them."""
    subject = Subject(analyse(mesh_job(16, 3)))
    assert subject.verdict is not None
    subject.verdict = replace(subject.verdict, in_call=(0,))
    one, other, third = (Instance(gid, 40) for gid in (0, 1, 2))
    after = {one: Host(3), other: Host(3), Host(0): one, Host(1): other, third: Host(0), Host(8): third}
    assert steps_from_root(subject, after) == {0: 1, 1: 1, 8: 2}


def test_ranks_of_which_only_some_left_a_log_are_not_all_unseen(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), timeout(1), "[rank2]: step 9"], world_size=4)
    subject = Subject(report.analysis)  # type: ignore[arg-type]
    found = rank_map(subject, ())
    assert found is not None
    assert {row.role: row.label for row in found.legend}["unseen"] == "no usable dump; of some a log or stack"
    assert map_of(report).legend == found.legend


def test_a_collective_that_no_line_names_is_drawn_dashed(tmp_path: Path) -> None:
    sample = document("hang_8")
    assert sample.page is not None and sample.page.waitfor is not None
    picture = sample.page.waitfor
    nodes = tuple(replace(node, assumed=node.kind == "call") for node in picture.nodes)
    page = render_html(replace(sample, page=replace(sample.page, waitfor=replace(picture, nodes=nodes))))
    assert 'class="node call assumed"' in page
    assert 'class="node call assumed"' not in render_html(sample)


def test_boxes_that_are_not_drawn_are_counted() -> None:
    sample = document("hang_512")
    assert sample.page is not None and sample.page.waitfor is not None
    page = render_html(
        replace(sample, page=replace(sample.page, waitfor=replace(sample.page.waitfor, left_out=17)))
    )
    drawn_boxes = len(sample.page.waitfor.nodes)
    assert (
        f"The first {drawn_boxes} of {drawn_boxes + 17} boxes" in page
        or "17 more boxes are not drawn" in page
    )


def test_a_column_without_collectives_says_so_in_its_head(tmp_path: Path) -> None:
    report = judged(tmp_path, [*stuck(4, 3)[:3]])
    diff = diff_of(report)
    empty = [c.standing for c in diff.classes if c.ranks == "3"] or [c.standing for c in diff.left_out]
    assert empty == ["no dump; none of its collectives is known"]
    assert all(not cell.note for row in diff.rows for cell in row.cells if cell.mark == "unseen")


def test_classes_in_the_same_collective_are_one_in_the_note(tmp_path: Path) -> None:
    recorders = [Recorder(rank, world(8)) for rank in range(8)]
    for recorder in recorders:
        recorder.call("all_reduce", line=40 + recorder.rank, times=3)
        if recorder.rank != 5:
            recorder.call("all_reduce", line=60, state="started")
    diff = diff_of(judged(tmp_path, recorders))
    assert [c.standing for c in diff.left_out] == ["in all_reduce seq 4 on group 0 (default_pg)"]
    assert sum(c.count for c in (*diff.classes, *diff.left_out)) == 8 and not diff.ranks_left_out


def test_a_cell_of_another_seq_says_which_one_the_others_call_it(tmp_path: Path) -> None:
    recorders = [Recorder(rank, world(4)) for rank in range(4)]
    for recorder in recorders:
        recorder.call("all_reduce", line=41, times=6)
        if recorder.rank != 2:
            recorder.call("broadcast", line=43)
        recorder.call("all_reduce", line=47, state="scheduled" if recorder.rank == 2 else "started")
    notes = [cell.note for row in diff_of(judged(tmp_path, recorders)).rows for cell in row.cells]
    assert "seq 8 of the others" in notes


def test_of_many_differences_that_are_over_only_the_rows_themselves_are_listed() -> None:
    alike = DiffRow((DiffCell("same", "done"), DiffCell("same", "done")))
    extra = DiffRow((DiffCell("same"), DiffCell("extra", "done")), 1)
    ends = DiffRow((DiffCell("same", "pending"), DiffCell("not_reached")), 2)
    classes = (DiffClass("0", 1, "waiting", "", 0), DiffClass("1", 1, "culprit", "", 1))
    rows = (*[alike] * 9, extra, *[alike] * 9, ends)
    for differences, listed in ((2, [7, 5, 5, 3]), (9, [9, 1, 7, 3])):
        runs = diff_list(CallDiff(classes, (), rows, 0, differences)).runs
        assert [len(run) for run, _ in runs] == listed


def test_groups_with_sends_only_are_counted_by_them(tmp_path: Path) -> None:
    groups = {**world(4), "1": ("pp", (0, 1)), "2": ("pp", (2, 3))}
    recorders = [Recorder(rank, groups) for rank in range(4)]
    for recorder in recorders:
        recorder.call("all_reduce", times=2)
        name = "1" if recorder.rank < 2 else "2"
        for _ in range(3):
            (recorder.recv if recorder.rank % 2 else recorder.send)(recorder.rank ^ 1, name)
        recorder.call("all_reduce", state="started" if recorder.rank else "scheduled")
    rows = {row.cells[0]: row.cells[4] for row in tables.groups(judged(tmp_path, recorders).document).rows}
    assert rows["1"] == "0-1: 3, 3"


def test_a_table_says_how_much_of_its_list_it_has() -> None:
    large = document("hang_512")
    assert tables.ranks(document("hang_8")).title == "All ranks, 16"
    rows = tuple(replace(large.ranks[0], ranks=None, rank=rank, count=None) for rank in range(512))
    assert tables.ranks(replace(large, ranks=rows)).title == "All ranks, 40 of 512"
    assert re.fullmatch(r"Process groups, 40 of \d+", tables.groups(large).title)


def test_only_what_has_several_values_can_be_chosen() -> None:
    assert [name for name, _ in Page(document("hang_8")).filters] == ["in", "state", "host"]
    assert Page(document("empty")).filters == []


def test_moments_of_one_time_are_one_point() -> None:
    sample = document("hang_8")
    at = [("end", 5, "exit code 1"), ("until", 5, "end of the job"), ("stall", 1, "first rank blocked")]
    moments = tuple(Moment(kind, str(seconds * 10**9), text) for kind, seconds, text in reversed(at))
    strip = StripData(moments, None, None, True, "ended")
    first = FirstScreen(sample, replace(page_of(sample), strip=strip))
    assert [text for _, _, text, _ in first.moments] == ["first rank blocked", "end of the job; exit code 1"]
    assert first.timeline is not None and len(first.timeline.marks) == 2


def test_hosts_are_on_the_page_where_no_culprits_host_is_known() -> None:
    sample = document("hang_8")
    assert sample.verdict is not None
    nobody = replace(sample.verdict, culprits=(), culprit_ranks=())
    assert "hosts: gpu0000, gpu0001" in render_html(replace(sample, verdict=nobody))
    assert ">hosts: " not in render_html(sample)
