r"""Records, one a line, into which a log shipper or a logger put the lines of a log: read as if each line followed its time and its rank.

    {"log": "[rank1]: KeyError: 'x'\n", "stream": "stderr", "time": "2025-10-30T17:40:01.110022113Z"}
    {"labels": {"app": "run", "rank": "0", "pod": "run-0"}, "timestamp": "2025-11-11T01:00:00Z", "line": "step 5 done"}
    {"asctime": "2026-03-02 11:00:21,118", "levelname": "ERROR", "message": "...", "exc_text": "Traceback ...", "world_rank": 3}
    {"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1795188709"}}}

are Docker's json-file driver, Loki's `logcli -o jsonl`, a Ray Train worker (ray/train/v2/_internal/logging/logging.py) and the error file of
a worker of torchrun (torch/distributed/elastic/multiprocessing/errors/error_handler.py). The numbers that a program's own record states
follow its message: `{"ts": 1.5, "event": "fwd", "it": 12}` is read as `fwd it=12`. loguru's `serialize=True`, structlog and python-json-logger write records of this kind, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from hangscope.ingest.recorder.values import short_number
from hangscope.model.regex import regex

_KEYS = {
    "message": ("log", "message", "msg", "text", "line", "content", "body", "textPayload", "event"),
    "error": ("exc_text", "exc_info", "exception", "stack_trace", "py_callstack"),
    "rank": ("rank", "global_rank", "world_rank"),
    "time": ("asctime", "timestamp", "time", "@timestamp", "ts"),
    "pod": ("pod", "pod_name"),
}
#: numbers of a record that are the logger's
_OF_THE_LOGGER = frozenset(
    ("level", "levelno", "lineno", "line", "thread", "process", "pid", "tid", "created", "msecs", "relativeCreated", "local_rank", "node_rank", "world_size")
)  # fmt: skip
_TRACEBACK = "Traceback (most recent call last):\n"
_DEPTH = 3  # of records within records
_MOST_LINES = 500  # of one record
_STAMP = regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?$")
_STAMPED = regex(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:")
_EPOCH = regex(r"1\d{9}(?:\.\d{1,9})?$")
_NAME = regex(r"[\w.-]{1,253}$")


def unwrapped(block: bytes) -> bytes:
    """Return a block of whole lines with each record replaced by the lines that it contains.

    These end in carriage returns, so that the numbers of later lines do not change. A line that is no record stays as it is.
    """
    if not block.startswith(b"{") and (b"{" not in block or b'\n{"' not in block):
        return block
    return b"\n".join(_line(line) for line in block.split(b"\n"))


def _line(line: bytes) -> bytes:
    """Return the lines of a record, each after who printed it and when, where it does not state that itself."""
    found = _record(line) if line.startswith(b'{"') else {}
    message, error, rank, time, pod = (found.get(name) for name in _KEYS)
    if not isinstance(message, str):
        return line
    if isinstance(error, Mapping) and error.get("type"):
        error = f"{error['type']}: {error.get('value')}"
    number = short_number(str(rank)) if isinstance(rank, int | str) else None
    head = "" if number is None or message.startswith("[rank") else f"[rank{number}]: "
    head += f"[pod/{pod}/-] " if isinstance(pod, str) and _NAME.match(pod) else ""
    time = str(time)
    if _EPOCH.match(time):
        time = datetime.fromtimestamp(float(time), timezone.utc).isoformat()
    stamp = f"{time} " if _STAMP.match(time) else ""
    error = error if isinstance(error, str) and error not in message else ""
    message = f"{message}{found['numbers']}" if message.count("\n") == 0 and not error else message
    lines = [] if message in error else message.splitlines()
    lines += error.splitlines()
    stated = [f"{head}{'' if _STAMPED.match(text) else stamp}{text}" for text in lines[:_MOST_LINES]]
    # JSON may contain one part of a surrogate pair, which no encoding has.
    return "\r".join(stated).encode("utf-8", "replace") if stated else line


def _record(line: bytes) -> Mapping[str, Any]:
    """Return what a JSON object states; nothing where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    stated = {name: _first(record, keys) for name, keys in _KEYS.items()}
    return {**stated, "error": stated["error"] or _traceback(record), "numbers": _numbers(record)}


def _traceback(record: Any) -> str | None:
    """Return the first value that is a traceback, whatever its key is."""
    values = (value for level in _levels(record) for value in level.values() if isinstance(value, str))
    return next((value for value in values if value.startswith(_TRACEBACK)), None)


def _numbers(record: Mapping[str, Any]) -> str:
    """Return the numbers that a record states itself, but for those of its time, its rank and its logger, as ` it=12 loss=0.5`."""
    known = _OF_THE_LOGGER.union(*_KEYS.values())
    stated = ((key, value) for key, value in record.items() if key not in known and _NAME.match(key))
    return "".join(
        f" {key}={value}"
        for key, value in stated
        if isinstance(value, int | float) and not isinstance(value, bool)
    )


def _first(record: Any, keys: tuple[str, ...]) -> Any:
    """Return the first value of these keys, those of the record itself before those of records in it."""
    found = (level.get(key) for level in _levels(record) for key in keys)
    values = (value for value in found if not isinstance(value, Mapping) or value.get("type"))
    return next((value for value in values if value not in (None, "")), None)


def _levels(record: Any) -> Iterator[Mapping[str, Any]]:
    level = [record]
    for _ in range(_DEPTH):
        maps = [value for value in level if isinstance(value, Mapping)]
        yield from maps
        level = [value for each in maps for value in each.values()]
