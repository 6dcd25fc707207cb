"""One line of a log without what wrappers put in front of it: who printed it, when, and the bare message.

A line of a multi-node job can carry five layers, outermost first, for example

    2026-11-20T15:13:24.870Z 11: [default3]:[rank11]:[E1120 15:13:24.220687360 ProcessGroupNCCL.cpp:632] [PG ID 0 ...

a log shipper's stamp, srun's task number, torchrun's *local* rank, torch's global rank and the header of
c10's logger (`c10/util/Logging.cpp`, `torch/_logging/_internal.py`,
`torch/distributed/elastic/multiprocessing/tail_log.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from hangscope.incident import Event

TEXT_LIMIT = 500

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

_CODE = r"[\w./<>+-]{1,200}\.(?:cpp|cc|cxx|h|hpp|cu|cuh|py)"
_CLOCK = r"(\d\d):(\d\d):(\d\d)"
# Each layer is tried at the start of what is left, at most once per name; one space is dropped after it, never more,
# because a traceback's indentation is part of the message.
_LAYERS = re.compile(
    r"(?P<rank>\[rank(\d{1,7})[\]\[]:? ?)"
    r"|(?P<role_ranks>\[[A-Za-z_]+-(\d{1,7})-(\d{1,7})\]: ?)"
    r"|(?P<role>\[[A-Za-z_][A-Za-z_.-]{0,60}(\d{1,7})\]:)"
    r"|(?P<mpi>\[\d{1,9},(\d{1,7})\](?:<std(?:out|err|diag)>)?: ?)"
    r"|(?P<ray>\([A-Za-z_][\w.<>]{0,80}(?: rank=(\d{1,7}))?,? pid=(\d{1,9})(?:, ip=([\w.:]{2,64}))?\) ?)"
    r"|(?P<pod>\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] ?)"
    rf"|(?P<iso>\[?(\d{{4}})[-/](\d\d)[-/](\d\d)[T_ ]{_CLOCK}(?:[.,](\d{{1,9}}))? ?(Z|UTC|[+-]\d\d:?\d\d)?\]?"
    rf"(?: [|-] |: | |(?=\[)|$))"
    r"|(?P<cri>std(?:out|err) [FP] )"
    r"|(?P<stream>(?:([A-Za-z][\w.-]{0,253}) )?\[std(?:out|err)\]:? ?)"
    rf"|(?P<syslog>([A-Z][a-z]{{2}}) ([ \d]\d) {_CLOCK} ([\w.-]{{1,253}}) (?=[\w./-]{{1,64}}(?:\[\d+\])?: ))"
    rf"|(?P<glog>\[?([IWEFVD])(\d{{1,2}})(\d\d) {_CLOCK}\.(\d{{3,9}}) +(?:(\d{{1,19}}) +)?({_CODE}):"
    rf"(\d{{1,6}})\] ?)"
    rf"|(?P<c10>\[([IWEFV]) ({_CODE}):(\d{{1,6}})\] ?)"
    r"|(?P<logger>torch\.[\w.]{1,200}: \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?)"
    r"|(?P<root_logger>(DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,200}:)"
    r"|(?P<number>\[\d{1,9}\] (?=\[rank))"
    r"|(?P<debris>\[\d{1,2}(?:;\d{1,3}){0,4}m ?)"
    r"|(?P<task> {0,5}(\d{1,7}): )"
    r"|(?P<pdsh>(?!(?:rank|step|epoch|iter|batch|layer|cuda|stage|fold)[\d_-])([a-z][a-z0-9.-]{0,"
    r"252}\d[a-z0-9.-]{0,252}): )"
)
# What nearly every line of a torch job starts with, in one match; the layers are for the rest.
_COMMON = re.compile(
    r"(?:(?!\[rank\d)\[[A-Za-z_]{1,60}(\d{1,7})\]:)?(\[rank(\d{1,7})\]:? ?)?"
    rf"(?:\[?([IWEFV])(\d{{1,2}})(\d\d) {_CLOCK}\.(\d{{3,9}}) (?:(\d{{1,19}}) +)?({_CODE}):(\d{{1,6}})\] ?)?"
)
_MORE = frozenset("[(0123456789EWI")
_RANK_INSIDE = re.compile(r"\[rank\d{1,7}\]:")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the parsers see it.

    `text` is the message without its prefixes, `raw` the whole line; both without control characters. `rank`
    is global (`[rank3]:`), `local_rank` is torchrun's (`[default3]:`), `task` is srun's or mpirun's number,
    which is the rank only where one task is one rank. `origin` is what tells interleaved writers apart.
    `time` is seconds since the epoch where the year is printed (UTC where no zone is), `stamp` seconds since
    1 January of any leap year where only month and day are; c10's own headers count whole seconds only,
    because their fraction comes from another clock. `source` is the `file:line` of the logging call.
    """

    file: str
    number: int
    text: str
    raw: str
    origin: str = ""
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    time: float | None = None
    stamp: float | None = None
    level: str | None = None
    source: str | None = None

    def event(self, kind: str, group_rank: int | None = None, **fields: Any) -> Event:
        """Return an event that quotes this line; fields that are None are left out."""
        kept = {name: value for name, value in fields.items() if value is not None}
        for name in ("local_rank", "task", "stamp"):
            value = getattr(self, name)
            if value is not None:
                kept.setdefault(name, value)
        return Event(
            kind, self.file, self.number, quote(self.raw), rank=self.rank, group_rank=group_rank, host=self.host,
            pid=self.pid, time=self.time, fields=kept,
        )  # fmt: skip


