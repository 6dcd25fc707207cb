"""How a pod's container ended, as `kubectl describe pod` prints it."""

from __future__ import annotations

import io

import pytest

from hangscope.ingest.workers.reading import read_log

POD = """Name:             run-7c9-worker-2
Namespace:        vision
Status:           Failed
Containers:
  sidecar:
    State:          Running
    Ready:          True
  pytorch:
    Image:          registry/run:1
    State:          {state}
      Reason:       {reason}
      Exit Code:    {code}
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Limits:
      nvidia.com/gpu:  {gpus}
    Environment:
      WORLD_SIZE:   4
      RANK:         3
Events:
  Type     Reason   Age   From     Message
"""


def told(**fields: object) -> list[tuple[str, int | None, str | None]]:
    text = POD.format(**{"state": "Terminated", "reason": "Error", "code": 1, "gpus": 1, **fields})
    found = read_log(io.BytesIO(text.encode()), "describe.txt").events
    return [(e.kind, e.rank, e.host) for e in found if e.host is not None]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [("exit", 3, "run-7c9-worker-2")]),
        ({"reason": "OOMKilled", "code": 137}, [("oom_host", 3, "run-7c9-worker-2")]),
        ({"gpus": 8}, [("exit", None, "run-7c9-worker-2")]),
        ({"code": 0, "reason": "Completed"}, []),
        # it was started again
        ({"state": "Running"}, [("oom_host", 3, "run-7c9-worker-2")]),
    ],
)
def test_a_container_that_failed_tells_its_rank(
    fields: dict[str, object], expected: list[tuple[str, int | None, str | None]]
) -> None:
    assert told(**fields) == expected


def test_other_text_with_a_name_tells_of_no_pod() -> None:
    events = read_log(io.BytesIO(b"Name:   x\nExit Code:   1\n" * 50 + b"y\n" * 500), "notes.txt").events
    assert [e for e in events if e.kind == "exit"] == []


@pytest.mark.parametrize(
    ("head", "host"),
    [(["$ kubectl -n ml describe pod run-worker-2"], "run-worker-2"), ([], None), (["it says:", ""], None)],
)
@pytest.mark.parametrize("indent", ["    ", ""])
def test_the_quoted_end_of_a_container_is_enough(head: list[str], host: str | None, indent: str) -> None:
    lines = ["State:          Terminated", "  Reason:       Error", "  Exit Code:    139", "Environment:"]
    lines += ["  WORLD_SIZE:   8", "  RANK:         5", "", "what now?"]
    text = "\n".join([*head, *(indent + line for line in lines)])
    exits = [e for e in read_log(io.BytesIO(text.encode()), "x.txt").events if e.kind == "exit"]
    assert [(e.rank, e.host, getattr(e, "code", None)) for e in exits] == [(5, host, -11)]
