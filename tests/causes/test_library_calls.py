"""What calls of libraries say where two met: how sure it is that a loop ended."""

from __future__ import annotations

from tests.dump_writer import Recorder, job
from tests.small_jobs import frozen
from tests.verdicts import blame, level

PACKAGES = "/opt/venv/lib/python3.11/site-packages/"


def started(recorder: Recorder, op: str, line: int, *library: tuple[str, str, int]) -> None:
    """Begin a call that the user's line makes through functions of a library, innermost first."""
    recorder.call(op, line=line, state="started")
    made, _, *users = recorder.entries[-1]["frames"]
    through = [{"name": name, "filename": PACKAGES + file, "line": at} for name, file, at in library]
    recorder.entries[-1]["frames"] = [made, *through, *users]


def test_a_librarys_call_below_the_lines_of_a_loop_may_be_at_the_end_of_its_body() -> None:
    def last(recorder: Recorder, is_odd: bool) -> None:
        recorder.call("all_reduce", line=29, times=8)
        if is_odd:
            saver = ("save", "torch/distributed/checkpoint/state_dict_saver.py", 180)
            started(recorder, "gather_object", 31, saver)
        else:
            recorder.call("all_reduce", line=29, state="started")

    report = frozen(job(4), (2,), last)
    assert blame(report) == ("hang", "uneven_loader", (2,)) and level(report) == "low"


def test_one_who_logs_in_a_librarys_loop_while_the_others_are_in_a_step_is_in_its_own_branch() -> None:
    file = "transformers/trainer.py"
    train = (("_inner_training_loop", file, 1660), ("train", file, 1576))
    step = (("training_step", file, 2118), ("_run_epoch", file, 1909), *train)
    log = (("_maybe_log_save_evaluate", file, 2249), ("_run_epoch", file, 1950), *train)
    gather = ("nested_gather", "transformers/trainer_pt_utils.py", 233)

    def last(recorder: Recorder, is_odd: bool) -> None:
        for _ in range(4):
            started(recorder, "all_reduce", 27, *step)
            started(recorder, "all_gather", 27, gather, *log)
        started(recorder, *(("all_gather", 27, gather, *log) if is_odd else ("all_reduce", 27, *step)))
        for entry in recorder.entries[:-1]:
            entry["state"] = "completed"

    report = frozen(job(4), (1,), last)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,)) and level(report) == "high"


def test_an_exchange_of_objects_below_the_lines_of_a_loop_is_no_sign_that_it_ended() -> None:
    def last(recorder: Recorder, is_odd: bool) -> None:
        recorder.call("all_reduce", line=13, times=8)
        if is_odd:
            exchange = ("all_gather_object", "torch/distributed/distributed_c10d.py", 3200)
            started(recorder, "all_gather", 15, exchange)
        else:
            recorder.call("all_reduce", line=13, state="started")

    report = frozen(job(4), (3,), last)
    assert blame(report) == ("hang", "rank_conditional_collective", (3,))
