"""How far each member of a group came, on dumps that say how far they were made to come."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.align.frontier import GroupFrontier, frontiers
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, world, write_all


def views(recorders: list[Recorder], version: str = "2.10") -> list[GroupFrontier]:
    """Return the frontiers of the groups of a job, by the number of the group."""
    with TemporaryDirectory() as folder:
        analysis: Any = analyze(write_all(recorders, Path(folder), version)).analysis
    return frontiers(analysis.incident)


def of_one_group(recorders: list[Recorder]) -> GroupFrontier:
    (view,) = views(recorders)
    return view


#: per rank: how many calls it made beyond those that all made
AHEAD = st.lists(st.integers(0, 4), min_size=2, max_size=6)


@pytest.mark.slow
@settings(max_examples=25)
@given(shared=st.integers(1, 8), ahead=AHEAD)
def test_a_member_has_come_as_far_as_its_dump_says(shared: int, ahead: list[int]) -> None:
    recorders = job(len(ahead))
    for recorder, more in zip(recorders, ahead, strict=True):
        recorder.call("all_reduce", times=shared)
        recorder.call("all_reduce", times=more, state="scheduled")
    view = of_one_group(recorders)
    assert view.seen == list(range(len(ahead))) and not view.unseen
    for rank, more in enumerate(ahead):
        member = view.members[rank]
        assert (member.enqueued, view.completed(rank)) == (shared + more, shared)
        assert list(member.pending) == list(range(shared + 1, shared + more + 1))
    assert view.proven == shared


@settings(max_examples=15)
@given(made=st.integers(1, 30), ring=st.integers(1, 30))
def test_what_the_ring_has_lost_is_no_row_and_yet_was_made(made: int, ring: int) -> None:
    view = of_one_group([recorder.call("all_reduce", times=made) for recorder in job(2, ring=ring)])
    kept = min(made, ring)
    for rank, member in view.members.items():
        assert (member.first_row, member.last_row, member.enqueued) == (made - kept + 1, made, made)
        for seq in range(made + 2):
            assert (view.kind_of(rank, seq) is not None) == (made - kept < seq <= made)


@settings(max_examples=15)
@given(size=st.integers(2, 5), behind=st.integers(1, 5), data=st.data())
def test_a_dump_that_is_behind_what_is_proven_is_an_early_one(size: int, behind: int, data: Any) -> None:
    """All finished call 10: so did the rank whose dump ends before it. How far it came is not known."""
    early = data.draw(st.integers(0, size - 1))
    recorders = [r.call("all_reduce", times=10 - behind * (r.rank == early)) for r in job(size)]
    view = of_one_group(recorders)
    assert view.proven == 10
    assert view.unseen == [early] and view.early == {early}


@settings(max_examples=10)
@given(op=st.sampled_from(["broadcast", "reduce", "gather", "scatter", "all_to_all"]), more=st.integers(1, 3))
def test_a_call_that_ends_without_all_members_proves_nothing_of_them(op: str, more: int) -> None:
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=4)
        if recorder.rank:
            recorder.call(op, times=more)
    view = of_one_group(recorders)
    assert view.proven == 4
    assert [view.members[rank].enqueued for rank in range(3)] == [4, 4 + more, 4 + more]


def test_a_rank_without_a_dump_is_not_known_to_have_called_nothing() -> None:
    view = of_one_group([r.call("all_reduce", state="scheduled") for r in job(4) if r.rank != 1])
    assert view.unseen == [1]
    assert view.members[1].enqueued is None


def test_a_rank_whose_history_is_whole_and_without_a_group_made_no_call_on_it() -> None:
    groups = {"0": ("default_pg", range(3)), "1": ("tp", range(3))}
    recorders = job(3, groups=groups)
    for recorder in recorders:
        recorder.call("all_reduce", times=3)
        if recorder.rank != 2:
            recorder.call("all_reduce", "1", state="scheduled")
    (tp,) = [view for view in views(recorders) if view.group.desc == "tp"]
    assert [tp.members[rank].enqueued for rank in range(3)] == [1, 1, 0]


def test_where_older_calls_are_lost_silence_on_a_group_tells_nothing() -> None:
    """Unless the recorder counts the calls of each group, as it does from version 2.3 on."""
    groups = {"0": ("default_pg", range(3)), "1": ("tp", range(3))}
    recorders = job(3, groups=groups, ring=4)
    for recorder in recorders:
        recorder.call("all_reduce", times=8)
        if recorder.rank != 2:
            recorder.call("all_reduce", "1", state="scheduled")
    for version, known in (("2.1", None), ("2.3", 0)):
        (tp,) = [view for view in views(recorders, version) if view.group.desc == "tp"]
        assert tp.members[2].enqueued == known


def test_counters_that_contradict_each_other_count_sends_too(tmp_path: Path) -> None:
    """The ring lost the sends of this group; their number is the last that the counters call complete."""
    for rank in range(2):
        recorder = Recorder(rank, world(2), ring=3)
        for _ in range(20):
            recorder.send(1, state="completed") if rank == 0 else recorder.recv(0)
        recorder.call("all_reduce", times=2).call("all_reduce", state="scheduled")
        dump = recorder.dump()
        dump["pg_status"]["0"].update(last_enqueued_collective=3, last_completed_collective=20)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    view = analyze(tmp_path).analysis.views[0]
    assert view.members[1].pending == (3,) and view.members[1].completed == 2


def test_counters_of_a_group_of_batches_may_be_those_of_its_collectives(tmp_path: Path) -> None:
    """Where the work of a batch bears the collectives' number, a completed one tells nothing of the sends below it."""
    groups = {"0": ("default_pg", range(2)), "1": ("pp", range(2))}
    for recorder in job(2, groups=groups, ring=12):
        peer = 1 - recorder.rank
        recorder.call("all_reduce", "1", times=30)
        for number in range(12):
            state = "scheduled" if number == 11 else "completed"
            recorder.batch([("send", peer), ("recv", peer)], "1", state=state)
        dump = recorder.dump()
        dump["pg_status"]["1"].update(last_enqueued_collective=30, last_completed_collective=30)
        (tmp_path / f"nccl_trace_rank_{recorder.rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert analyze(tmp_path).analysis.case.graph.waiting == [0, 1]
