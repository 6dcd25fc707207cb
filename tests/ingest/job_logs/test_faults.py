from __future__ import annotations

import io

import pytest

from hangscope.ingest.workers.reading import read_log
from hangscope.model.frames import Frame
from hangscope.model.incident import Event

CASES = [
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
        "oom_cuda",
        {"requested": 2 * 2**30},
    ),
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79 GiB",
        "oom_cuda",
        {"requested": 20 * 2**20},
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.",
        "oom_cuda",
        {"implausible": True},
    ),
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "cuda_error",
        {"error": "an illegal memory access was encountered"},
    ),
    (
        "RuntimeError: CUDA error: device-side assert triggered",
        "cuda_error",
        {"error": "device-side assert triggered"},
    ),
    (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "cuda_error",
        {"error": "uncorrectable ECC error encountered"},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "xid",
        {"code": 79, "device": "0000:3b:00"},
    ),
    ("Out of memory: Killed process 4242 (python) total-vm:1kB", "oom_host", {"victim_pid": 4242}),
    (
        "Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB",
        "oom_host",
        {"victim_pid": 4242},
    ),
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,task=python,pid=4242,uid=0",
        "oom_host",
        {"victim_pid": 4242},
    ),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        "oom_host",
        {},
    ),
    ("    Reason:       OOMKilled", "oom_host", {}),
    (
        "RuntimeError: DataLoader worker (pid 24509) is killed by signal: Killed. ",
        "loader_worker_death",
        {"worker_pid": 24509, "signal": "Killed"},
    ),
    (
        "RuntimeError: DataLoader worker (pid(s) 11, 12) exited unexpectedly",
        "loader_worker_death",
        {"worker_pid": 11},
    ),
    (
        "ERROR: Unexpected bus error encountered in worker. This might be",
        "loader_worker_death",
        {"signal": "bus error"},
    ),
    ("OSError: [Errno 28] No space left on device", "disk_full", {}),
]


def events(text: str) -> list[Event]:
    reading = read_log(io.BytesIO(text.encode()), "job.log")
    assert reading.notes == []
    return reading.events


@pytest.mark.parametrize(("text", "kind", "fields"), CASES)
def test_each_fault_becomes_its_event(text: str, kind: str, fields: dict[str, object]) -> None:
    (event,) = [event for event in events(f"[rank1]: {text}") if event.kind == kind]
    assert event.rank == 1
    assert {name: getattr(event, name) for name in fields} == fields


@pytest.mark.parametrize(("text", "kind", "fields"), CASES)
def test_a_third_of_a_line_says_nothing(text: str, kind: str, fields: dict[str, object]) -> None:
    assert [event for event in events(text[: len(text) // 3]) if event.kind == kind] == []


def test_a_line_put_together_from_two_is_no_line_of_the_kernel() -> None:
    assert not [
        e
        for e in events("[rank0]: Traceback (most recent cagroup out of memory: Killed process 4242 (python)")
        if e.kind == "oom_host"
    ]


def test_kernel_lines_carry_their_host_and_nobodys_rank() -> None:
    said = "Nov 20 04:20:31 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid=1, name=python\n"
    (event,) = (e for e in events(said) if e.kind == "xid")
    assert (event.host, event.rank, event.code) == ("gpu07", None, 94)
    assert event.time is None and event.stamp is not None


def test_cuda_out_of_memory_is_no_other_cuda_error() -> None:
    assert {event.kind for event in events("RuntimeError: CUDA error: out of memory")} == {
        "oom_cuda",
        "exception",
    }


def test_terminate_and_what_are_one_event_per_writer() -> None:
    text = (
        "[default0]:terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "[default1]:terminate called after throwing an instance of 'c10::Error'\n"
        "[default0]:  what():  [enforce fail at pair.cc:1] one\n"
        "[default1]:  what():  two\n"
        "[default2]:terminate called without an active exception\n"
    )
    found = [event for event in events(text) if event.kind == "terminate"]
    assert [(e.local_rank, e.type, e.what) for e in found] == [
        (0, "gloo::EnforceNotMet", "[enforce fail at pair.cc:1] one"),
        (1, "c10::Error", "two"),
        (2, None, "without an active exception"),
    ]


def test_a_fatal_error_of_the_interpreter_keeps_its_frames() -> None:
    text = (
        "[default1]:Fatal Python error: Segmentation fault\n[default1]:\n"
        "[default1]:Thread 0x00007f04cabff000 (most recent call first):\n"
        '[default1]:  File "/usr/lib/python3.11/threading.py", line 3 in wait\n[default1]:\n'
        "[default1]:Current thread 0x00007f04cabffb80 (most recent call first):\n"
        '[default1]:  File "/workspace/train/data.py", line 57 in load\n'
        "[default0]:something else\n"
        '[default1]:  File "/workspace/train/train.py", line 65 in <module>\n'
    )
    (event,) = (event for event in events(text) if event.kind != "printed")
    assert event.frames == (
        Frame("load", "/workspace/train/data.py", 57),
        Frame("<module>", "/workspace/train/train.py", 65),
    )
    assert event.what == "Fatal Python error: Segmentation fault"
