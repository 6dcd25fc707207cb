"""RAS's text form, 2.24 on: tables, then errors and warnings by communicator (src/ras/client_support.cc)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.nccl.calls import user_op
from hangscope.ingest.nccl.ras.snapshot import MAX_LISTED, NcclRas, RasSnapshot, comm_hash
from hangscope.ingest.recorder.values import short_number
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_HEADER = regex(r"NCCL version (?P<version>\d{1,3}\.[\d.]{1,16}) compiled with CUDA")
_COMM = regex(r"#\d{1,9}-\d{1,9} \((?P<hash>[0-9a-fA-F]{1,16})\) (?P<problem>[A-Z, ]{2,60})")
_PROBLEM = regex(r"(?P<problem>INCOMPLETE|DEAD|TIMEOUT)\b")
_NODE = r"process (?P<pid>\d{1,10}) on node (?P<node>[\w.:\-]{1,255})"
_WHERE = rf"(?: -- GPUs? [\d,]{{1,64}} managed by {_NODE})?"
_PROCESS = regex(r"Process (?P<pid>\d{1,10}) on node (?P<node>[\w.:\-]{1,255}) managing GPUs? [\d,]{1,64}")
_DIFFERENT = regex(r"Communicator ranks have different (?P<op>\w{1,40}) operation counts")
_SOME = regex(
    r"(?P<n>\d{1,9}) ranks? (?:have|has) (?:launched up to operation (?P<count>\d{1,18})|not launched any)"
)
_ONE = regex(
    r"Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)"
    + _WHERE
)
_STATUS = regex(rf"Rank (?P<rank>\d{{1,9}}) has status (?P<status>[A-Z]{{2,20}}){_WHERE}")
_REPORTED = regex(rf"Rank (?P<rank>\d{{1,9}}) reported (?P<result>[\w ]{{1,60}}?){_WHERE}$")
_MISSING = regex(rf"Rank (?P<rank>\d{{1,9}}){_WHERE}$")
_MISSING_LIST = regex(r"The missing ranks?: (?P<ranks>[\d, \-]{1,65536})")
_MONITOR = regex(r"\[[^\]]{1,40}\] PEER_DEAD: Process (?P<pid>\d{1,10}) on node (?P<node>[\w.:\-]{1,255})")


@dataclass(slots=True)
class _Block:
    """The lines under one heading of the text form."""

    comm: str | None = None
    problem: str = ""
    op: str | None = None
    groups: list[tuple[int, int]] = field(default_factory=list)  # (ranks, count)
    listed: int | None = (
        None  # the count of the ranks that are listed from here on, each on a line of its own
    )
    ranks: list[tuple[int, int, NcclRas]] = field(default_factory=list)  # (rank, count, event without `what`)


def read_text(text: str, file: str) -> list[RasSnapshot]:
    """Return the snapshots in a file; each begins with the version line, or with the file. Never raises."""
    snapshots: list[RasSnapshot] = []
    block = _Block()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            continue
        header = _HEADER.search(line)
        if header is not None or not snapshots:
            if snapshots:
                _end(block, snapshots[-1])
                block = _Block()
            snapshots.append(RasSnapshot(file, number, header["version"] if header else ""))
            if header is not None:
                continue
        snapshot = snapshots[-1]
        heading = _COMM.match(line)
        plain = None if heading else _PROBLEM.match(line)
        if heading is not None or plain is not None:
            _end(block, snapshot)
            block = (
                _Block(comm_hash(heading["hash"]), heading["problem"].strip())
                if heading
                else _Block(None, plain["problem"] if plain else "")
            )
            continue
        different = _DIFFERENT.search(line)
        if different is not None:
            _end(block, snapshot)
            op = different["op"]
            block = _Block(block.comm, block.problem, None if op == "collective" else user_op(op))
            continue
        _text_line(line, number, block, snapshot)
    if snapshots:
        _end(block, snapshots[-1])
    for snapshot in snapshots if len(snapshots) > 1 else ():
        label = f"{file}:{snapshot.line:08}"  # the text form prints no time
        snapshot.events = [replace(event, snapshot=label) for event in snapshot.events]
    return snapshots


def _text_line(line: str, number: int, block: _Block, snapshot: RasSnapshot) -> None:
    def event(match: re.Match[str], what: str, **more: Any) -> NcclRas:
        groups = match.groupdict()
        rank = int(groups["rank"]) if groups.get("rank") else None
        return NcclRas(
            snapshot.file, number, quote(line), group_rank=rank, host=groups.get("node"),
            pid=int(groups["pid"]) if groups.get("pid") else None,
            what=what, comm=block.comm, comm_rank=rank, op=block.op, **more,
        )  # fmt: skip

    listed, block.listed = block.listed, None
    if (some := _SOME.match(line)) is not None:
        block.listed = int(some["count"] or 0)
        block.groups.append((int(some["n"]), block.listed))
    elif listed is not None and (own := _MISSING.match(line)) is not None and own["pid"]:
        block.listed = listed
        block.ranks.append((int(own["rank"]), listed, event(own, "behind", count=listed)))
    elif (one := _ONE.match(line)) is not None:
        count = int(one["count"] or 0)
        block.ranks.append((int(one["rank"]), count, event(one, "behind", count=count)))
    elif (status := _STATUS.match(line)) is not None:
        snapshot.events.append(event(status, "status", status=status["status"]))
    elif (reported := _REPORTED.match(line)) is not None:
        snapshot.events.append(event(reported, "error", result=reported["result"].strip()))
    elif (monitor := _MONITOR.match(line)) is not None:
        snapshot.events.append(event(monitor, "dead"))
    elif (process := _PROCESS.match(line)) is not None:
        snapshot.events.append(event(process, "dead" if block.problem == "DEAD" else "missing"))
    elif "INCOMPLETE" in block.problem and (missing := _MISSING.match(line)) is not None:
        snapshot.events.append(event(missing, "missing"))
    elif (missed := _MISSING_LIST.match(line)) is not None:
        for rank in _rank_list(missed["ranks"]):
            snapshot.events.append(
                NcclRas(
                    snapshot.file,
                    number,
                    quote(line),
                    group_rank=rank,
                    what="missing",
                    comm=block.comm,
                    comm_rank=rank,
                )
            )


def _end(block: _Block, snapshot: RasSnapshot) -> None:
    """Tell who is behind, now that all counts under a heading are known.

    RAS lists only the smaller side by rank, and that may be the one ahead; then the many behind are only
    counted.
    """
    counts = [count for _, count in block.groups] + [count for _, count, _ in block.ranks]
    if not counts or block.comm is None:
        return
    most = max(counts)
    total = sum(ranks for ranks, _ in block.groups) + sum(
        1 for _, count, _ in block.ranks if all(listed != count for _, listed in block.groups)
    )
    if total and any(rank >= total for rank, _, _ in block.ranks):
        snapshot.garbled += sum(1 for rank, _, _ in block.ranks if rank >= total)
        return  # 2.27 printed what stood in memory: neither these ranks nor the counts can be believed
    for _, count, found in block.ranks:
        event = replace(found, nranks=total, most=most)
        snapshot.events.append(event if count < most else replace(event, what="ahead"))
    for ranks, count in block.groups:
        if count < most and not any(listed == count for _, listed, _ in block.ranks):
            text = f"{ranks} ranks have launched up to operation {count}"
            line = block.ranks[0][2].line if block.ranks else snapshot.line
            snapshot.events.append(
                NcclRas(
                    snapshot.file,
                    line,
                    text,
                    what="behind",
                    comm=block.comm,
                    count=count,
                    op=block.op,
                    ranks=ranks,
                )
            )


def _rank_list(text: str) -> Iterator[int]:
    """Yield the ranks of `3,5-7`, at most 256 of them."""
    left = MAX_LISTED
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        first, last = short_number(low.strip()), short_number(high.strip())
        if first is None or len(low) > 9 or len(high) > 9:
            continue
        last = first if last is None else last
        for rank in range(first, min(last, first + left - 1) + 1):
            left -= 1
            yield rank
        if left <= 0:
            return
