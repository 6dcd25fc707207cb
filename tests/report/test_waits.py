"""Who is drawn to wait for whom: only who is in a call waits in it, and of a rank that was not seen nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from hangscope.api import Report
from hangscope.report.schema.pictures import WaitPicture
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
