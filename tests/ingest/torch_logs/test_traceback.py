from __future__ import annotations

import pytest

from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.torch_logs.symptoms import is_symptom
from hangscope.ingest.torch_logs.traceback import TracebackParser, is_library
from hangscope.model.frames import Frame
from hangscope.model.incident import Event
from tests.text_lines import settled

LIB = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def traceback(
    last: str, function: str = "step", line: int = 41, prefix: str = "", lib: bool = True, head: bool = True
) -> str:
    text = "Traceback (most recent call last):\n" if head else ""
    text += '  File "/workspace/train/train.py", line 90, in <module>\n    main()\n    ^^^^^^\n'
    text += f'  File "/workspace/train/train.py", line {line}, in {function}\n    dist.all_reduce(grad)\n'
    if lib:
        text += f'  File "{LIB}", line 3252, in all_reduce\n    work.wait()\n'
    return "".join(prefix + row + "\n" for row in [*text.splitlines(), last])


def exceptions(text: str) -> list[Event]:
    reading = settled(text)
    assert reading.notes == []
    return [event for event in reading.events if event.kind == "exception"]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank2]: ",
        "[default2]:[rank2]: ",
        "2: ",
        "2026-11-20 15:13:24 [rank2]: ",
        "(RayTrainWorker pid=7, ip=10.0.0.1) ",
    ],
)
def test_one_traceback_is_one_event(prefix: str) -> None:
    (event,) = exceptions(traceback("ValueError: bad sample: 99", prefix=prefix) + "next\n")
    assert (event.type, event.message) == ("ValueError", "bad sample: 99")
    assert event.frames == (
        Frame("all_reduce", LIB, 3252),
        Frame("step", "/workspace/train/train.py", 41),
        Frame("<module>", "/workspace/train/train.py", 90),
    )
    assert event.code == "dist.all_reduce(grad)"
    assert not event.symptom
    assert (event.line, event.rank) == (9, 2 if "2" in prefix and "Ray" not in prefix else None)


def test_a_rank_in_the_header_raised_it_whoever_prints_it() -> None:
    relayed = traceback("OSError: [Errno 28] No space left on device", prefix="[rank0]: ")
    relayed = relayed.replace("(most recent call last):", "(most recent call last): (RANK 5)")
    assert [(e.rank, e.type) for e in exceptions(relayed)] == [(5, "OSError")]


def test_interleaved_ranks_are_told_apart() -> None:
    a, b = (traceback(f"KeyError: {r}", function=f"f{r}", prefix=f"[rank{r}]: ").splitlines() for r in (0, 1))
    text = "".join(f"{line}\n" for pair in zip(a, b, strict=True) for line in pair)
    assert [(e.rank, e.message, e.frames[1].name) for e in exceptions(text)] == [
        (0, "0", "f0"),
        (1, "1", "f1"),
    ]


def test_two_woven_tracebacks_without_prefixes_keep_both_ends() -> None:
    rows = traceback("RuntimeError: x").splitlines()
    text = "".join(f"{row}\n" for row in rows for _ in range(2)).replace(
        "RuntimeError: x\nRuntimeError: x", "RuntimeError: x\nOSError: y"
    )
    assert [(e.type, e.frames[0].name) for e in exceptions(text)] == [
        ("RuntimeError", "all_reduce"),
        ("OSError", "all_reduce"),
    ]


