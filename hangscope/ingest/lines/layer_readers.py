"""What the prefixes of a line tell: each function takes what the groups of one kind of prefix caught."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from hangscope.ingest.files.naming import rank_of_log, says_rank
from hangscope.model.events import in_leap_year
from hangscope.model.regex import regex

Found = dict[str, Any]
Reader = Callable[..., None]


def takes(*names: str) -> Reader:
    """Return what takes the groups of a prefix as the fields of these names, all of them numbers but `host`."""

    def read(found: Found, *values: str | None) -> None:
        for name, value in zip(names, values, strict=True):
            if value:
                found[name] = value if name == "host" else int(value)

    return read


_COORDINATE = regex(r"(?:^|[ _])(?<!ATTN_)(?<!MOE_)(DP|PP|TP|EP)(\d{1,5})(?=[ _]|$)")
_COORDINATES = regex(r"(?:(?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{1,5} ?){1,6}")
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}


def take_mpi(found: Found, task: str, host: str | None, node: str | None, pid: str | None) -> None:
    """Take the task, the host and the process of mpirun."""
    found["task"] = int(task)
    if host or node:
        found["host"] = host or node
    if pid:
        found["pid"] = int(pid)


def take_ray(found: Found, name: str | None, rank: str | None, pid: str, ip: str | None) -> None:
    """Take the process, the address and the rank of a Ray worker."""
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


def take_sglang(
    found: Found, year: str, month: str, day: str, h: str, m: str, s: str, coordinates: str
) -> None:
    """Take the time, and the rank that the coordinates tell."""
    take_iso(found, year, month, day, h, m, s, None, None)
    rank = rank_of_worker(coordinates)
    if rank is not None:
        found.setdefault("rank", rank)


def take_vllm(found: Found, level: str, month: str, day: str, h: str, m: str, s: str) -> None:
    """Take the time and the level."""
    _clock(found, int(month), int(day), h, m, s, 0.0)
    found["level"] = level[0]


def take_file(found: Found, name: str) -> None:
    """Take the rank that the name of a file says, with this word."""
    rank = rank_of_log(name)[0] if says_rank(name) else None
    if rank is not None:
        found.setdefault("rank", rank)


def take_role_pipe(found: Found, rank: str, local: str) -> None:
    """Take the ranks of a launcher's own template."""
    found.setdefault("rank", int(rank))
    found["local_rank"] = int(local)


def take_iso(
    found: Found,
    year: str,
    month: str,
    day: str,
    h: str,
    m: str,
    s: str,
    fraction: str | None,
    zone: str | None,
) -> None:
    """Take the time of a stamp with a year."""
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


def take_ctime(found: Found, month: str, day: str, h: str, m: str, s: str, year: str) -> None:
    """Take the time of a stamp as `ctime` writes it."""
    take_iso(found, year, str(_MONTHS.get(month, 0)), day, h, m, s, None, None)


def take_syslog(found: Found, month: str, day: str, h: str, m: str, s: str, host: str) -> None:
    """Take the time and the host."""
    _clock(found, _MONTHS.get(month, 0), int(day), h, m, s, 0.0)
    found["host"] = host


def take_glog(
    found: Found,
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


def take_c10(found: Found, level: str, code: str, line: str) -> None:
    """Take the level and the place."""
    found["level"], found["source"] = level, f"{code}:{line}"


def take_level(found: Found, level: str) -> None:
    """Take the level."""
    found["level"] = level[0]


def _clock(found: Found, month: int, day: int, h: str, m: str, s: str, fraction: float) -> None:
    """Set `stamp`: seconds since 1 January of a leap year, so that stamps with and without a year compare."""
    if "stamp" in found and "level" not in found and fraction == 0.0:
        return  # the outer stamp has a year or a fraction; the inner one adds nothing
    moment = in_leap_year(month, day, int(h), int(m), int(s))
    if moment is not None:
        found["stamp"] = moment + fraction
