"""Packs whose answers are not of the form that the readers give: what is forged in them is refused, and nothing else."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from hangscope.ingest.recorder import pack_file
from hangscope.ingest.workers import answer, reader
from hangscope.model.codec import from_row, to_row
from hangscope.model.events import Event
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import stuck, write_all

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the dumps of a node of eight ranks, of which rank 5 stopped before the others."""
    return write_all(stuck(8, culprit=5), tmp_path / "node")


def event(kind: str, told: dict[str, Any], **base: Any) -> tuple[Any, ...]:
    """Return an event as it is in an answer, of rank 0 unless `base` has another; fields that it needs and lacks are left out."""
    known = {"file": "a.log", "line": 1, "text": "text", "rank": 0, **base, **told}
    declared = fields(Event.class_of(kind) or Event)
    values = [known.get(f.name, f.default) for f in declared]
    return (kind, *(value for value in values if value is not MISSING))


FORGED_EVENTS = {
    "counts": event("ddp_params", {"counts": ["x"]}),
    "absent": event("monitored_barrier", {"absent": 5}),
    "not_joined": event("desync", {"not_joined": [1, 2]}),
    "unhashable": event("store_unreachable", {"store_host": {1, 2}}),
    "attempt": event("exit", {"code": 1, "via": "srun"}, attempt="last"),
    "code": event("exit", {"code": "x", "via": "srun"}),
    "local_rank": event("exit", {"code": 1, "via": "srun"}, local_rank="q"),
    "frames": event("exception", {"type": "E", "message": "m", "frames": [1, 2]}),
    "needed": event("gloo_size_mismatch", {"expected": 4}),
    "rank": event("progress", {"step": 1}, rank=10**12),
    "large": event("progress", {"step": 10**30}),
    "unknown": event("no_such_kind", {"deep": [[[[1]]]]}),
    "no_fields": ("exit", None),
}
COMMUNICATOR = {"file": "f", "host": "h", "pid": 1, "pointer": "0x1", "local_id": "id1"}
FORGED_COMMUNICATORS = {
    "nranks": {**COMMUNICATOR, "comm_rank": 0, "nranks": "x"},
    "many": {**COMMUNICATOR, "comm_rank": 0, "nranks": 2**40},
    "rank": {**COMMUNICATOR, "comm_rank": [0], "nranks": 2},
    "step": {**COMMUNICATOR, "step": {}},
}


@pytest.mark.parametrize("name", [*FORGED_EVENTS, *(f"communicator {name}" for name in FORGED_COMMUNICATORS)])
def test_a_forged_event_or_communicator_is_refused(name: str, node: Path) -> None:
    wire = answer.answer("log")
    if name in FORGED_EVENTS:
        wire["events"] = [FORGED_EVENTS[name]]
    else:
        wire["log"] = {"file": "f", "communicators": [FORGED_COMMUNICATORS[name.split()[1]]]}
    with (node / "forged.hangpack").open("wb") as out:
        pack_file.write_pack(out, [("forged.hangpack/rank0.log", 10, wire)])
    report = analyze([node])
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    assert [w.file for w in report.warnings if w.code == "bad_pack"] == ["forged.hangpack/rank0.log"]


def test_columns_that_are_no_bytes_cost_no_other_file(node: Path) -> None:
    from hangscope.ingest.recorder.recording import Recording

    recording = Recording(source="flight_recorder")
    group, stack = recording.group("0", "0", "default_pg"), recording.stack(())
    kind = recording.kind(("all_reduce", "nccl", (), (), (), (), None, None, stack, None))
    recording.add(group=group, seq=1, kind=kind, state=0)
    forged, whole = recording.to_wire(), answer.answer("log")
    forged["columns"]["created"] = [1]  # what an array can be made of as well
    wires = [{**answer.answer("flight_recorder"), "recordings": [forged, forged]}, whole]
    with (node / "forged.hangpack").open("wb") as out:
        pack_file.write_pack(out, [(f"forged.hangpack/{n}", 10, wire) for n, wire in enumerate(wires)])
    report = analyze([node])
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    assert {i.file: i.status for i in report.document.inputs}["forged.hangpack/1"] == "used"


def test_a_pack_that_is_broken_behind_its_first_files_is_not_used(node: Path, tmp_path: Path) -> None:
    packed = tmp_path / "whole.hangpack"
    with packed.open("wb") as out:
        pack_file.write_pack(out, [(f"p/{n}", 10, answer.answer("log")) for n in range(40)])
    with packed.open("rb") as stream:
        rows = list(pack_file.read_rows(stream))
    del rows[39]["answer"]
    with (node / "z.hangpack").open("wb") as out:
        pack_file.write_rows(out, rows)
    report = analyze([node])
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    files = {i.file: i.status for i in report.document.inputs}
    assert files["z.hangpack"] == "failed"
    assert not any(file.startswith("p/") for file in files)


def test_the_events_of_real_logs_are_of_the_form_that_is_asked_for() -> None:
    logs = [path for path in FIXTURES.rglob("*") if path.suffix in (".log", ".txt") and path.is_file()]
    events = []
    for path in sorted(logs)[::5]:
        answer = reader.read_file(str(path), path.name)
        events += [*answer["events"], *((answer["log"] or {}).get("events", ()))]
    assert len(events) > 100
    assert to_row(from_row(list[Event], events)) == events
