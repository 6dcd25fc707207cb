from __future__ import annotations

import faulthandler
import io
import json
import tempfile
import threading
from typing import IO

import pytest

from hangscope.ingest.files.sniff import sniff
from hangscope.ingest.stacks.dumps import read_processes
from hangscope.ingest.stacks.threads import looks_like_spy_json
from hangscope.model.incident import Stack

FAULT = """Current thread 0x00007f4b7d1296c0 (most recent call first):
  File "/workspace/train/watch.py", line 17 in _watch
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f4b9c884b80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/workspace/train/train.py", line 11 in <module>
"""
SPY = """Process 123: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 123 (idle): "MainThread"
    wait (threading.py:320)
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    <module> (train.py:11)
Thread 140 (active+gil): "loader"
    read (data.py:3)
"""
GDB = """Thread 2 (Thread 0x7f2c8a7fc700 (LWP 4250) "pt_autograd_0"):
#0  0x00007f2c9 in pthread_cond_wait@@GLIBC_2.3.2 () from /lib64/libpthread.so.0
Thread 1 (Thread 0x7f2c9b4ff740 (LWP 4242) "python"):
#0  0x00007f2c9b0fbd in poll () from /lib64/libc.so.6
#1  0x00007f2c9b0fbe in _PyEval_EvalFrameDefault (tstate=0x1, frame=0x2) at Python/ceval.c:5000
#2  Frame 0x55, for file /workspace/train/train.py, line 12, in step (x=1)
"""


def _first(stream: IO[bytes]) -> list[tuple[str, Stack, bool]]:
    """Return the threads of the first process; nothing where there is none."""
    return [thread for process in read_processes(stream, "s.txt")[:1] for thread in process.threads]


def names(text: str) -> list[tuple[str, list[str], bool]]:
    assert sniff(text.encode()[:8192]) in ("stacks", "json")
    return [
        (name, [str(frame) for frame in stack], main)
        for name, stack, main in _first(io.BytesIO(text.encode()))
    ]


def test_faulthandler_without_the_thread_that_dumped() -> None:
    assert names(FAULT) == [
        ("MainThread", ["distributed_c10d.py:3252 in all_reduce", "train.py:11 in <module>"], True)
    ]


def test_the_main_thread_that_dumps_itself_stays() -> None:
    text = 'Current thread 0x01 (most recent call first):\n  File "train.py", line 4 in hook\n'
    assert names(text) == [("MainThread", ["train.py:4 in hook"], True)]


def test_the_last_of_several_dumps_counts() -> None:
    later = FAULT.replace("line 11 in <module>", "line 12 in <module>")
    assert names(FAULT + "\n" + later)[0][1][-1] == "train.py:12 in <module>"


def test_a_real_dump_of_this_process() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        done.set()
        thread.join()
        file.seek(0)
        threads = _first(file)
    assert [main for _, _, main in threads].count(True) == 1
    assert any(frame.name == "test_a_real_dump_of_this_process" for frame in threads[0][1])


def test_py_spy_text_and_json() -> None:
    assert names(SPY) == [
        (
            "MainThread",
            ["threading.py:320 in wait", "distributed_c10d.py:3252 in all_reduce", "train.py:11 in <module>"],
            True,
        ),
        ("loader", ["data.py:3 in read"], False),
    ]
    frames = [
        {"name": "wait", "filename": "/usr/lib/threading.py", "line": 320},
        {"name": "<module>", "filename": "train.py", "line": 11},
    ]
    data = json.dumps(
        [
            {"pid": 9, "thread_name": "x", "frames": []},
            {"pid": 9, "thread_id": 1, "thread_name": "MainThread", "frames": frames},
        ]
    )
    assert names(data)[0] == ("MainThread", ["threading.py:320 in wait", "train.py:11 in <module>"], True)


