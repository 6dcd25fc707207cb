"""What calls of libraries say where two met: how sure it is that a loop ended."""

from __future__ import annotations

from hangscope.causes.library_calls import Meeting, tell
from hangscope.frames import Frame, Stack
from hangscope.knowledge.library import own_knowledge

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def _call(op: str, around: Stack) -> Stack:
    return (Frame(op, C10D, 4280), *around)


def test_a_librarys_call_below_the_lines_of_a_loop_may_be_at_the_end_of_its_body() -> None:
    def at(line: int) -> Stack:
        return (Frame("main", "/workspace/train/train.py", line),)

    save = Frame(
        "save", "/opt/venv/lib/python3.11/site-packages/torch/distributed/checkpoint/state_dict_saver.py", 180
    )
    steps = tuple(_call("all_reduce", at(29)) for _ in range(8))
    own = _call("gather_object", (save, *at(31)))
    said = tell(Meeting(own, _call("all_reduce", at(29)), (2,), steps, 0, "beyond"), own_knowledge())
    assert said is not None and (said.cause, said.strength) == ("uneven_loader", 0)


def test_one_who_logs_in_a_librarys_loop_while_the_others_are_in_a_step_is_in_its_own_branch() -> None:
    package = "/opt/venv/lib/python3.11/site-packages/transformers/"
    train = (
        Frame("_inner_training_loop", package + "trainer.py", 1660),
        Frame("train", package + "trainer.py", 1576),
        Frame("<module>", "/workspace/train/train.py", 27),
    )
    step = (
        Frame("training_step", package + "trainer.py", 2118),
        Frame("_run_epoch", package + "trainer.py", 1909),
    )
    gather = (
        Frame("nested_gather", package + "trainer_pt_utils.py", 233),
        Frame("_maybe_log_save_evaluate", package + "trainer.py", 2249),
        Frame("_run_epoch", package + "trainer.py", 1950),
    )
    own, peer = _call("all_gather", (*gather, *train)), _call("all_reduce", (*step, *train))
    said = tell(Meeting(own, peer, (1,), (), 4), own_knowledge())
    assert said is not None and (said.cause, said.strength) == ("rank_conditional_collective", 1)


def test_an_exchange_of_objects_below_the_lines_of_a_loop_is_no_sign_that_it_ended() -> None:
    def at(line: int) -> Stack:
        return (Frame("main", "/workspace/train/train.py", line),)

    steps = tuple(_call("all_reduce", at(13)) for _ in range(8))
    own = _call(
        "all_gather", _call("all_gather_object", (Frame("stats", "/workspace/train/train.py", 8), *at(15)))
    )
    said = tell(Meeting(own, _call("all_reduce", at(13)), (3,), steps, 0, "beyond"), own_knowledge())
    assert said is not None and said.cause == "rank_conditional_collective"
    assert "uneven_loader" in dict(said.rivals)
