"""Lines within the records of log shippers and loggers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.lines.records import unwrapped

STAMP = "2026-05-07T11:20:12.004Z"
TRACE = 'Traceback (most recent call last):\n  File "/workspace/train.py", line 7, in step\n    run()\nKeyError: 1'
MESSAGE = "step 418 loss 1.25"


def lines(*records: dict[str, Any] | str) -> list[str]:
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
    return unwrapped(text.encode()).decode().replace("\r", "\n").splitlines()


@pytest.mark.parametrize(
    ("record", "rank", "host"),
    [
        ({"log": f"[rank2]: {MESSAGE}\n", "stream": "stderr", "time": STAMP}, 2, None),
        ({"stream": "stderr", "log": f"[rank2]: {MESSAGE}\n"}, 2, None),
        ({"labels": {"app": "x", "rank": "2", "pod": "x-2"}, "timestamp": STAMP, "line": MESSAGE}, 2, "x-2"),
        ({"event": MESSAGE, "level": "info", "timestamp": STAMP, "rank": 2}, 2, None),
        ({"asctime": "2026-03-02 11:00:21,118", "message": MESSAGE, "world_rank": 2}, 2, None),
        ({"@timestamp": STAMP, "message": MESSAGE, "kubernetes": {"pod_name": "x-2"}}, None, "x-2"),
        ({"text": f"2026-05-07 11:20:12.004 | INFO | loop:step:31 - {MESSAGE}\n", "record": {"extra": {"rank": 2}, "message": MESSAGE}}, 2, None),
        ({"message": MESSAGE, "rank": -1}, None, None),
    ],
)  # fmt: skip
def test_a_record_tells_who_printed_its_line_and_when(
    record: dict[str, Any], rank: int | None, host: str | None
) -> None:
    (raw,) = lines(record)
    line = strip_prefix(raw)
    assert line.text.endswith(MESSAGE) and (line.rank, line.host) == (rank, host)
    assert (line.time is not None) == any(word in str(record) for word in ("time", "text"))


def test_the_lines_of_one_record_keep_the_numbers_of_those_behind_it() -> None:
    record = {"message": "failed", "exc_text": TRACE, "rank": 1}
    block = f"before\n{json.dumps(record)}\nbehind\n".encode()
    told = unwrapped(block)
    assert told.count(b"\n") == 3 and told.split(b"\n")[2] == b"behind"
    assert {strip_prefix(line).rank for line in told.decode().split("\n")[1].split("\r")} == {1}


def test_an_error_that_a_logger_keeps_apart_is_a_line_of_its_own() -> None:
    record = {"text": "step failed\n", "record": {"exception": {"type": "KeyError", "value": "'x'"}}}
    assert lines(record) == ["step failed", "KeyError: 'x'"]


def test_the_error_file_of_a_worker_is_its_traceback() -> None:
    extra = {"py_callstack": TRACE, "timestamp": "1795188709"}
    record = {"message": {"message": "KeyError: 1", "extraInfo": extra, "errorCode": 1}}
    told = [strip_prefix(raw) for raw in lines(record)]
    assert "\n".join(line.text for line in told) == TRACE and {line.time for line in told} == {1795188709.0}
    assert lines({"message": "RuntimeError: it broke"}) == ["RuntimeError: it broke"]


@pytest.mark.parametrize(
    "text",
    ['{"step": 4, "loss": 1.25, "rank": 0}', '{"message": ', '{"message": {"a": 1}}', "[" * 99_999, '{"a":' * 99_999, '"2026-05-07","a"', "{'loss': 1}"],
)  # fmt: skip
def test_what_is_no_record_of_a_line_stays_as_it_is(text: str) -> None:
    assert unwrapped(f'{text}\n{{"x": 1}}\n'.encode()) == f'{text}\n{{"x": 1}}\n'.encode()


@pytest.mark.parametrize(
    "line",
    [
        '{"message": "\\ud800 step 3", "rank": 1}',
        '{"message": "step 3", "rank": true}',
        '{"message": "step 3", "rank": ' + "9" * 400 + "}",
        f'"{STAMP}","a"\r"b"c',
        f'"{STAMP}","{"x" * 200_000}"',
        f'"{STAMP}","without an end',
        '{"a":' * 3000 + "1" + "}" * 3000,
    ],
)
def test_what_is_no_record_after_all_costs_no_other_line(line: str) -> None:
    behind = f"[rank2]: {MESSAGE}"
    text = unwrapped(f"{line}\n{behind}\n".encode()).decode()
    assert text.endswith(f"\n{behind}\n") and "[rankTrue]" not in text and "[rank999" not in text


def test_the_numbers_of_a_programs_own_record_follow_its_message() -> None:
    record = {"ts": 1795860700.5, "stage": 2, "event": "fwd", "it": 12, "ok": True, "lineno": 31, "rank": 2}
    assert lines(record) == ["[rank2]: 2026-11-28T10:11:40.500000+00:00 fwd stage=2 it=12"]


def test_a_traceback_is_read_whatever_its_key_is() -> None:
    record = {"rank": 0, "event": "fatal", "exc": TRACE}
    assert lines(record)[1].endswith("Traceback (most recent call last):")