def test_py_spys_qualified_names_are_those_of_tracebacks_but_for_what_cpp_names() -> None:
    shown = {
        "Trainer.train": "train",
        "_logger.<locals>.wrapper": "wrapper",
        "Loss.<lambda>": "<lambda>",
        "<module>": "<module>",
        "std::condition_variable::wait": "std::condition_variable::wait",
        "at::add(at::Tensor...)": "at::add(at::Tensor...)",
    }
    lines = "".join(f"    {name} (torch/x.py:3)\n" for name in shown)
    text = f'Process 1: python\n\nThread 1 (idle): "MainThread"\n{lines}'
    told = [f"x.py:3 in {name}" for name in shown.values()]
    rows = [{"name": name, "filename": "torch/x.py", "line": 3} for name in shown]
    as_json = json.dumps([{"pid": 1, "thread_name": "MainThread", "frames": rows}])
    kept = [line for line in told if "(" not in line]  # parentheses end the name in text
    assert [f for f in names(text)[0][1] if "(" not in f] == kept
    assert names(as_json)[0][1] == told


def test_gdb_and_pstack() -> None:
    assert names(GDB)[0] == (
        "python",
        ["poll (libc.so.6)", "ceval.c:5000 in _PyEval_EvalFrameDefault", "train.py:12 in step"],
        True,
    )
    single = "#0  0x00007f2c9b0fbd in poll () from /lib64/libc.so.6\n#1  0x01 in main () from python\n"
    assert names(single) == [("MainThread", ["poll (libc.so.6)", "main (python)"], True)]


def test_one_file_for_all_ranks() -> None:
    text = f"=== Rank 0: http://a:1 ===\n{FAULT}=== Rank 1: http://b:1 ===\nError: 500\n=== Rank 2: http://c:1 ===\n{SPY}"
    processes = read_processes(io.BytesIO(text.encode()), "stacks_1.txt")
    assert [(p.rank, p.pid, len(p.threads)) for p in processes] == [(0, None, 1), (2, 123, 2)]
    mixed = "".join(f"[rank{r}]: {row}\n" for row in FAULT.splitlines() for r in (4, 5))
    assert [(p.rank, p.threads[0][1][0].name) for p in read_processes(io.BytesIO(mixed.encode()), "a")] == [
        (4, "all_reduce"),
        (5, "all_reduce"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a log line\n",
        b"Thread pool started\n",
        b"[rank0]: Traceback (most recent call last):\n",
        b"[1, 2]",
        b"rank 3:\n\t   - [0, 1] joined but didn't finish collective #412 (count from 1)\n",
        b"\x00\xff",
    ],
)
def test_other_files_are_no_stacks(data: bytes) -> None:
    assert not looks_like_spy_json(data)
    assert _first(io.BytesIO(data)) == []


@pytest.mark.parametrize("cut", [30, 90, 400])
def test_a_cut_dump_gives_what_it_holds(cut: int) -> None:
    threads = _first(io.BytesIO(FAULT[:cut].encode()))
    assert len(threads) <= 1


def spy(pid: int) -> str:
    return SPY.replace("123", str(pid))


@pytest.mark.parametrize(
    "title",
    [
        "rank {}:",
        "### Rank {}",
        "The stack for rank{}:",
        "py-spy dump of rank {} (pid 88)",
        "=== Rank {} ===",
        "===== n01 rank {} pid 31842 =====",
        "and what rank {} did during such a break (step 5000):",
    ],
)
def test_a_title_above_a_dump_tells_whose_it_is(title: str) -> None:
    text = "\n".join([title.format(3), "```", spy(123), "```", title.format(5), spy(124)])
    found = read_processes(io.BytesIO(text.encode()), "stacks.txt")
    assert [process.rank for process in found] == [3, 5]
    assert all(process.threads[0][1][0].name == "wait" for process in found)


