from __future__ import annotations

import io
import json
import marshal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.evidence.text_evidence import identity
from hangscope.ingest.files.naming import attempt_of, rank_of_log
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import LogReading, Reading, read_log
from hangscope.model.codec import from_row, to_fields
from tests.text_lines import settled

INCIDENTS = Path(__file__).parents[3] / ".." / "shared" / "incidents"
AGENT = "E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: x\n"
CLOSED = "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:1.\n"


def read(text: str, file: str = "job.log") -> LogReading:
    return settled(text, file)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rank0.err", (0, None, None)),
        ("logs/rank_3.log", (3, None, None)),
        ("stderr-12.txt", (12, None, None)),
        ("task_3.out", (3, None, None)),
        ("rank17/stderr.log", (17, None, None)),
        ("logs/restart_1/rank_12.err", (12, None, 1)),
        ("log_dir/none_x1/attempt_0/2/stderr.log", (None, 2, 0)),
        ("log_dir/none_x1/attempt_3/stderr.log", (None, None, 3)),
        ("local_rank_1.log", (None, 1, None)),
        ("slurm-812345.out", (None, None, None)),
        ("torchrun.stderr", (None, None, None)),
        ("frank5.log", (None, None, None)),
        ("a\\rank_2\\x.log", (2, None, None)),
        ("train.log.1", (None, None, None)),
        ("worker-3.log", (3, None, None)),
        ("log_3.txt", (3, None, None)),
        ("w2.log", (2, None, None)),
        ("stage1/stdout.log", (1, None, None)),
        ("logs/worker-2/err", (2, None, None)),
        ("stage1/train.log", (None, None, None)),
        ("node1.log", (None, None, None)),
        ("v2.log", (None, None, None)),
    ],
)
def test_what_a_path_says(path: str, expected: tuple[int | None, int | None, int | None]) -> None:
    assert (*rank_of_log(path), attempt_of(path)) == expected


def test_a_local_rank_is_not_a_global_one() -> None:
    reading = read(CLOSED, "log_dir/none_x1/attempt_0/2/stderr.log")
    assert {(e.rank, e.local_rank, e.attempt) for e in reading.events} == {(None, 2, 0)}
    known = read(
        f"[rank10]: {CLOSED}terminate called without an active exception\n",
        "log_dir/none_x1/attempt_0/2/stderr.log",
    )
    assert {e.rank for e in known.events} == {10}


def test_local_ranks_are_mapped_within_a_log() -> None:
    reading = read(f"[default1]:loop ended\n[default1]:[rank9]: {CLOSED}")
    assert next((e.kind, e.rank) for e in reading.events) == ("progress", 9)


def test_task_numbers_are_ranks_unless_lines_contradict() -> None:
    assert {e.rank for e in read(f"3: {CLOSED}").events} == {3}
    nodes = read(f"1: [rank9]: {CLOSED}1: OSError: x\n")
    assert [(e.rank, e.task) for e in nodes.events if e.kind == "exception" and e.type == "OSError"] == [
        (None, 1)
    ]
    assert [e.rank for e in read("1: " + AGENT.format(code=1, local=0, pid=5)).events] == [None]


def test_attempts_in_one_log() -> None:
    first = f"[rank1]: ValueError: a\n[rank0]: {CLOSED}" + AGENT.format(code=1, local=1, pid=11)
    second = "[rank0]: OSError: b\n" + AGENT.format(code=1, local=0, pid=12)
    reading = read(first + second + "[rank0]: KeyError: c\n")
    told = [
        (getattr(e, "type", e.kind), e.attempt) for e in reading.events if e.kind in ("exception", "exit")
    ]
    assert told == [
        ("ValueError", 0),
        ("RuntimeError", 0),
        ("exit", 0),
        ("OSError", 1),
        ("exit", 1),
        ("KeyError", 2),
    ]
    assert {e.attempt for e in read(first).events} == {None}


def test_a_table_behind_a_restart_is_of_the_attempt_that_began_then() -> None:
    restart = "I1120 15:31:49.900000 29458 torch/distributed/elastic/agent/server/api.py:920] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    entry = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-20_15:33:02\n  host      : gpu07\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 33)\n"
    reading = read(AGENT.format(code=-9, local=2, pid=19) + restart + entry)
    assert [e.attempt for e in reading.events if e.kind == "exit"] == [0, 1]
    told = read(AGENT.format(code=-9, local=2, pid=19) + entry).events
    assert [e.attempt for e in told if e.kind == "exit"] == [None, None]


def test_what_stands_before_the_agents_word_of_a_restart_is_of_the_attempt_that_failed() -> None:
    restart = "I1120 15:31:49.900000 29458 torch/distributed/elastic/agent/server/api.py:920] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    reading = read(
        AGENT.format(code=1, local=0, pid=19) + "OSError: b\n" + restart + "[rank0]: KeyError: c\n"
    )
    told = [(e.type, e.attempt) for e in reading.events if isinstance(e, RankException)]
    assert told == [("OSError", 0), ("KeyError", 1)]


def test_two_agents_end_one_attempt_together() -> None:
    a, b = (
        AGENT.format(code=1, local=0, pid=1),
        AGENT.format(code=1, local=0, pid=2).replace("29458", "31000"),
    )
    reading = read(f"[rank0]: ValueError: x\n{a}[rank8]: {CLOSED}{b}[rank0]: OSError: y\n")
    assert [e.attempt for e in reading.events if e.kind == "exception"] == [0, 0, 1]


def test_what_a_watcher_notes_is_quoted_as_nobodys_output() -> None:
    text = "program: sh\nNCCL_DEBUG: WARN\nexit: 7\n"
    assert read(text).excerpt is not None
    assert read(text, "job/launcher/gpu07.4711.run").excerpt is None


