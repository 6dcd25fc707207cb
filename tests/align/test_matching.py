"""Which calls match: the cases that torch's own analyzer is tested on, through dumps as the recorder writes them.

Held against test/distributed/flight_recorder/test_fr_analysis.py (pytorch): what matches and what does not, as far as
two calls can complete together. A state is no part of that here: it is the frontier's business.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangscope.align.matching import difference, match_key, match_keys
from hangscope.ingest.recorder.flight_recorder import reduce_dump
from hangscope.ingest.recorder.values import user_op
from hangscope.model.incident import PROVING_OPS, CallKind
from tests.conftest import analyze
from tests.dump_writer import job, write_all

Sizes = list[list[int]]

#: recorder name -> (input sizes, output sizes) of one member of two
COLLECTIVES: dict[str, tuple[Sizes, Sizes]] = {
    **dict.fromkeys(
        (
            "broadcast",
            "_broadcast_oop",
            "reduce",
            "_reduce_oop",
            "all_reduce",
            "allreduce_coalesced",
            "all_reduce_barrier",
            "barrier",
            "scatter",
            "gather",
            "coalesced",
            "ALLGATHER_coalesced",
            "REDUCE_SCATTER_coalesced",
            "all_to_all",
            "alltoall_base",
        ),
        ([[4, 4]], [[4, 4]]),
    ),
    **dict.fromkeys(
        ("all_gather", "_all_gather_base", "all_gather_into_tensor_coalesced"), ([[4, 4]], [[32]])
    ),
    **dict.fromkeys(
        ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"), ([[4, 4]], [[8]])
    ),
}


def kind(
    name: str,
    ins: Sizes,
    outs: Sizes,
    types_in: list[str] | None = None,
    types_out: list[str] | None = None,
    backend: str = "nccl",
) -> CallKind:
    """Return the call that a dump of one entry holds."""
    entry: dict[str, Any] = {
        "profiling_name": f"{backend}:{name}",
        "process_group": ("0", "default"),
        "pg_id": 0,
        "collective_seq_id": 1,
        "state": "scheduled",
        "input_sizes": ins,
        "output_sizes": outs,
        "input_dtypes": ["Float"] * len(ins) if types_in is None else types_in,
        "output_dtypes": ["Float"] * len(outs) if types_out is None else types_out,
    }
    recording = reduce_dump({"version": "2.8", "pg_config": {}, "entries": [entry]})
    (row,) = recording.kinds
    return CallKind(*row[:8])


REDUCE = kind("all_reduce", [[4, 4]], [[4, 4]])


# -- one pair of calls ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (kind("all_reduce", [[4, 4]], [[4, 4]]), ""),
        (kind("all_gather", [[4, 4]], [[4, 4]]), "op"),
        (kind("all_reduce", [[5, 4]], [[4, 4]]), "shape"),
        (kind("all_reduce", [[4, 4]], [[5, 4]]), "shape"),
        (kind("all_reduce", [[4, 4]], [[4, 4]], types_out=["Half"]), "dtype"),
        (kind("all_reduce", [[4, 4]], [[4, 4]], ["Half"], ["Half"]), "dtype"),
        (kind("all_reduce", [[2, 8]], [[2, 8]]), ""),  # transports see the number of elements
    ],
    ids=["equal", "type", "input", "output", "output_dtype", "dtype", "same_numel"],
)
def test_two_calls(other: CallKind, differs: str) -> None:
    assert difference(REDUCE, other) == difference(other, REDUCE) == differs
    assert (match_key(REDUCE) == match_key(other)) == (differs == "")


def test_an_all_to_all_is_never_told_apart_by_its_sizes() -> None:
    """Its splits are not recorded, so that two of them are undecided: no mismatch may rest on their sizes."""
    assert difference(kind("all_to_all", [[4, 4]], [[4, 4]]), kind("all_to_all", [[6, 4]], [[2, 4]])) == ""


@pytest.mark.parametrize("outputs", [[[]], [[4, 4]], []])
def test_a_gather_differs_legally_between_its_root_and_the_others(outputs: Sizes) -> None:
    root = kind("gather", [[4, 4]], [[4, 4], [4, 4]])
    assert difference(root, kind("gather", [[4, 4]], outputs, types_out=[])) == ""


def test_a_scatter_differs_legally_between_its_root_and_the_others() -> None:
    assert difference(kind("scatter", [[4], [4]], [[4]]), kind("scatter", [], [[4]], [], ["Float"])) == ""


def test_a_gather_of_another_size_does_not_match() -> None:
    assert (
        difference(kind("gather", [[4, 4]], [[4, 4], [4, 4]]), kind("gather", [[4, 5]], [[]], types_out=[]))
        == "shape"
    )


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_every_collective_matches_itself(name: str) -> None:
    ins, outs = COLLECTIVES[name]
    assert difference(kind(name, ins, outs), kind(name, ins, outs)) == ""


@pytest.mark.parametrize("first", sorted(COLLECTIVES))
def test_collectives_of_different_names_do_not_match(first: str) -> None:
    one = kind(first, [[4, 4]], [[4, 4]])
    for second in COLLECTIVES:
        same = user_op(first) == user_op(second)
        assert (difference(one, kind(second, [[4, 4]], [[4, 4]])) == "op") == (not same)


@pytest.mark.parametrize("backend", ["nccl", "ncclx", "gloo", "xccl", "hccl", "of_tomorrow"])
def test_every_backend_is_read(backend: str) -> None:
    """An unknown prefix is a backend that nobody has heard of yet, and no reason to give up."""
    call = kind("all_reduce", [[4, 4]], [[4, 4]], backend=backend)
    assert (call.op, call.backend) == ("all_reduce", backend)
    assert difference(call, REDUCE) == ""


def test_what_a_recorder_did_not_keep_is_no_difference() -> None:
    old = kind("all_reduce", [[4, 4]], [[4, 4]], [], [])
    assert difference(old, REDUCE) == ""
    assert difference(old, kind("all_reduce", [[5, 4]], [[5, 4]])) == "shape"
    keys = match_keys([old, REDUCE, kind("all_reduce", [[4, 4]], [[4, 4]], ["Half"], ["Half"])])
    assert keys[0] == keys[2] != keys[1] or keys[0] == keys[1] != keys[2]


def test_what_completes_alone_proves_nothing_of_others() -> None:
    assert not {"broadcast", "reduce", "gather", "scatter", "send", "recv"} & PROVING_OPS
    assert REDUCE.op in PROVING_OPS


# -- whole dumps of two ranks --------------------------------------------------------------------------------------


def entry(record: int, name: str, sizes: Sizes, group: tuple[str, str] = ("0", "default")) -> dict[str, Any]:
    """Return an entry as that test makes it: every number 0 and as text, no local group id."""
    return {
        "record_id": record,
        "profiling_name": f"nccl:{name}",
        "state": "completed",
        "process_group": group,
        "input_sizes": sizes,
        "output_sizes": sizes,
        "input_dtypes": ["Float"] * len(sizes),
        "output_dtypes": ["Float"] * len(sizes),
        "collective_seq_id": "0",
        "p2p_seq_id": "0",
        "time_created_ns": 0,
        "frames": [],
        "is_p2p": False,
    }


def calls(*entries: dict[str, Any]) -> list[CallKind]:
    """Return the calls, in their order, that a dump of these entries holds."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    recording = reduce_dump({"version": "2.8", "pg_config": config, "entries": list(entries)})
    kinds = [CallKind(*row[:8]) for row in recording.kinds]
    return [kinds[index] for index in recording.columns["kind"]]


