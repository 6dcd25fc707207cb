"""What the page and the text say where a fact is not known: the job's size, the end of a collective, whose frames are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.report.html.page import Page
from tests.conftest import analyze
from tests.dump_writer import stuck
from tests.nccl_jobs import write_incident
from tests.text_lines import judged, timeout, told
from tests.verdicts import judged as judged_dumps

STACK = "\n".join(
    [
        "Process 8{0}: python train.py",
        'Thread 8{0} (active): "MainThread"',
        "    read (data.py:{0})",
        "    fit (train.py:31)",
        "",
    ]
)


def test_the_size_of_a_job_that_no_line_states_is_a_least(tmp_path: Path) -> None:
    report = told(tmp_path / "a", [timeout(0), timeout(5)])
    assert not report.document.world_size_known
    assert '<p class="size">at least 6 ranks</p>' in report.to_html()
    stated = told(
        tmp_path / "b", ["torchrun --standalone --nproc_per_node=6 train.py", timeout(0), timeout(5)]
    )
    assert stated.document.world_size_known
    assert '<p class="size">6 ranks</p>' in stated.to_html()


def test_without_a_verdicts_line_the_page_shows_where_stacks_are(tmp_path: Path) -> None:
    report = told(tmp_path, {f"stack.{n}.txt": STACK.format(n) for n in (1, 2)})
    page = report.document.page
    assert page is not None and (report.verdict is None or report.verdict.location is None)
    assert page.sides and {f.file for side in page.sides for f in side.frames} == {"data.py", "train.py"}
    assert "No call site is known" not in report.to_html()


def test_frames_of_one_blocked_rank_are_not_given_as_those_of_all(tmp_path: Path) -> None:
    lines = [f"[rank{r}] step {n} done" for n in range(3) for r in range(4)]
    lines += ["[rank3] INFO left train loop after 3 batches", *(timeout(rank) for rank in range(4))]
    for rank, place, call in ((3, 77, "dist.barrier()"), (1, 58, "loss.backward()")):
        lines += ["Traceback (most recent call last):", f'  File "train.py", line {place}, in fit']
        lines += [f"    {call}", f"RuntimeError: NCCL communicator was aborted on rank {rank}."]
    call_ref = judged(told(tmp_path, lines)).waiting_call
    assert call_ref is not None and call_ref.frames and call_ref.ranks == (1,)


@pytest.mark.slow
def test_calls_whose_end_nccl_does_not_print_are_not_said_to_be_over(tmp_path: Path) -> None:
    write_incident(tmp_path, "stopped_rank")
    report = analyze(tmp_path)
    page = report.document.page
    assert page is not None and page.calls is not None
    assert "unknown" in {cell.state for row in page.calls.rows for cell in row.cells if cell.op}
    assert "end not recorded" in report.to_html()


def test_what_is_pending_collectives_or_no_slot(tmp_path: Path) -> None:
    report = judged_dumps(tmp_path / "dumps", stuck(8, 7)[:4])
    assert report.verdict is not None and report.verdict.op is None
    assert Page(report.document).first.what == ["all_reduce seq 25 · group 0 (default_pg), 4 ranks in it"]
    report = told(
        tmp_path / "log",
        [
            "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
        ],
    )
    assert report.status != "no_hang" and 'id="what"' not in report.to_html()
