"""Who is drawn to wait for whom: only who is in a call waits in it, and of a rank that was not seen nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from hangscope.api import Report
from hangscope.report.pictures.rank_map import steps_from_root
from hangscope.report.pictures.wait_edges import steps_to_root, wait_graph
from hangscope.report.schema.pictures import WaitPicture
from hangscope.report.subject import Subject
from tests.dump_writer import Recorder, stuck, world
from tests.verdicts import blame, judged

_TIMED_OUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=163244, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1803190 milliseconds before timing out."
_SAVES = [
    'Fine-tuning 7B with --fsdp "full_shard auto_wrap", 4x A100-40G. The training itself runs to the end, then no files appear and half an hour later it dies. At the end of my train.py:',
    "",
    "    trainer.train()",
    "    trainer.save_state()",
    "    if training_args.local_rank == 0:",
    "        trainer.save_model(output_dir=training_args.output_dir)",
    "",
    "100%|##########| 1218/1218 [2:20:02<00:00,  6.90s/it]",
    f"[E ProcessGroupNCCL.cpp:828] [Rank 0] {_TIMED_OUT}",
    "terminate called after throwing an instance of 'std::runtime_error'",
    f"  what():  [Rank 0] {_TIMED_OUT}",
]


def drawn(report: Report) -> WaitPicture | None:
    page = report.document.page
    assert page is not None
    return page.waitfor


def test_nobody_waits_in_the_call_that_only_the_culprit_is_in(tmp_path: Path) -> None:
    report = judged(tmp_path, paste=_SAVES)
    assert blame(report) == ("hang", "rank_conditional_collective", (0,))
    assert drawn(report) is None and "nobody" not in report.to_html()


def test_an_arrow_to_ranks_that_were_not_seen_is_assumed(tmp_path: Path) -> None:
    report = judged(tmp_path, stuck(8, 2)[:5])
    picture = drawn(report)
    assert picture is not None and report.verdict is not None and report.verdict.culprit_ranks == (2,)
    names = {node.id: node for node in picture.nodes}
    arrows = {names[edge.target].ranks: edge.assumed for edge in picture.edges}
    assert arrows["2"] is False and arrows["5-7"] is True
    assert "waits for rank 2." in picture.text[0] and "5-7" not in picture.text[0]


def test_no_rank_of_many_that_were_not_seen_is_a_root(tmp_path: Path) -> None:
    report = judged(tmp_path, stuck(8, 7)[:4])
    picture = drawn(report)
    assert picture is not None and not any(node.root for node in picture.nodes)
    assert picture.text == (
        "Ranks 0-3 are in all_reduce seq 25 on group 0 (default_pg), which waits for its members that were not seen.",
    )
    assert "is marked" not in report.to_html().split('id="waits"')[1].split("</figcaption>")[0]


def test_who_issued_another_collective_under_the_number_is_not_said_to_be_missing_from_it(
    tmp_path: Path,
) -> None:
    recorders = [Recorder(rank, world(4)).call("all_reduce", times=6) for rank in range(4)]
    for recorder in recorders:
        size = 8 if recorder.rank != 3 else 16
        recorder.call("all_reduce", sizes=[[size]], line=40 if recorder.rank != 3 else 44, state="started")
    picture = drawn(judged(tmp_path, recorders))
    assert picture is not None
    assert picture.text[0] == (
        "Ranks 0-2 are in all_reduce seq 7 on group 0 (default_pg), which waits for rank 3, which issued another collective under this number."
    )


def test_every_rank_whose_own_call_lacks_the_culprit_waits_directly(tmp_path: Path) -> None:
    recorders = [Recorder(rank, world(4)).call("all_reduce", times=4) for rank in range(4)]
    for recorder, source in zip(recorders[1:], (0, 0, 2), strict=True):
        recorder.recv(source, state="started")
    recorders[2].send(3, state="scheduled")
    report = judged(tmp_path, recorders)
    assert report.verdict is not None and report.verdict.culprit_ranks == (0,)
    subject = Subject(report.analysis)
    assert steps_from_root(subject, steps_to_root(*wait_graph(subject))) == {1: 1, 2: 1, 3: 2}