def test_case_1_all_reduces_in_the_world_and_in_groups_of_one_name(tmp_path: Path) -> None:
    """Three collectives, all whole: the two groups named "1" have different members and are two groups."""
    recorders = job(2)
    for recorder in recorders:
        recorder.groups = {**recorder.groups, "1": ("sub_pg", (recorder.rank,))}
        recorder.local_ids["1"] = 1
        recorder.call("all_reduce", sizes=[[4, 4]]).call("all_reduce", "1", sizes=[[5, 5]])
    report = analyze(write_all(recorders, tmp_path, "2.9"))
    assert report.status == "no_hang", report.to_text()
    assert len({(g, s) for g, s in zip(report.table["gid"], report.table["seq"], strict=True)}) == 3


def test_case_2_allreduce_coalesced() -> None:
    one, other = (calls(entry(0, "allreduce_coalesced", [[4, 4]])) for _ in range(2))
    assert len(one) == len(other) == 1
    assert difference(one[0], other[0]) == ""


def test_case_3_two_broadcasts_that_are_coalesced_are_one_call() -> None:
    def rank() -> list[CallKind]:
        return calls(
            entry(0, "broadcast", [[4, 4]]), entry(1, "broadcast", [[4, 4]]), entry(2, "coalesced", [[]])
        )

    one, other = rank(), rank()
    assert [k.op for k in one] == ["broadcast"]
    assert difference(one[0], other[0]) == ""


