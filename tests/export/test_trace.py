"""`hangscope trace`: a trace that the Trace Event Format allows, with what happened where it happened.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (phases, required keys, nesting, flows).
"""

from __future__ import annotations

import io
import json
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from hangscope.api import Report
from hangscope.export.trace import is_trace, write_trace
from tests.conftest import FIXTURES, Run, analyze
from tests.dump_writer import job, stuck, write_all

REQUIRED = {"X": {"ts", "dur"}, "M": {"args"}, "i": {"ts", "s"}, "s": {"ts", "id"}, "f": {"ts", "id", "bp"}}


def trace_of(report: Report, **options: bool) -> list[dict[str, Any]]:
    """Return the events of a trace that was checked against the format."""
    out = io.BytesIO()
    assert report.analysis is not None
    count = write_trace(report.analysis, out, **options)
    data = json.loads(out.getvalue())
    events: list[dict[str, Any]] = data["traceEvents"]
    assert count == len(events) and int(data["otherData"]["begins_ns"]) >= 0
    check(events)
    return events


def check(events: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    flows: dict[str, set[int]] = {"s": set(), "f": set()}
    for event in events:
        assert {"ph", "pid", "tid", "name"} | REQUIRED[event["ph"]] <= set(event), event
        assert (
            isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["name"], str)
        )
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in flows:
            assert event["id"] not in flows[event["ph"]]
            flows[event["ph"]].add(event["id"])
    assert flows["s"] == flows["f"]
    for event in events:  # the ends of an arrow lie in slices
        if event["ph"] in flows:
            assert any(a <= event["ts"] <= b for a, b in tracks[event["pid"], event["tid"]])
    for spans in tracks.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
        stack: list[float] = []
        for begin, end in spans:
            while stack and stack[-1] <= begin + 1e-3:
                stack.pop()
            assert not stack or end <= stack[-1] + 1e-3, "slices of a track overlap without nesting"
            stack.append(end)


def of(events: list[dict[str, Any]], phase: str, name: str = "") -> list[dict[str, Any]]:
    return [e for e in events if e["ph"] == phase and e["name"].startswith(name)]


def test_pending_collectives_reach_the_end_and_point_to_the_root_cause(hang: Path) -> None:
    report = analyze(hang)
    events = trace_of(report)
    pending = [e for e in of(events, "X") if e["args"].get("state") == "pending"]
    assert {e["pid"] for e in pending} == {0, 1, 3}
    assert len({round(e["ts"] + e["dur"], 3) for e in pending}) == 1
    assert {e["pid"] for e in of(events, "s")} == {0, 1, 3} and {e["pid"] for e in of(events, "f")} == {2}
    root = [e for e in of(events, "X") if "cause" in e["args"]]
    assert [(e["pid"], e["name"]) for e in root] == [(2, report.document.title)]
    assert len(of(events, "X")) == len(report.table) + 1


@pytest.mark.slow
def test_ranks_of_equal_behaviour_share_a_process_above_64_ranks(tmp_path: Path) -> None:
    report = analyze(write_all(stuck(80, culprit=7), tmp_path))
    names = [e["args"]["name"] for e in of(trace_of(report), "M", "process_name")]
    assert len(names) == 2 and any(name == "rank 7, 1 alike" or "79" in name for name in names)
    assert len(of(trace_of(report, all_ranks=True), "M", "process_name")) == 80


@pytest.mark.parametrize(
    "incident",
    ["raising_rank_torchrun", "mesh_opposite_order", "uneven_loader_timeout", "stuck_loader_detail"],
)
def test_real_incidents_give_a_valid_trace(incident: str) -> None:
    trace_of(analyze(FIXTURES / incident))


def test_deaths_and_watchdogs_are_instants(tmp_path: Path) -> None:
    recorders = job(2)
    for recorder in recorders:
        recorder.call("all_reduce", times=3)
    recorders[0].call("all_reduce", state="started")
    line = "[rank0]:[E1123 17:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out."
    write_all(recorders, tmp_path / "dumps")
    (tmp_path / "rank0.log").write_text(f"2026-03-12T07:30:00.000000Z {line}\n")
    events = trace_of(analyze(tmp_path))
    marks = [mark for mark in of(events, "i") if "time" not in mark["args"]]
    assert [mark["pid"] for mark in marks] == [0] and marks[0]["ts"] > max(e["ts"] for e in of(events, "X"))


def test_the_command_writes_a_trace(inside: Run, hang: Path, tmp_path: Path) -> None:
    file = tmp_path / "here" / "trace.json"
    done = inside("trace", hang, "-o", file)
    assert (done.returncode, done.stdout) == (0, "") and "events" in done.stderr
    assert is_trace(file) and inside("trace", hang, "-o", file, "-q").stderr == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_slice_ends_at_the_recorded_completion(tmp_path: Path, as_json: bool) -> None:
    recorders = job(2)
    for recorder in recorders:
        recorder.call("all_reduce", times=3)
        recorder.call("all_reduce", state="scheduled")
    write_all(recorders, tmp_path)
    if as_json:
        for path in tmp_path.iterdir():
            path.write_text(json.dumps(pickle.loads(path.read_bytes())))
    slices = of(trace_of(analyze(tmp_path, completions=True)), "X", "all_reduce")
    done = [event for event in slices if event["args"]["state"] == "done"]
    assert len(done) == 6 and {event["dur"] for event in done} == {5.0}  # µs
    assert all("end" not in event["args"] for event in done)
    assumed = of(trace_of(analyze(tmp_path)), "X", "all_reduce")
    assert sum("end" in event["args"] for event in assumed) == 6
