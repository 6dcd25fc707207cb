"""What wrappers put in front of a line, one layer at a time, and what it states; the kinds of prefixes are data, in knowledge/lines/prefixes.toml.

The groups of a prefix are fields, and each field is taken in one way: `host` is text; `rank`, `local_rank`, `task` and `pid` are numbers.
`worker`, `file` and `named_rank` state a rank where nothing else does. A time has a `month`, `day`, `h`, `m` and `s`, and perhaps a
`year`, a `fraction` and a `zone`; `code` and `line` are the place of the logging call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from hangscope.ingest.files.naming import rank_of_log, says_rank
from hangscope.model.dataclass import dataclass
from hangscope.model.events import in_leap_year
from hangscope.model.regex import regex
from hangscope.model.tables import entries

Found = dict[str, Any]

TIME = ("month", "day", "h", "m", "s")
ISO = ("year", *TIME)
GLOG = ("level", *TIME, "fraction", "pid", "code", "line")
_NUMBERS = frozenset({"rank", "local_rank", "task"})
_COORDINATE = regex(r"(?:^|[ _])(?<!ATTN_)(?<!MOE_)(DP|PP|TP|EP)(\d{1,5})(?=[ _]|$)")
_COORDINATES = regex(r"(?:(?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{1,5} ?){1,6}")
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}
CODE = r"[\w./<>+-]{1,200}\.(?:cpp|cc|cxx|h|hpp|cu|cuh|py)"
CLOCK = r"(\d\d):(\d\d):(\d\d)"
_NO_NAME = r"(?!(?:rank|step|epoch|iter|batch|layer|cuda|stage|fold)[\d_\[-])"  # what programs count
_PATTERNS = {"<clock>": CLOCK, "<code>": CODE, "<no_name>": _NO_NAME}
_FIELDS = {"time": TIME, "iso": ISO, "glog": GLOG}
_MOST = 8  # layers of one line


def take(found: Found, fields: Sequence[str], values: Sequence[str | None]) -> None:
    """Take what the groups of a prefix caught. Of two values of one field the first counts; a time counts before a level."""
    stated = {name: value for name, value in reversed(list(zip(fields, values, strict=True))) if value}
    # c10's own fractions are from another clock, and its numbers are threads
    python = stated.get("code", ".py").endswith(".py")
    if "month" in stated:
        _take_time(
            found, stated, float(f"0.{stated['fraction']}") if python and "fraction" in stated else 0.0
        )
    if "code" in stated:
        found["source"] = f"{stated['code']}:{stated['line']}"
    if "level" in stated:
        found["level"] = stated["level"][0]
    if "host" in stated:
        found["host"] = stated["host"]
    if "pid" in stated and "code" not in stated:
        found["pid"] = int(stated["pid"])
    elif "pid" in stated and python and len(stated["pid"]) < 10:
        found.setdefault("pid", int(stated["pid"]))
    for name in _NUMBERS & stated.keys():
        found[name] = int(stated[name])
    rank = _named_rank(stated)
    if rank is not None:
        found.setdefault("rank", rank)


def seconds_of_day(clock: re.Match[str]) -> int:
    """Return the seconds since midnight of a clock whose hours, minutes and seconds are the first groups of a match."""
    h, m, s = map(int, clock.groups()[:3])
    return 3600 * h + 60 * m + s


def _named_rank(stated: dict[str, str]) -> int | None:
    """Return the rank that the name of a worker or a file states, or a launcher's own template."""
    if "file" in stated:
        return rank_of_log(stated["file"])[0] if says_rank(stated["file"]) else None
    return int(stated["named_rank"]) if "named_rank" in stated else rank_of_worker(stated.get("worker", ""))


def rank_of_worker(name: str) -> int | None:
    """Return the rank within its engine that an inference worker's name states: `VllmWorker-3`, `Worker_TP1_EP1`; None for others.

    The tensor-parallel number is the rank where no pipeline stage or data-parallel replica but the first is named.
    """
    if "Worker" not in name and not _COORDINATES.fullmatch(name.strip()):
        return None
    found = coordinates(name)
    return None if found.get("PP") or found.get("DP") else found.get("TP")


def coordinates(name: str) -> dict[str, int]:
    """Return the place of an inference worker in its engine's grid, by dimension."""
    return {dimension: int(number) for dimension, number in _COORDINATE.findall(name)}


def _take_time(found: Found, stated: dict[str, str], fraction: float) -> None:
    """Set `stamp`, seconds since 1 January of a leap year, so that times with and without a year compare; and `time` where there is a year."""
    month = int(stated["month"]) if stated["month"].isdigit() else _MONTHS.get(stated["month"], 0)
    day, h, m, s = (int(stated[name]) for name in TIME[1:])
    if "stamp" not in found or "level" in found or fraction:  # else the outer one has a year or a fraction
        moment = in_leap_year(month, day, h, m, s)
        if moment is not None:
            found["stamp"] = moment + fraction
    if "year" not in stated:
        return
    zone = stated.get("zone", "")
    try:
        stamp = datetime(int(stated["year"]), month, day, h, m, min(s, 59), tzinfo=timezone.utc)
        if zone[:1] in ("+", "-"):
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            stamp -= offset if zone[0] == "+" else -offset
        found["time"] = stamp.timestamp() + fraction
    except (ValueError, OverflowError):
        return


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of prefix: which fields its groups are (`take`), and which of all groups are its own.

    `of_writer`: it distinguishes writers. `bare`: so plain that it counts only outside of everything that torch prints; `outside`: a
    bare one may follow it.
    """

    fields: tuple[str, ...]
    groups: slice
    of_writer: bool = False
    bare: bool = False
    outside: bool = False


@cache
def layers() -> tuple[re.Pattern[str], Mapping[str, Layer]]:
    """Return a pattern that matches any layer, and each layer by the name of its group in that pattern."""
    alternatives, found, groups = list[str](), dict[str, Layer](), 1
    for entry in entries("lines/prefixes.toml", "prefix"):
        name, pattern = entry.pop("name"), entry.pop("pattern")
        for short, meant in _PATTERNS.items():
            pattern = pattern.replace(short, meant)
        alternatives.append(f"(?P<{name}>{pattern})")
        fields = tuple(field for short in entry.pop("fields", ()) for field in _FIELDS.get(short, (short,)))
        found[name] = Layer(fields, slice(groups, groups + len(fields)), **entry)
        groups += 1 + len(fields)
    return re.compile("|".join(alternatives)), found


def peel(text: str, found: Found, origin: list[str]) -> str:
    """Return what is left when all layers are taken off; fill `found` and `origin`."""
    any_layer, known = layers()
    at = 0
    seen = set[str]()
    for _ in range(_MOST):
        match = any_layer.match(text, at)
        name = match.lastgroup or "" if match is not None else ""
        if match is None or (name in seen and name != "debris"):
            break
        layer = known[name]
        if layer.bare and not all(known[other].outside for other in seen):
            break  # a bare "3: " or "node1: "
        if name == "unit" and not seen & {"iso", "syslog"}:
            break  # "python[123]: " is a name only after a time
        seen.add(name)
        at = match.end()
        values = match.groups()[layer.groups]
        take(found, layer.fields, values)
        if layer.of_writer:
            whole = match.group(0).strip()
            origin.append(f"{values[0]}/" if name == "role" else values[0] if name == "rank" else whole)
    return text[at:] if at else text