def test_case_4_an_uneven_all_gather_that_differs_in_its_second_member() -> None:
    def rank(second: int) -> list[CallKind]:
        return calls(
            entry(0, "_broadcast_oop", [[4, 4]]),
            entry(1, "_broadcast_oop", [[second, second]]),
            entry(2, "ALLGATHER_coalesced", [[]]),
        )

    one, other = rank(5), rank(4)
    assert [k.op for k in one] == [k.op for k in other] == ["all_gather"]
    assert difference(one[0], other[0]) == "shape"
    assert difference(one[0], rank(5)[0]) == ""


def test_case_5_an_uneven_reduce_scatter() -> None:
    def rank() -> list[CallKind]:
        return calls(
            entry(0, "_reduce_oop", [[4, 4]]),
            entry(1, "_reduce_oop", [[4, 4]]),
            entry(2, "REDUCE_SCATTER_coalesced", [[]]),
        )

    one, other = rank(), rank()
    assert [k.op for k in one] == ["reduce_scatter"]
    assert difference(one[0], other[0]) == ""


def test_case_6_a_coalesced_call_that_one_rank_lacks(tmp_path: Path) -> None:
    """Two collectives: the all_reduce is whole, the reduce_scatter waits for rank 0."""
    recorders = job(2)
    for recorder in recorders:
        recorder.call("all_reduce", times=6)
    recorders[1].coalesced("_reduce_oop", [16, 16], "REDUCE_SCATTER_coalesced", state="scheduled")
    report = analyze(write_all(recorders, tmp_path, "2.9"))
    verdict = report.verdict
    assert report.status == "hang" and verdict is not None
    assert (verdict.op, verdict.seq, verdict.waiting_ranks or verdict.culprit_ranks) == (
        "reduce_scatter",
        7,
        (1,),
    )


def test_coalesced_calls_of_real_numbers_are_one_call_each(tmp_path: Path) -> None:
    """Members of a batch stay `scheduled` in the recorder for ever; the entry that ends it has the real state."""
    recorders = job(2)
    for recorder in recorders:
        for _ in range(5):
            recorder.coalesced("_all_gather_base", [8, 8, 8], "all_gather_into_tensor_coalesced").call(
                "all_reduce"
            )
    report = analyze(write_all(recorders, tmp_path, "2.9"))
    assert report.status == "no_hang", report.to_text()
    assert sorted(set(report.table["seq"])) == list(range(1, 11))
    assert set(report.table["op"]) == {"all_gather_into_tensor", "all_reduce"}


def test_a_batch_that_lacks_a_member_does_not_match(tmp_path: Path) -> None:
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=8)
        recorder.coalesced(
            "_broadcast_oop",
            [8, 8] if recorder.rank == 1 else [8, 8, 8],
            "ALLGATHER_coalesced",
            state="scheduled",
        )
    report = analyze(write_all(recorders, tmp_path, "2.9"))
    verdict = report.verdict
    assert verdict is not None and (verdict.culprit_ranks, verdict.op, verdict.seq) == ((1,), "all_gather", 9)
