"""What wrappers put in front of a line, one layer at a time: launchers, log shippers, containers, torch's own loggers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

CODE = r"[\w./<>+-]{1,200}\.(?:cpp|cc|cxx|h|hpp|cu|cuh|py)"
CLOCK = r"(\d\d):(\d\d):(\d\d)"
_NO_NAME = r"(?!(?:rank|step|epoch|iter|batch|layer|cuda|stage|fold)[\d_\[-])"  # what programs count
# Each layer is tried at the start of what is left, at most once per name; one space is dropped after it, never more,
# because a traceback's indentation is part of the message (mpirun 4 prints none, mpirun 5 one: then it is odd).
_LAYERS = re.compile(
    r"(?P<rank>\[rank(\d{1,7})[\]\[]:? ?)"
    # a launcher's own template, `[${role_name}${rank}|${local_rank}]:`
    r"|(?P<role_pipe>\[[A-Za-z_][A-Za-z_.-]{0,60}(\d{1,7})\|(\d{1,6})\]: ?)"
    # SGLang's logger: a stamp and the coordinates of the process (sglang/srt/managers/scheduler.py)
    rf"|(?P<sglang>\[(\d{{4}})-(\d\d)-(\d\d) {CLOCK}((?: (?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{{1,5}}){{1,6}})\] ?)"
    # vLLM's logger: a level, a stamp without a year, the place (vllm/logger.py)
    rf"|(?P<vllm>(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) {CLOCK} \[[\w./]{{1,100}}:\d{{1,6}}\] ?)"
    r"|(?P<role_ranks>\[[A-Za-z_]+-(\d{1,7})-(\d{1,7})\]: ?)"
    r"|(?P<role>\[[A-Za-z_][A-Za-z_.-]{0,60}(\d{1,7})\]:)"
    # Open MPI 4, and 5 (`--output tag`, `tag-fullname`, `tag-detailed`, `rank`; openpmix/src/common/pmix_iof.c)
    r"|(?P<mpi>\[(?:[\w.-]{1,253}@)?\d{1,9},(?:mpirank:)?(\d{1,7})(?:,([\w.-]{1,253}))?\](?:\[([\w.-]{1,253}):(\d{1,10})\])?"
    r"(?:<std(?:out|err|diag)>)?:(?: (?=(?: {2}){0,20}\S))?)"
    r"|(?P<mpi_rank>\[(\d{1,7})\]<std(?:out|err|diag)>:(?: (?=(?: {2}){0,20}\S))?)"
    rf"|(?P<ctime>\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK} (\d{{4}})\](?:<std(?:out|err|diag)>:)? ?)"
    r"|(?P<ray>\((?:([A-Za-z_][\w.<>:-]{0,80})(?: rank=(\d{1,7}))?,? )?pid=(\d{1,9})(?:, ip=([\w.:]{2,64}))?\) ?)"
    r"|(?P<pod>\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] ?)"
    rf"|(?P<iso>\[?(\d{{4}})[-/](\d\d)[-/](\d\d)[T_ ]{CLOCK}(?:[.,](\d{{1,9}}))? ?(Z|UTC|[+-]\d\d:?\d\d)?\]?"
    rf"(?: [|-] |: | |(?=\[)|$))"
    r"|(?P<cri>std(?:out|err) [FP] )"
    r"|(?P<stream>(?:([A-Za-z][\w.-]{0,253}) )?\[std(?:out|err)\]:? ?)"
    rf"|(?P<syslog>([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK} ([\w.-]{{1,253}}) (?=[\w./-]{{1,64}}(?:\[\d+\])?: ))"
    rf"|(?P<unit>(?:([\w.-]{{1,253}}) )?{_NO_NAME}[\w./-]{{1,64}}\[(\d{{1,9}})\]: ?)"
    rf"|(?P<glog>\[?([IWEFVD])(\d{{1,2}})(\d\d) {CLOCK}\.(\d{{3,9}}) +(?:(\d{{1,19}}) +)?({CODE}):"
    rf"(\d{{1,6}})\] ?)"
    rf"|(?P<c10>\[([IWEFV]) ({CODE}):(\d{{1,6}})\] ?)"
    r"|(?P<logger>torch\.[\w.]{1,200}: \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?)"
    r"|(?P<root_logger>(DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,200}:)"
    r"|(?P<number>\[\d{1,9}\] (?=\[rank)|\d{1,9}[ \t]{1,4}(?=\[rank|\d{4}-\d\d-\d\dT))"
    r"|(?P<hydra>\[(\d{1,7})\] (?=Traceback | +\S|[\w.]{0,120}(?:Error|Exception|Interrupt|Exit)\b|terminate called|"
    r"Fatal Python error|\[[IWEF]\d?))"
    r"|(?P<debris>\[\d{1,2}(?:;\d{1,3}){0,4}m ?)"
    r"|(?P<task> {0,5}(\d{1,7}): )"
    rf"|(?P<pdsh>{_NO_NAME}([a-z][a-z0-9.-]{{0,"
    r"252}\d[a-z0-9.-]{0,252}): )"
    rf"|(?P<compose>{_NO_NAME}([a-z][\w.-]{{0,100}}[-_.]\d{{1,6}}) +\| )"
)
_COORDINATE = re.compile(r"(?:^|[ _])(?<!ATTN_)(?<!MOE_)(DP|PP|TP|EP)(\d{1,5})(?=[ _]|$)")
_COORDINATES = re.compile(r"(?:(?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{1,5} ?){1,6}")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}


def peel(text: str, found: dict[str, Any], origin: list[str], before: Iterable[str] = ()) -> str:
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
        if layer in _BARE and seen - _OUTSIDE:
            break  # a bare "3: " or "node1: " counts only outside everything that torch prints
        if layer == "unit" and not seen & {"iso", "syslog"}:
            break  # "python[123]: " is a name only behind a stamp
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


def _mpi(found: dict[str, Any], task: str, host: str | None, node: str | None, pid: str | None) -> None:
    found["task"] = int(task)
    _host(found, host or node)
    if pid:
        found["pid"] = int(pid)


def _unit(found: dict[str, Any], host: str | None, pid: str) -> None:
    found["pid"] = int(pid)
    _host(found, host)


def _ray(found: dict[str, Any], name: str | None, rank: str | None, pid: str, ip: str | None) -> None:
    found["pid"] = int(pid)
    if ip:
        found["host"] = ip
    if rank:
        found["task"] = int(rank)
    worker = rank_of_worker(name or "")
    if worker is not None:
        found.setdefault("rank", worker)


def rank_of_worker(name: str) -> int | None:
    """Return the rank within its engine that an inference worker's name tells: `VllmWorker-3`, `Worker_TP1_EP1`; None for others.

    The tensor-parallel number is the rank where no pipeline stage or data-parallel replica but the first is named.
    """
    if "Worker" not in name and not _COORDINATES.fullmatch(name.strip()):
        return None
    found = dict(_COORDINATE.findall(name))
    if "TP" not in found or any(int(found.get(other, 0)) for other in ("PP", "DP")):
        return None
    return int(found["TP"])


def _sglang(
    found: dict[str, Any], year: str, month: str, day: str, h: str, m: str, s: str, coordinates: str
) -> None:
    _iso(found, year, month, day, h, m, s, None, None)
    rank = rank_of_worker(coordinates)
    if rank is not None:
        found.setdefault("rank", rank)


def _vllm(found: dict[str, Any], level: str, month: str, day: str, h: str, m: str, s: str) -> None:
    _clock(found, int(month), int(day), h, m, s, 0.0)
    found["level"] = level[0]


def _role_pipe(found: dict[str, Any], rank: str, local: str) -> None:
    found.setdefault("rank", int(rank))
    found["local_rank"] = int(local)


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


def _ctime(found: dict[str, Any], month: str, day: str, h: str, m: str, s: str, year: str) -> None:
    _iso(found, year, str(_MONTHS.get(month, 0)), day, h, m, s, None, None)


def _syslog(found: dict[str, Any], month: str, day: str, h: str, m: str, s: str, host: str) -> None:
    _clock(found, _MONTHS.get(month, 0), int(day), h, m, s, 0.0)
    found["host"] = host


def read_glog(
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
    """Take the time, the level and the place from a header of c10's or of torch's Python loggers."""
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
    "role_pipe": _role_pipe, "sglang": _sglang, "vllm": _vllm,
    "rank": _rank, "role_ranks": _role_ranks, "role": _role, "mpi": _mpi, "mpi_rank": _task, "ctime": _ctime, "ray": _ray, "pod": _host, "iso": _iso, "cri": _nothing,
    "stream": _host, "syslog": _syslog, "unit": _unit, "glog": read_glog, "c10": _c10, "logger": _level, "root_logger": _level, "number": _nothing, "hydra": _task,
    "debris": _nothing, "task": _task, "pdsh": _host, "compose": _host,
}  # fmt: skip
_ARITY = {
    "role_pipe": 2, "sglang": 7, "vllm": 6,
    "rank": 1, "role_ranks": 2, "role": 1, "mpi": 4, "mpi_rank": 1, "ctime": 6, "ray": 4, "pod": 1, "iso": 8, "cri": 0, "stream": 1, "syslog": 6, "unit": 2, "glog": 10,
    "c10": 3, "logger": 1, "root_logger": 1, "number": 0, "hydra": 1, "debris": 0, "task": 1, "pdsh": 1, "compose": 1,
}  # fmt: skip
_IDENTITY = frozenset(
    {
        "rank",
        "role_ranks",
        "role_pipe",
        "sglang",
        "role",
        "mpi",
        "mpi_rank",
        "ray",
        "pod",
        "unit",
        "hydra",
        "task",
        "pdsh",
        "compose",
    }
)
_BARE = frozenset({"task", "pdsh", "hydra", "compose"})
_OUTSIDE = frozenset({"iso", "ctime", "debris", "cri", "stream", "pod", "syslog", "unit"})
