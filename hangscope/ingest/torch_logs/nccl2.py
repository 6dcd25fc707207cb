"""torch 2.15's second NCCL backend, which `nccl` means by default (TORCH_DIST_USE_NCCL2=0 brings the first one back).

    [rank3]:[E1102 19:05:51.300711023 ...cpp:402] [TC][rank=3][name=0] Aborting process on rank 3 due to timeout - timeout watchdog detected operation timeout
    RuntimeError: Watchdog caught collective operation timeout: NCCL operation timed out

(torch/csrc/distributed/c10d/nccl2/Logging.hpp and ProcessGroupNCCLUtils.cpp, WorkNCCL.cpp; read in the 2.15.0 wheel.) The rank is
that of the communicator and the name the process group's; no line names the call that timed out: the dump does.
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Rule, rule
from hangscope.ingest.torch_logs.c10d import AsyncError
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.regex import regex

_HEAD = regex(r"\[TC\](?:\[rank=(\d{1,7})\])?(?:\[name=([^\]]{0,200})\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nccl2Timeout(GroupEvent, same_by=(), prints_group_rank=True):
    """nccl2's watchdog gave a collective up, which none of its lines names. `what`: who noticed, in its own words."""

    what: str


def _who(line: Line) -> tuple[int | None, dict[str, Any]]:
    """Return the rank in the communicator and the name of its group, as the head prints them."""
    head = _HEAD.search(line.text)
    if head is None:
        return None, {}
    name = head[2] or None
    return int(head[1]) if head[1] else None, {"group_name": name} if name else {}


def _timeout(line: Line, match: re.Match[str]) -> Event:
    rank, group = _who(line)
    return line.event(Nccl2Timeout, rank, what=match[1], **group)


def _error(line: Line, match: re.Match[str]) -> Event:
    rank, group = _who(line)
    remote = "remote process exited" in line.text or "network error" in line.text
    return line.event(AsyncError, rank, error="remote" if remote else "other", **group)


RULES: tuple[Rule, ...] = (
    rule(
        "due to timeout - ",
        r"\[TC\].{0,300}due to timeout - (collective operation timed out|timeout watchdog detected operation timeout)",
        _timeout,
    ),
    rule(
        "NCCL operation timed out",
        r"Watchdog caught collective operation timeout: (NCCL operation timed out)",
        _timeout,
    ),
    rule("nccl hit async error", r"\[TC\].{0,300}nccl hit async error", _error),
    rule(
        "due to error - ",
        r"\[TC\].{0,300}due to error - (?:timeout watchdog detected operation error|nccl hit)",
        _error,
    ),
)
