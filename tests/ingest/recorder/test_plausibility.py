"""A dump whose values no recorder writes is read as far as it goes, and says so."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hangscope.ingest.recorder.flight_recorder import reduce_dump
from hangscope.ingest.workers import reader
from tests.conftest import FIXTURES
from tests.dump_writer import VERSIONS, stuck


def notes_of(dump: Any) -> list[str]:
    return [note.message for note in reduce_dump(dump).notes if note.code == "odd_values"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_recorder_writes_is_plausible(version: str) -> None:
    assert [notes_of(recorder.dump(version)) for recorder in stuck(4, culprit=2)] == [[], [], [], []]


@pytest.mark.slow
def test_dumps_of_real_jobs_are_plausible() -> None:
    dumps = [path for path in sorted(FIXTURES.glob("*/dumps/**/*_rank_*")) if path.is_file()]
    wires = [reader.read_file(str(path), path.name) for path in dumps]
    notes = [note for wire in wires for recording in wire["recordings"] for note in recording["notes"]]
    assert len(wires) > 100 and [note for note in notes if note[0] == "odd_values"] == []


ENTRY: tuple[tuple[str, Any], ...] = (
    ("profiling_name", "\x00"), ("profiling_name", "[0, 262143]"), ("process_group", (1, 2)), ("pg_id", -1), ("pg_id", 1e308), ("state", "complete"), ("input_sizes", [[-1]]),
    ("input_sizes", "[[1]]"), ("output_sizes", [["x"]]), ("input_dtypes", {"a": 1}), ("input_dtypes", "%s%n"), ("output_dtypes", [None]),
    ("frames", [None]), ("frames", 3), ("is_p2p", 2), ("retired", "yes"), ("record_id", 2**70),
    ("record_id", 0), ("time_created_ns", -5), ("time_created_ns", "soon"), ("collective_seq_id", True), ("timeout_ms", []), (7, 1),
    ("output_sizes", [[1, 1]]), ("output_dtypes", ["Long"]),
)  # fmt: skip
FRAME = {"name": "main", "filename": "train.py", "line": 1}
TOP: tuple[tuple[Any, Any], ...] = (
    ("version", 3), ("version", "A" * 5000), ("version", -1), ("pg_config", 2**63), ("pg_config", {"0": []}), ("pg_status", [1]),
    ("pg_status", {"0": {"last_enqueued_collective": 1.5}}), ("pg_config", {"0": {"name": 1, "desc": "", "ranks": "[0]"}}),
    ("pg_config", {"0": {"name": "0", "desc": "", "ranks": "nccl:all_reduce"}}), ("comm_lib_version", {}), (7, "2.10"),
)  # fmt: skip


@pytest.mark.parametrize(("key", "value"), ENTRY)
def test_an_implausible_value_of_an_entry_is_noted(key: Any, value: Any) -> None:
    dump = stuck(2, culprit=1)[0].dump()
    dump["entries"][4][key] = value
    (notes,) = notes_of(dump)
    assert "no recorder writes" in notes and str(key)[:9] in notes.replace("a number of an entry", str(key))


@pytest.mark.parametrize("key", FRAME)
def test_an_implausible_value_of_a_frame_is_noted(key: str) -> None:
    dump = stuck(2, culprit=1)[0].dump()
    dump["entries"][4]["frames"] = [{**FRAME, key: []}]
    (note,) = notes_of(dump)
    assert f"`{key}` is a list" in note


@pytest.mark.parametrize(("key", "value"), TOP)
def test_an_implausible_value_outside_the_entries_is_noted(key: Any, value: Any) -> None:
    dump = stuck(2, culprit=1)[0].dump()
    dump[key] = value
    assert len(notes_of(dump)) == 1


def test_a_large_dump_whose_entries_are_read_by_their_form_is_checked_too(tmp_path: Path) -> None:
    recorder = stuck(2, culprit=1, steps=400)[0]
    dump = recorder.dump()
    dump["entries"][300]["input_sizes"] = [[-1]]
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump, protocol=2))
    assert path.stat().st_size > 1 << 16
    (recording,) = reader.read_file(str(path), path.name)["recordings"]
    assert [note[0] for note in recording["notes"]] == ["odd_values"]