def test_wire_form_is_builtins_and_whole() -> None:
    reading = read(
        f"[default1]:[rank9]: {CLOSED}[rank0]: Ranks 1, 3 failed to pass monitoredBarrier in 8 ms\n"
    )
    again = from_row(LogReading, marshal.loads(marshal.dumps(to_fields(reading))))
    assert again == reading and len(again.events) == 4


def test_progress_is_the_last_line_before_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.ingest.lines.scan.EVENTS_IN_ALL", 600)
    steps = "".join(f"[default{r}]:step {n} loss 0.1\n" for n in range(2_000) for r in (0, 1))
    text = steps + "[default1]:epoch done\n" + "".join(f"[rank0]: {CLOSED}noise\n" for _ in range(700))
    events = [e for e in read(text).events if e.kind == "progress"]
    assert [(e.local_rank, e.step, e.done) for e in events] == [
        (0, 1_999, False),
        (1, 1_999, False),
        (1, None, True),
    ]


@pytest.mark.parametrize(
    ("text", "step", "done"),
    [
        ("app r1: train step 2 done", 2, False),
        ("epoch done 1", None, True),
        ("loop ended", None, True),
        (" 45%|####5     | 450/1000 [00:10<00:12, 44.2it/s]", 450, False),
        ("Iteration: 17 loss=0.3", 17, False),
        ("Epoch: [3][2340/5004]  Time 0.621 (0.619)", 2340, False),
        ("Training finished", None, True),
        ("reached end", None, True),
    ],
)
def test_progress_lines(text: str, step: int | None, done: bool) -> None:
    (event,) = read(text).events
    assert (event.step, event.done) == (step, done)


@pytest.mark.parametrize(
    "text", ["[I1120 15:13:24.220687360 x.cpp:1] main loop done", "stepping stones", "a 3/4 mix", ""]
)
def test_other_lines_are_no_progress(text: str) -> None:
    assert read(text).events == []


def test_repeats_across_logs_have_one_identity() -> None:
    (tee,) = [e for e in read(f"[rank1]: {CLOSED}").events if e.kind == "exception"]
    (own,) = [
        e
        for e in read(f"[rank1]: {CLOSED}", "log_dir/n/attempt_0/1/stderr.log").events
        if e.kind == "exception"
    ]
    assert identity(tee) == identity(own) is not None
    (other,) = [e for e in read(f"[rank2]: {CLOSED}").events if e.kind == "exception"]
    assert identity(tee) != identity(other)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from(
        [
            b"Traceback (most recent call last):\n",
            b"Root Cause (first observed failure):\n",
            b"terminate called ",
            b"",
        ]
    ),
)
def test_no_bytes_make_it_raise(data: bytes, start: bytes) -> None:
    reading = read_log(io.BytesIO(start + data), "x.log")
    assert [note for note in reading.notes if note.code == "parser_failed"] == []


def incident(name: str) -> list[LogReading]:
    folder = INCIDENTS / name / "dumps"
    if not folder.is_dir():
        pytest.skip("the incidents with known answers are not here")
    readings = []
    for path in sorted(
        p for p in folder.rglob("*") if p.is_file() and p.parent.name not in ("recorder", "stacks")
    ):
        with path.open("rb") as stream:
            file = str(path.relative_to(folder))
            readings.append(Reading(file, "log", "used", "", log=read_log(stream, file)))
    Processes(readings)
    return [reading.log for reading in readings if reading.log is not None]


@pytest.mark.parametrize(
    ("name", "kind", "rank", "fields"),
    [
        ("text/det_c_cond_barrier_next", "fingerprint", 2, {"op": "all_reduce"}),
        ("text/det_d_uneven_then_barrier", "fingerprint", 1, {"op": "barrier", "seq": 9}),
        ("text/det_i_ddp_count", "ddp_params", 2, {"counts": {2: 6, 0: 4}}),
        ("text/off_c_cond_barrier_next", "gloo_timeout", 2, {"what": "recv"}),
        ("text/off_e_value_error", "exception", 2, {"type": "ValueError"}),
        ("text/off_f_sigkill", "exit", 1, {"code": -9, "first": True}),
        ("gloo/shape_mismatch", "gloo_size_mismatch", 0, {"received": 1040, "expected": 1024}),
        ("gloo/uneven_ddp", "progress", 1, {"done": True}),
        ("gloo/rank_conditional", "exception", 3, {"symptom": True}),
    ],
)
def test_real_incidents(name: str, kind: str, rank: int, fields: dict[str, object]) -> None:
    readings = incident(name)
    assert [note for reading in readings for note in reading.notes] == []
    found = [e for reading in readings for e in reading.events if e.kind == kind and e.rank == rank]
    assert any(all(getattr(e, key, None) == value for key, value in fields.items()) for e in found)
    truth = json.loads((INCIDENTS / name / "truth.json").read_text())
    assert truth["culprits"]


@pytest.mark.parametrize(
    ("lines", "ranks"),
    [
        (["mpirun noticed that process rank 5 with PID 812 on node b2 exited on signal 9 (Killed)."], [5]),
        (["  Process name: [[40112,1],2]", "  Exit code:    3"], [2]),
        (["srun: error: gpu07: task 3: Killed"], [None]),
    ],
)
def test_whom_mpirun_started_is_a_rank_and_a_lone_task_of_srun_may_be_an_agent(
    lines: list[str], ranks: list[int | None]
) -> None:
    events = read("\n".join(lines)).events
    assert [event.rank for event in events if event.kind == "exit"] == ranks