def test_a_title_counts_for_the_one_process_right_below_it() -> None:
    found = read_processes(io.BytesIO("\n".join(["rank 3:", spy(123), spy(124)]).encode()), "stacks.txt")
    assert [(process.rank, process.pid) for process in found] == [(3, 123), (None, 124)]
    far = "\n".join(["rank 3", "some", "other", "text", "between", spy(123)])
    assert [process.rank for process in read_processes(io.BytesIO(far.encode()), "stacks.txt")] == [None]
    remark = [line.replace('"MainThread"', '"MainThread"      # rank 6') for line in spy(123).splitlines()]
    assert [
        process.rank for process in read_processes(io.BytesIO("\n".join(remark).encode()), "stacks.txt")
    ] == [6]
    prose = "\n".join(["all ranks wait for rank 0", spy(123)])
    assert [process.rank for process in read_processes(io.BytesIO(prose.encode()), "stacks.txt")] == [None]


PYSTACK = """Traceback for thread 4711 (python) [Has the GIL] (most recent call last):
    (Python) File "/workspace/train/train.py", line 132, in <module>
        main()
    (Python) File "/workspace/train/data.py", line 12, in load
        lock.acquire()
    (C) File "???", line 0, in pthread_cond_wait (libpthread.so.0)
"""


def test_pystack_prints_the_outermost_frame_first() -> None:
    assert sniff(PYSTACK.encode()) == "stacks"
    ((_, stack, _),) = _first(io.BytesIO(PYSTACK.encode()))
    assert [frame.name for frame in stack] == ["pthread_cond_wait", "load", "<module>"]


def test_frames_of_a_traceback_below_a_title_are_a_stack_and_below_its_own_header_are_none() -> None:
    frames = '  File "train.py", line 9, in <module>\n    main()\n  File "train.py", line 4, in main\n'
    (process,) = read_processes(io.BytesIO(f"rank 1:\n{frames}".encode()), "s.txt")
    assert process.rank == 1 and [frame.line for frame in process.threads[0][1]] == [4, 9]
    header = "Traceback (most recent call last):\n"
    for text in (frames, frames.replace("    main()\n", "")):  # with and without the source lines
        raised = read_processes(io.BytesIO(f"rank 1:\n{header}{text}".encode()), "s.txt")
        assert not any(process.threads for process in raised)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("err.{}", [0, 1, 2]), ("logs/w{}.err", [0, 1, 2]), ("node{}.log", [None, None, None])],
)
def test_stacks_below_the_names_of_numbered_files_are_of_ranks_unless_nodes_are_numbered(
    name: str, ranks: list[int | None]
) -> None:
    main = 'Current thread 0x01 (most recent call first):\n  File "train.py", line {} in step\n'
    text = "\n".join(f"==> {name.format(n)} <==\n{main.format(4 + n)}" for n in range(3))
    found = read_processes(io.BytesIO(text.encode()), "all.txt")
    shown = [(process.rank, process.threads[0][1][0].line) for process in found]
    assert shown == [(rank, 4 + n) for n, rank in enumerate(ranks)]


def test_a_hang_detectors_stacks_and_those_that_a_person_calls_the_same() -> None:
    """TensorRT-LLM prints the outermost frame first; `the same as rank 0` stands for the stack below a header."""
    lines = []
    for rank in range(3):
        lines.append(f"[TRT-LLM] [RANK {rank}] [E] Thread 139{rank} stack trace:")
        lines += [
            '  File "/opt/exec.py", line 9, in run',
            f'  File "/opt/exec.py", line {20 + rank}, in step',
        ]
        lines[-2:] = ["  (same two frames as rank 0, ends in step)"] if rank == 2 else lines[-2:]
    found = read_processes(io.BytesIO("\n".join(lines).encode()), "stacks.txt")
    assert {p.rank: p.threads[0][1][0].line for p in found if p.threads} == {0: 20, 1: 21, 2: 20}


def test_a_ruled_title_with_a_process_id_and_a_shortened_head_begin_processes() -> None:
    text = """### 10.2.0.31, pid 3541
Thread 3890 (active): "TrainingThread"
    step (train.py:118)

and the loader child:
Process 3410: Thread 3410 (idle): "MainThread"
    read (data.py:52)
"""
    found = read_processes(io.BytesIO(text.encode()), "s.txt")
    assert [(p.pid, str(p.threads[0][1][0])) for p in found] == [
        (3541, "train.py:118 in step"),
        (3410, "data.py:52 in read"),
    ]
