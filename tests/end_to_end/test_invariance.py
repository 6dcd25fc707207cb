"""Names, order and copies of files, local numbers of groups, and a lost dump of a victim mean nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, stuck, world
from tests.properties.incidents import essence, inside

pytestmark = pytest.mark.slow

#: every naming that is documented: `r` is the rank, `n` its node
NAMINGS = (
    "nccl_trace_rank_{r}",
    "comm_lib_trace_rank_{r}",
    "_dump_{r}",
    "nccl_trace_rank_container-node07_{r}",
    "rank{r}.json",
    "rank_{r}.pkl",
    "node-{n}/nccl_trace_rank_{r}",
    "host{n}/comm_lib_trace_rank_{r}",
    "job.17.rank={r}.pickle",
    "trace-{r}",
)

Core = tuple[Any, ...]
Incident = Callable[[dict[int, list[int]]], list[Recorder]]


def core(report: Report) -> Core:
    """Return what must stay."""
    v = report.verdict
    if v is None:
        return (report.status,)
    return (
        report.status,
        v.cause,
        v.culprit_ranks,
        v.op,
        v.seq,
        v.group.name if v.group else None,
        v.confidence,
        v.waiting_ranks,
        v.location,
    )


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# -- incidents whose ranks may number their groups as they like -----------------------------------------------------


def mesh(ids: dict[int, list[int]]) -> list[Recorder]:
    """Return 4 ranks on a 2 x 2 mesh; rank 3 never makes its tensor-parallel call. `ids`: each rank's three local ids."""
    groups = {
        **world(4),
        "1": ("mesh_tp", (0, 1)),
        "2": ("mesh_tp", (2, 3)),
        "3": ("mesh_dp", (0, 2)),
        "4": ("mesh_dp", (1, 3)),
    }
    recorders = job(4, groups=groups)
    for recorder in recorders:
        numbers = ids.get(recorder.rank, [0, 1, 2])
        recorder.local_ids.update(dict(zip(recorder.groups, numbers, strict=True)))
        tp, dp = ("1" if recorder.rank < 2 else "2"), ("3" if recorder.rank % 2 == 0 else "4")
        for _ in range(6):
            recorder.call("all_gather", tp, line=31).call("all_reduce", dp, line=35, sizes=[[99]]).call(
                "all_reduce", line=38, sizes=[[1]]
            )
        if recorder.rank < 2:
            recorder.call("all_gather", tp, line=31).call(
                "all_reduce", dp, line=35, sizes=[[99]], state="scheduled"
            )
        elif recorder.rank == 2:
            recorder.call("all_gather", tp, line=31, state="scheduled")
    return recorders


def odd_shape(ids: dict[int, list[int]]) -> list[Recorder]:
    recorders = job(4)
    for recorder in recorders:
        recorder.local_ids["0"] = ids.get(recorder.rank, [0])[0]
        recorder.call("all_reduce", times=9, line=40).call(
            "all_reduce", sizes=[[7 if recorder.rank == 1 else 8]], line=40, state="scheduled"
        )
    return recorders


def extra_call(ids: dict[int, list[int]]) -> list[Recorder]:
    recorders = job(5)
    for recorder in recorders:
        recorder.local_ids["0"] = ids.get(recorder.rank, [0])[0]
        for _ in range(8):
            recorder.call("all_reduce", sizes=[[512]], line=41).call("all_gather", line=45)
        if recorder.rank == 4:
            recorder.call("barrier", sizes=[], line=43, function="save_best", state="scheduled")
        else:
            recorder.call("all_reduce", sizes=[[512]], line=41, state="scheduled")
    return recorders


def stuck_rank(ids: dict[int, list[int]]) -> list[Recorder]:
    return stuck(4, culprit=2)


MADE: dict[str, Incident] = {
    "mesh": mesh,
    "odd_shape": odd_shape,
    "extra_call": extra_call,
    "stuck_rank": stuck_rank,
}
CULPRIT = {"mesh": 3, "odd_shape": 1, "extra_call": 4, "stuck_rank": 2}


@pytest.fixture(scope="module")
def plain() -> dict[str, Core]:
    """Return the verdict on each made incident as torch would have written it."""
    result = {}
    for name, made in MADE.items():
        with folder() as top:
            for recorder in made({}):
                recorder.write(top)
            result[name] = core(analyze(top))
    return result


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_incidents_show_their_faults(name: str, plain: dict[str, Core]) -> None:
    assert plain[name][0] == "hang" and plain[name][2] == (CULPRIT[name],)


@settings(max_examples=12)
@given(data=st.data(), name=st.sampled_from(sorted(MADE)), naming=st.sampled_from(NAMINGS))
def test_names_order_and_copies_of_files_mean_nothing(
    data: st.DataObject, name: str, naming: str, plain: dict[str, Core]
) -> None:
    with folder() as top:
        paths = []
        for recorder in MADE[name]({}):
            paths.append(recorder.write(top, naming.format(r=recorder.rank, n=recorder.rank // 2 + 3)))
            if data.draw(st.booleans()):
                paths.append(recorder.write(top, "copies/" + NAMINGS[0].format(r=recorder.rank)))
        order = data.draw(st.permutations(paths))
        assert core(analyze(order)) == plain[name]
        assert core(analyze(top)) == plain[name]


@settings(max_examples=10)
@given(data=st.data(), name=st.sampled_from(["mesh", "odd_shape", "extra_call"]))
def test_local_group_ids_mean_nothing(data: st.DataObject, name: str, plain: dict[str, Core]) -> None:
    count = 3 if name == "mesh" else 1
    ids = {
        rank: data.draw(st.lists(st.integers(0, 40), min_size=count, max_size=count, unique=True))
        for rank in range(5)
    }
    with folder() as top:
        for recorder in MADE[name](ids):
            recorder.write(top)
        assert core(analyze(top)) == plain[name]


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_lost_dump_of_a_victim_changes_no_blame(name: str) -> None:
    recorders = MADE[name]({})
    with folder() as top:
        paths = {r.rank: r.write(top) for r in recorders}
        whole = analyze(top)
        assert whole.verdict is not None
        for rank, path in paths.items():
            if rank != CULPRIT[name] and len(inside(whole) - {rank}) >= 2:
                rest = [p for p in paths.values() if p != path]
                assert essence(analyze(rest, world_size=len(recorders))) == essence(whole), rank
