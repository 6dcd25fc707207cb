from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangscope.ingest.lines.prefixes import clean, quote, strip_prefix
from hangscope.ingest.workers.reading import read_log
from hangscope.model.frames import Frame

MESSAGE = "Watchdog caught it"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        # c10's own headers, oldest to newest
        (f"[E ProcessGroupNCCL.cpp:828] {MESSAGE}", {"level": "E", "source": "ProcessGroupNCCL.cpp:828"}),
        (f"[rank3]:[E ProcessGroupNCCL.cpp:523] {MESSAGE}", {"rank": 3, "level": "E"}),
        (f"[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:607] {MESSAGE}", {"rank": 3, "level": "E"}),
        (f"[rank3]:[W129 03:31:38.928019586 TCPStore.cpp:106] {MESSAGE}", {"rank": 3, "level": "W"}),
        (f"E0317 04:20:31.123456 1234 ProcessGroupNCCL.cpp:474] {MESSAGE}", {"rank": None, "level": "E"}),
        # grep over several files
        (f"logs/rank3.log:{MESSAGE}", {"rank": 3}),
        (f"out/train-rank_3.err:77:[E ProcessGroupNCCL.cpp:828] {MESSAGE}", {"rank": 3, "level": "E"}),
        (f"job.12.txt:[rank3]:[E ProcessGroupNCCL.cpp:828] {MESSAGE}", {"rank": 3, "level": "E"}),
        # torch's Python loggers and the agent's
        (f"[rank3]:W1120 15:13:24.451000 17250 torch/_dynamo/x.py:12] {MESSAGE}", {"rank": 3, "pid": 17250}),
        (f"[2025-08-12 01:00:25,401] torch.distributed.elastic.agent: [ERROR] {MESSAGE}", {"level": "E"}),
        (f"ERROR:torch.distributed.elastic.multiprocessing.api:{MESSAGE}", {"level": "E"}),
        # launchers and log shippers
        (f"[default3]:{MESSAGE}", {"rank": None, "local_rank": 3}),
        (f"[default3]:[rank11]: {MESSAGE}", {"rank": 11, "local_rank": 3}),
        (f"[trainer-3-11]: {MESSAGE}", {"rank": 11, "local_rank": 3}),
        (f"11: [rank11]: {MESSAGE}", {"rank": 11, "task": 11}),
        (f" 3: {MESSAGE}", {"rank": None, "task": 3}),
        (f"ms-b | [rank3]: {MESSAGE}", {"host": "ms-b", "rank": 3}),
        (f"[1,12]<stdout>:{MESSAGE}", {"rank": None, "task": 12}),
        (f"[1,12]<stdout>: {MESSAGE}", {"task": 12}),
        (f"[prterun-gpu07-4711@1,12]<stderr>: {MESSAGE}", {"task": 12, "host": None}),
        (f"[1,12][gpu07:881]<stderr>: {MESSAGE}", {"task": 12, "host": "gpu07", "pid": 881}),
        (f"[prterun-gpu07-4711@1,12][gpu07:881]<stderr>: [rank12]: {MESSAGE}", {"rank": 12, "pid": 881}),
        (f"[12]<stdout>: {MESSAGE}", {"task": 12}),
        (f"[Sat Nov  7 22:48:47 2026][1,12]<stdout>: {MESSAGE}", {"task": 12, "time": 1794091727.0}),
        (f"[Sat Nov  7 22:48:47 2026]<stdout>: {MESSAGE}", {"task": None, "time": 1794091727.0}),
        (f"[Sat Nov  7 22:48:47 2026] {MESSAGE}", {"time": 1794091727.0}),
        (f"(RayTrainWorker pid=19799, ip=10.72.0.6) {MESSAGE}", {"pid": 19799, "host": "10.72.0.6"}),
        (f"(DTensorPolicyWorkerV2[rank=3] pid=413) {MESSAGE}", {"pid": 413, "task": 3}),
        (f"[TRT-LLM] [RANK 2] [E] {MESSAGE}", {"rank": 2}),
        (f"[09/04/2026-03:12:45] [TRT-LLM] [E] [_torch][RANK 5] {MESSAGE}", {"rank": 5}),
        (f"[XTuner][RANK 6][2026-05-27 02:10:34] {MESSAGE}", {"rank": 6}),
        (f"\x1b[36m(RayWorkerWrapper pid=4009)\x1b[0m {MESSAGE}", {"pid": 4009}),
        (f"[36m(RayWorkerWrapper pid=4009)[0m {MESSAGE}", {"pid": 4009}),
        (f"[pod/train-worker-1/main] [rank1]: {MESSAGE}", {"rank": 1, "host": "train-worker-1"}),
        (f"g002: {MESSAGE}", {"host": "g002"}),
        (f"node7 [stderr] [rank14]:{MESSAGE}", {"rank": 14, "host": "node7"}),
        (f"2026-09-18 19:29:24 [rank3]: {MESSAGE}", {"rank": 3}),
        (f"2026-09-18T19:29:24.870Z stderr F [rank3]: {MESSAGE}", {"rank": 3}),
        (f"2026-09-18T19:29:24.870Z | [rank6]:{MESSAGE}", {"rank": 6}),
        (f"[1787] [rank2]:{MESSAGE}", {"rank": 2}),
        (f"[1,mpirank:3,algo-1]<stderr>:{MESSAGE}", {"task": 3, "host": "algo-1"}),
        (f"trainer-1  | {MESSAGE}", {"host": "trainer-1"}),
        (f"trainer-1  | [rank3]: {MESSAGE}", {"rank": 3, "host": "trainer-1"}),
        (f"Nov 20 15:13:24 gpu07 python[123]: {MESSAGE}", {"host": "gpu07", "pid": 123}),
        (f"2026-11-20T15:13:24+0000 gpu07 python[123]: {MESSAGE}", {"host": "gpu07", "pid": 123}),
        (f"(pid=123) {MESSAGE}", {"pid": 123}),
        # a progress bar that ended without a line break, and a damaged bracket
        (f"50%|##   | 5/10 [00:01<00:01][rank1]: {MESSAGE}", {"rank": 1}),
        (f"[rank1[ {MESSAGE}", {"rank": 1}),
    ],
)
def test_prefixes_are_taken_off_and_read(raw: str, expected: dict[str, object]) -> None:
    line = strip_prefix(raw)
    assert line.text == MESSAGE
    assert {name: getattr(line, name) for name in expected} == expected