def clean(text: str) -> str:
    """Return the text without escape sequences, control characters and direction marks; tabs stay."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text)


def quote(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text cut for quoting, with a mark where it was cut."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def strip_prefix(raw: str, number: int = 1, file: str = "") -> Line:
    """Return the line without its prefixes. Any string is accepted; linear in its length."""
    raw = clean(raw)
    text = raw
    if text.startswith('{"log":"'):
        text = _docker_json(text)
    found: dict[str, Any] = {}
    origin: list[str] = []
    common = _COMMON.match(text)
    if common and common.group(2):
        _read_common(common, found, origin)
        rest = text[common.end() :]
        if "level" not in found and rest[:1] in _MORE:
            rest = _peel(rest, found, origin, {"rank"})
    else:
        rest = _peel(text, found, origin)
    if "rank" not in found and "[rank" in rest:
        inside = _RANK_INSIDE.search(rest)  # behind a progress bar that ended without a line break
        if inside:
            rest = _peel(rest[inside.start() :], found, origin)
    return Line(file, number, rest, raw, "".join(origin), **found)


def _docker_json(text: str) -> str:
    """Return the message of one line of Docker's json-file driver, or the line where it is not one."""
    try:
        record = json.loads(text)
        return clean(str(record["log"]).rstrip("\r\n"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _read_common(match: re.Match[str], found: dict[str, Any], origin: list[str]) -> None:
    """Take torchrun's and torch's own prefixes from one match."""
    local, _, rank, level, month, day, h, m, s, fraction, pid, code, line = match.groups()
    found["rank"] = int(rank)
    if local:
        found["local_rank"] = int(local)
        origin.append(f"{local}/")
    origin.append(rank)
    if level:
        _glog(found, level, month, day, h, m, s, fraction, pid, code, line)


def _peel(text: str, found: dict[str, Any], origin: list[str], before: Iterable[str] = ()) -> str:
    """Return what is left when all layers but those `before` are taken off; fill `found` and `origin`."""
    at = 0
    seen = set(before)
    for _ in range(8):
        match = _LAYERS.match(text, at)
        if match is None:
            break
        layer = match.lastgroup or ""
        if layer in seen and layer != "debris":
            break
        if layer in {"task", "pdsh"} and seen - {"iso", "debris", "cri", "stream", "pod", "syslog"}:
            break  # a bare "3: " or "node1: " counts only outside everything that torch prints
        seen.add(layer)
        at = match.end()
        first = _LAYERS.groupindex[layer]
        values = match.groups()[first : first + _ARITY[layer]]
        _READ[layer](found, *values)
        if layer in _IDENTITY:
            origin.append(
                f"{values[0]}/"
                if layer == "role"
                else values[0]
                if layer == "rank"
                else match.group(0).strip()
            )
    return text[at:] if at else text


def _rank(found: dict[str, Any], rank: str) -> None:
    found["rank"] = int(rank)


def _role_ranks(found: dict[str, Any], local: str, rank: str) -> None:
    found["local_rank"], found["rank"] = int(local), int(rank)


def _role(found: dict[str, Any], local: str) -> None:
    found["local_rank"] = int(local)


def _task(found: dict[str, Any], task: str) -> None:
    found["task"] = int(task)


def _ray(found: dict[str, Any], rank: str | None, pid: str, ip: str | None) -> None:
    found["pid"] = int(pid)
    if ip:
        found["host"] = ip
    if rank:
        found["task"] = int(rank)


def _host(found: dict[str, Any], host: str | None) -> None:
    if host:
        found["host"] = host


def _iso(
    found: dict[str, Any],
    year: str,
    month: str,
    day: str,
    h: str,
    m: str,
    s: str,
    fraction: str | None,
    zone: str | None,
) -> None:
    seconds = float(f"0.{fraction}") if fraction else 0.0
    _clock(found, int(month), int(day), h, m, s, seconds)
    try:
        moment = datetime(
            int(year), int(month), int(day), int(h), int(m), min(int(s), 59), tzinfo=timezone.utc
        )
        if zone and zone[0] in "+-":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            moment -= offset if zone[0] == "+" else -offset
        found["time"] = moment.timestamp() + seconds
    except (ValueError, OverflowError):
        return


def _syslog(found: dict[str, Any], month: str, day: str, h: str, m: str, s: str, host: str) -> None:
    _clock(found, _MONTHS.get(month, 0), int(day), h, m, s, 0.0)
    found["host"] = host


def _glog(
    found: dict[str, Any],
    level: str,
    month: str,
    day: str,
    h: str,
    m: str,
    s: str,
    fraction: str,
    pid: str | None,
    code: str,
    line: str,
) -> None:
    python = code.endswith(".py")
    _clock(found, int(month), int(day), h, m, s, float(f"0.{fraction}") if python else 0.0)
    found["level"], found["source"] = level, f"{code}:{line}"
    if pid and python and len(pid) < 10:
        found.setdefault("pid", int(pid))


def _c10(found: dict[str, Any], level: str, code: str, line: str) -> None:
    found["level"], found["source"] = level, f"{code}:{line}"


def _level(found: dict[str, Any], level: str) -> None:
    found["level"] = level[0]


def _nothing(found: dict[str, Any]) -> None:
    return


def _clock(found: dict[str, Any], month: int, day: int, h: str, m: str, s: str, fraction: float) -> None:
    """Set `stamp`: seconds since 1 January of a leap year, so that stamps with and without a year compare."""
    if "stamp" in found and "level" not in found and fraction == 0.0:
        return  # the outer stamp has a year or a fraction; the inner one adds nothing
    if not 1 <= month <= 12:
        return
    days = _DAYS_BEFORE[month - 1] + day - 1
    found["stamp"] = days * 86400.0 + int(h) * 3600 + int(m) * 60 + int(s) + fraction


_READ: dict[str, Any] = {
    "rank": _rank, "role_ranks": _role_ranks, "role": _role, "mpi": _task, "ray": _ray, "pod": _host, "iso": _iso, "cri": _nothing,
    "stream": _host, "syslog": _syslog, "glog": _glog, "c10": _c10, "logger": _level, "root_logger": _level, "number": _nothing,
    "debris": _nothing, "task": _task, "pdsh": _host,
}  # fmt: skip
_ARITY = {
    "rank": 1, "role_ranks": 2, "role": 1, "mpi": 1, "ray": 3, "pod": 1, "iso": 8, "cri": 0, "stream": 1, "syslog": 6, "glog": 10,
    "c10": 3, "logger": 1, "root_logger": 1, "number": 0, "debris": 0, "task": 1, "pdsh": 1,
}  # fmt: skip
_IDENTITY = frozenset({"rank", "role_ranks", "role", "mpi", "ray", "pod", "task", "pdsh"})
