"""A twin is read as it would be if it were loaded in full, and what is no twin is not taken for one."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.templates import SIGHTINGS, Twins
from hangscope.ingest.workers import reader

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
from dump_generator import PREFIX, Job, generate

RANKS = 24


def loaded(data: bytes) -> dict[str, Any]:
    return flight_recorder.reduce_dump(safe_pickle.load(data)).to_wire()


def taught(dumps: list[bytes]) -> Twins:
    """Return what is known after `dumps` were loaded in full."""
    twins = Twins()
    for data in dumps:
        twins.learn(data, flight_recorder.reduce_dump(safe_pickle.load(data)))
    return twins


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return the dumps of a mesh job, by rank."""
    folder = tmp_path_factory.mktemp("mesh")
    generate(folder, Job(RANKS, entries=500, layout="mesh"))
    return [(folder / f"{PREFIX}{rank}").read_bytes() for rank in range(RANKS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Twins]:
    """Return a dump, and what is known after it was seen often enough."""
    folder = tmp_path_factory.mktemp("world")
    generate(folder, Job(8, entries=500, layout="world"))
    data = (folder / f"{PREFIX}0").read_bytes()
    return data, taught([data] * SIGHTINGS)


def test_a_twin_is_read_as_if_it_were_loaded(dumps: list[bytes]) -> None:
    twins, read = Twins(), 0
    for data in dumps:
        recording = twins.read(data)
        if recording is None:
            twins.learn(data, flight_recorder.reduce_dump(safe_pickle.load(data)))
        else:
            read += 1
            assert recording.to_wire() == loaded(data)
    assert read >= RANKS // 2


def test_the_names_of_its_groups_are_its_own(dumps: list[bytes]) -> None:
    twins = taught(dumps[:SIGHTINGS])
    recording = twins.read(dumps[12])
    assert recording is not None
    assert sorted(recording.groups) == [
        ("0", "0", "default_pg"),
        ("1", "2", "mesh_tp"),
        ("2", "8", "mesh_dp"),
    ]
    assert (
        recording.columns["created"]
        == flight_recorder.reduce_dump(safe_pickle.load(dumps[12])).columns["created"]
    )


def test_one_process_reads_all_ranks_like_many_do(dumps: list[bytes], tmp_path: Path) -> None:
    known = reader.Known()
    for rank, data in enumerate(dumps):
        (tmp_path / "dump").write_bytes(data)
        answer = reader.read_file(str(tmp_path / "dump"), f"{PREFIX}{rank}", known=known)
        assert answer == reader.read_file(str(tmp_path / "dump"), f"{PREFIX}{rank}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x00completed", b"\x00scheduled"),  # a state
        (b"trainer.py", b"trained.py"),  # a frame
        (b"all_reduce", b"all_gather"),  # an op
        (b"default_pg", b"default_qg"),  # the name of its group, in the head
        (b"2.27.5", b"2.27.6"),  # the version of NCCL, in the head, which no call refers to
    ],
)
def test_a_difference_is_seen(model: tuple[bytes, Twins], old: bytes, new: bytes) -> None:
    data, twins = model
    other = data.replace(old, new, 1)
    recording = twins.read(other)
    assert other != data and (recording is None or recording.to_wire() == loaded(other))
    assert (recording is not None) == (old in (b"default_pg", b"2.27.5"))


def test_what_is_cut_or_longer_is_no_twin(model: tuple[bytes, Twins]) -> None:
    data, twins = model
    assert twins.read(data) is not None
    for other in (data[:-1], data[: len(data) // 2], data + b".", b"", b"\x80\x02}."):
        assert twins.read(other) is None


@pytest.mark.parametrize("inserted", [b"cos\nsystem\n0", b"N.", b"\x95"])
def test_a_head_that_is_not_plain_is_no_twin(model: tuple[bytes, Twins], inserted: bytes) -> None:
    """It asks for a global, ends the pickle, or holds an opcode that torch does not write."""
    data, twins = model
    split = data.index(b"X\x07\x00\x00\x00entries")
    assert twins.read(data[:split] + inserted + data[split:]) is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_changes_a_twin_is_read_like_a_load(
    model: tuple[bytes, Twins], draws: st.DataObject
) -> None:
    data, twins = model
    raw = bytearray(data)
    near = (
        data.index(b"X\x07\x00\x00\x00entries") + 1500
    )  # the head and the first entries hold every kind of value
    for _ in range(draws.draw(st.integers(1, 3))):
        raw[draws.draw(st.integers(2, near) | st.integers(2, len(raw) - 1))] = draws.draw(st.integers(0, 255))
    recording = twins.read(bytes(raw))
    if recording is not None:
        assert recording.to_wire() == loaded(bytes(raw))


def test_the_order_of_memo_numbers_in_the_head_matters() -> None:
    """The calls refer to the head by number: where another text stands behind it, they are other calls."""

    def dump(first: str, second: str) -> bytes:
        names = {"op": first, "kind": second}
        entries = [
            {"pg_id": 0, "process_group": ("0", "pg"), "profiling_name": names["op"], "state": "completed"}
            | {
                "collective_seq_id": i,
                "time_created_ns": 10**18 + i,
                "record_id": i,
                "note": "x" * 60 + str(i),
            }
            for i in range(1000)
        ]
        return pickle.dumps({"version": "2.10", "texts": [first, second], "entries": entries}, protocol=2)

    one, other = dump("nccl:all_reduce", "nccl:all_gather"), dump("nccl:all_gather", "nccl:all_reduce")
    assert len(one) == len(other)
    twins = taught([one] * SIGHTINGS)
    assert twins.read(one) is not None
    recording = twins.read(other)
    assert recording is None or recording.to_wire() == loaded(other)
    assert loaded(one) != loaded(other)


def test_dumps_without_twins_are_not_looked_through_for_long(dumps: list[bytes], monkeypatch: Any) -> None:
    from hangscope.ingest.recorder import templates as module

    looked = []
    monkeypatch.setattr(module, "_model", lambda *parts: looked.append(parts))
    taught(dumps * 4)
    assert 0 < len(looked) <= 2
