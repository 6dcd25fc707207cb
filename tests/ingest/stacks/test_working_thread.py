"""Which thread of a rank counts: the one that issues the job's collectives."""

from __future__ import annotations

from hangscope.ingest.stacks.threads import issuers, trains
from hangscope.model.frames import Frame, Stack

STARTS: Stack = tuple(Frame(name, "/usr/lib/python3.11/threading.py", 9) for name in ("run", "_bootstrap"))


def stack(*names: str, thread: bool = True) -> Stack:
    own = tuple(Frame(name, "/workspace/train/train.py", 7) for name in names)
    return own + (STARTS if thread else (Frame("<module>", "/workspace/train/train.py", 30),))


def test_a_thread_that_issues_all_collectives_counts_instead_of_the_main_thread() -> None:
    functions = issuers([stack("step", "train_function"), stack("save", "train_function"), ()])
    assert trains(stack("load", "train_function"), functions)
    assert not trains(stack("heartbeat"), functions) and not trains(stack("join", thread=False), functions)


def test_the_main_thread_counts_where_it_issues_a_collective() -> None:
    functions = issuers([stack("step", "train_function"), stack("step", thread=False)])
    assert functions == frozenset() == issuers([])