@pytest.mark.parametrize(
    "stamp", ["2026-03-02 11:00:21,118", "2026-03-02T11:00:21.118Z", "2026-03-02 11:00:21 UTC"]
)
@pytest.mark.parametrize("end", [" ", "\t"])
def test_the_indentation_behind_a_stamp_stays(stamp: str, end: str) -> None:
    assert strip_prefix(f'{stamp}{end}  File "a.py", line 3, in f').text == '  File "a.py", line 3, in f'


@pytest.mark.parametrize(
    "raw",
    [
        "RuntimeError: no",
        "config.txt: loaded",
        "step3: loss 1",
        "plain text",
        "node1:11:12 [0] NCCL INFO x",
        '  File "a.py", line 3, in f',
        "[Rank 3] x",
        "rank3: x",
        "[0] step 3",
        "python[123]: x",
        "step-3 | loss 0.1",
        '{"stream":"stderr"}',
    ],
)
def test_text_that_only_resembles_a_prefix_stays(raw: str) -> None:
    line = strip_prefix(raw)
    assert (line.text, line.rank, line.task, line.host) == (raw, None, None, None)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,mpirank:3,algo-1]<stderr>:",
        "[1,3]<stderr>:",
        "[1,3]<stderr>: ",
        "[prterun-gpu07-4711@1,3][gpu07:881]<stderr>: ",
        "[3]<stderr>: ",
        "trainer-1  | ",
        "[0] ",
        "Nov 20 15:13:24 gpu07 python[123]: ",
        "(pid=123) ",
    ],
)
def test_a_traceback_behind_any_prefix_is_whole(prefix: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/workspace/train/a.py", line 3, in f',
        "    g()",
        "ValueError: x",
    ]
    text = "".join(f"{prefix}{line}\n" for line in lines)
    (event,) = read_log(io.BytesIO(text.encode()), "a.log").events
    assert (event.kind, event.frames) == ("exception", (Frame("f", "/workspace/train/a.py", 3),))


def test_what_programs_count_is_no_unit() -> None:
    assert strip_prefix("2026-09-18 19:29:24 train step[100]: x").text == "train step[100]: x"


def test_indentation_of_a_traceback_survives() -> None:
    assert (
        strip_prefix('[default0]:[rank0]:   File "a.py", line 3, in f').text == '  File "a.py", line 3, in f'
    )
    assert strip_prefix('3:   File "a.py", line 3, in f').text == '  File "a.py", line 3, in f'


def test_times_are_absolute_only_where_the_year_is_printed() -> None:
    c10 = strip_prefix("[rank0]:[E1120 15:13:24.220687360 socket.cpp:1] x")
    assert c10.time is None
    assert c10.stamp is not None and c10.stamp == int(c10.stamp)  # the fraction comes from another clock
    iso = strip_prefix("2026-11-20T15:13:24.500Z [rank0]: x")
    assert (iso.time, iso.stamp) == (1795187604.5, c10.stamp + 0.5)
    assert strip_prefix("2026-11-20T16:13:24.500+01:00 x").time == iso.time
    assert strip_prefix("2026-99-99 15:13:24 x").time is None


def test_two_writers_have_two_origins() -> None:
    a, b, c = (strip_prefix(raw) for raw in ("[rank1]: x", "[rank1]:[E socket.cpp:1] x", "[rank2]: x"))
    assert a.origin == b.origin != c.origin


def test_control_characters_never_pass() -> None:
    assert clean("a\x1b[31mb\x1b]0;title\x07c\x00d\u202ee\x9bf\tg") == "abc\ufffddef\tg"
    assert quote("x" * 600) == "x" * 499 + "…"


@given(st.text(max_size=300))
def test_any_text_is_accepted(text: str) -> None:
    line = strip_prefix(text)
    assert not any(ord(c) < 32 and c != "\t" for c in line.raw)


def test_the_inner_of_two_rank_prefixes_is_the_global_rank() -> None:
    line = strip_prefix("[rank0]:[rank4]: torch.distributed.DistBackendError: [1] is setting up")
    assert (line.rank, line.local_rank, line.text[:5]) == (4, 0, "torch")
