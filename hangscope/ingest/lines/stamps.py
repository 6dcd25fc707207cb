"""What the prefixes of a line tell: the groups of each kind of prefix are fields, and each field is taken in one way.

`host` is text; `rank`, `local_rank`, `task` and `pid` are numbers. `worker`, `file` and `named_rank` tell a rank where nothing else has
told one. A time has a `month`, `day`, `h`, `m` and `s`, and perhaps a `year`, a `fraction` and a `zone`; `code` and `line` are the
place of the logging call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from hangscope.ingest.files.naming import rank_of_log, says_rank
from hangscope.model.events import in_leap_year
from hangscope.model.regex import regex

Found = dict[str, Any]

TIME = ("month", "day", "h", "m", "s")
ISO = ("year", *TIME)
GLOG = ("level", *TIME, "fraction", "pid", "code", "line")
_NUMBERS = frozenset({"rank", "local_rank", "task"})
_COORDINATE = regex(r"(?:^|[ _])(?<!ATTN_)(?<!MOE_)(DP|PP|TP|EP)(\d{1,5})(?=[ _]|$)")
_COORDINATES = regex(r"(?:(?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{1,5} ?){1,6}")
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}


def take(found: Found, fields: Sequence[str], values: Sequence[str | None]) -> None:
    """Take what the groups of a prefix caught. Of two values of one field the first counts; a time counts before a level."""
    told = {name: value for name, value in reversed(list(zip(fields, values, strict=True))) if value}
    python = told.get("code", ".py").endswith(
        ".py"
    )  # c10's own fractions are of another clock, its numbers are threads
    if "month" in told:
        _take_time(found, told, float(f"0.{told['fraction']}") if python and "fraction" in told else 0.0)
    if "code" in told:
        found["source"] = f"{told['code']}:{told['line']}"
    if "level" in told:
        found["level"] = told["level"][0]
    if "host" in told:
        found["host"] = told["host"]
    if "pid" in told and "code" not in told:
        found["pid"] = int(told["pid"])
    elif "pid" in told and python and len(told["pid"]) < 10:
        found.setdefault("pid", int(told["pid"]))
    for name in _NUMBERS & told.keys():
        found[name] = int(told[name])
    rank = _named_rank(told)
    if rank is not None:
        found.setdefault("rank", rank)


def seconds_of_day(clock: re.Match[str]) -> int:
    """Return the seconds since midnight of a clock whose hours, minutes and seconds are the first groups of a match."""
    h, m, s = map(int, clock.groups()[:3])
    return 3600 * h + 60 * m + s


def _named_rank(told: dict[str, str]) -> int | None:
    """Return the rank that a worker's or a file's name says, or a launcher's own template."""
    if "file" in told:
        return rank_of_log(told["file"])[0] if says_rank(told["file"]) else None
    return int(told["named_rank"]) if "named_rank" in told else rank_of_worker(told.get("worker", ""))


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


def _take_time(found: Found, told: dict[str, str], fraction: float) -> None:
    """Set `stamp`, seconds since 1 January of a leap year, so that times with and without a year compare; and `time` where there is a year."""
    month = int(told["month"]) if told["month"].isdigit() else _MONTHS.get(told["month"], 0)
    day, h, m, s = (int(told[name]) for name in TIME[1:])
    if "stamp" not in found or "level" in found or fraction:  # else the outer one has a year or a fraction
        moment = in_leap_year(month, day, h, m, s)
        if moment is not None:
            found["stamp"] = moment + fraction
    if "year" not in told:
        return
    zone = told.get("zone", "")
    try:
        stamp = datetime(int(told["year"]), month, day, h, m, min(s, 59), tzinfo=timezone.utc)
        if zone[:1] in ("+", "-"):
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            stamp -= offset if zone[0] == "+" else -offset
        found["time"] = stamp.timestamp() + fraction
    except (ValueError, OverflowError):
        return