@pytest.mark.parametrize(
    "marker",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_of_a_chain_the_first_is_the_cause(marker: str, prefix: str) -> None:
    text = (
        traceback("KeyError: 'k'", function="load", prefix=prefix)
        + f"\n{prefix}{marker}\n\n"
        + traceback("RuntimeError: wrapping", prefix=prefix)
        + "end\n"
    )
    (event,) = exceptions(text)
    assert (event.type, event.message, event.frames[1].name) == (
        "KeyError",
        "'k'",
        "load",
    )


def test_an_interrupt_ends_what_had_survived_the_error_it_was_handling() -> None:
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    pressed = traceback("KeyboardInterrupt", function="poll") + "end\n"
    (event,) = exceptions(traceback("BlockingIOError: busy", function="lock") + between + pressed)
    assert (event.type, event.frames[1].name) == ("KeyboardInterrupt", "poll")
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4242"
    (event,) = exceptions(traceback(lost) + between + pressed)
    assert event.symptom


def test_a_loader_workers_exception_is_the_cause_of_the_one_that_quotes_it() -> None:
    text = traceback("ValueError: Caught ValueError in DataLoader worker process 0.", prefix="[rank1]: ")
    text += (
        "[rank1]: Original "
        + traceback("ValueError: corrupt sample 5", function="__getitem__", prefix="[rank1]: ", lib=False)[
            len("[rank1]: ") :
        ]
    )
    (event,) = exceptions(text)
    assert (event.message, event.frames[0].name) == ("corrupt sample 5", "__getitem__")


def test_two_unrelated_tracebacks_are_two_events() -> None:
    assert [e.type for e in exceptions(traceback("KeyError: 1") + "step 4\n" + traceback("OSError: 2"))] == [
        "KeyError",
        "OSError",
    ]


def test_a_log_that_begins_or_ends_within_a_traceback() -> None:
    (event,) = exceptions(traceback("ValueError: x", head=False))
    assert len(event.frames) == 3
    (cut,) = exceptions("\n".join(traceback("ValueError: x").splitlines()[:-1]))
    assert (cut.type, cut.truncated, len(cut.frames)) == ("", True, 3)
    (bare,) = exceptions("[rank4]: RuntimeError: something\n")
    assert (bare.rank, bare.frames) == (4, ())


@pytest.mark.parametrize(
    "text",
    [
        "an Error: occurred",
        "INFO: Exception: nothing\n",
        '  File "x.py" is missing',
        "Traceback (most recent call last):\n",
        "logger says Traceback (most recent call last): here",
    ],
)
def test_other_text_is_no_exception(text: str) -> None:
    assert exceptions(text) == []


def test_the_same_traceback_twice_is_one_event() -> None:
    assert len(exceptions(traceback("ValueError: x", prefix="[rank2]: ") * 2)) == 1


@pytest.mark.parametrize(
    "kind",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
    ],
)
def test_the_launchers_own_traceback_is_no_ranks(kind: str) -> None:
    assert exceptions(traceback(kind)) == []


@pytest.mark.parametrize(
    ("kind", "message", "symptom"),
    [
        ("RuntimeError", "[/x/pair.cc:553] Connection closed by peer [10.0.0.1]:1.", True),
        (
            "RuntimeError",
            "[/x/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
            True,
        ),
        ("RuntimeError", "Detected mismatch between collectives on ranks. Rank 0 is", True),
        (
            "torch.distributed.DistBackendError",
            "NCCL error in: x:1, remote process exited or there was a network error",
            True,
        ),
        ("torch.distributed.DistBackendError", "NCCL error in: x:1, unhandled cuda error", False),
        ("torch.distributed.DistNetworkError", "The client socket has timed out after 1ms", True),
        ("RuntimeError", "DDP expects same model across all ranks, but Rank 0 has", True),
        ("ValueError", "label 99 out of range", False),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", False),
        ("torch.OutOfMemoryError", "CUDA out of memory.", False),
    ],
)
def test_symptoms_are_marked(kind: str, message: str, symptom: bool) -> None:
    assert is_symptom(kind, message) is symptom
    (event,) = exceptions(traceback(f"{kind}: {message}"))
    assert event.symptom is symptom


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (LIB, True),
        ("/usr/lib/python3.11/threading.py", True),
        ("/workspace/train/train.py", False),
        ("/workspace/torch_train/model.py", False),
        ("<frozen runpy>", True),
        ("train.py", False),
        ("C:\\venv\\site-packages\\x.py", True),
    ],
)
def test_user_code_and_libraries(path: str, library: bool) -> None:
    assert is_library(path) is library


def test_a_hostile_traceback_stays_small() -> None:
    frames = '  File "a.py", line 1, in f\n' * 20_000
    found = exceptions(f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n")
    assert all(len(event.frames) <= 200 for event in found)


def test_a_traceback_that_never_ends_is_given_up() -> None:
    parser = TracebackParser()
    begin = ["[rank3]: Traceback (most recent call last):"]
    begin += [f'[rank3]:   File "/workspace/train/a.py", line {n}, in f' for n in (3, 4)]
    events: list[Event] = []
    for number, text in enumerate([*begin, *["step 12 loss 1.234"] * 25_000], start=1):
        events += parser.feed(strip_prefix(text, number, "a.log"))
        if number == 19_000:
            assert parser.wants_more and not events
    assert not parser.wants_more
    assert [(e.kind, e.rank, e.truncated) for e in events] == [("exception", 3, True)]


def test_below_a_task_error_of_ray_are_the_frames_of_the_actor_with_that_process_id() -> None:
    error = "ray.exceptions.RayTaskError(ValueError): ray::Actor.load() (pid=812, ip=10.3.0.21, actor_id=c1d2, repr=<x>)"
    of_the_driver = traceback(error, "get", prefix="")
    of_the_actor = traceback("ValueError: bad shard", "load", line=48, lib=False, head=False)
    (event,) = exceptions(of_the_driver + of_the_actor)
    assert (event.pid, event.type, event.frames[0].line, len(event.frames)) == (812, "ValueError", 48, 2)
