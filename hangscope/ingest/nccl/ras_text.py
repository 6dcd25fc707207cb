"""RAS's text form, 2.24 on: tables, then errors and warnings by communicator.

#0-0 (9f21ab34cd56ef78) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation 41
  Rank 3 has launched up to operation 40 -- GPU 3 managed by process 4242 on node 10.0.0.7

(src/ras/client_support.cc.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.forms import spans, typed
from hangscope.ingest.nccl.line import user_op
from hangscope.ingest.nccl.ras_json import MAX_LISTED, NcclRas, comm_hash
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_HEADER = regex(r"NCCL version \d{1,3}\.[\d.]{1,16} compiled with CUDA")
_HEADING = regex(
    r"(?:#\d{1,9}-\d{1,9} \((?P<hash>[0-9a-fA-F]{1,16})\) (?P<problem>[A-Z, ]{2,60})|(?P<of_all>INCOMPLETE|DEAD|TIMEOUT)\b)"
)
_DIFFERENT = regex(r"Communicator ranks have different (?P<op>\w{1,40}) operation counts")
_PROCESS = r"rocess (?P<pid>\d{1,10}) on node (?P<host>[\w.:\-]{1,255})"
_RANK = r"Rank (?P<comm_rank>\d{1,9})"
_WHERE = rf"(?: -- GPUs? [\d,]{{1,64}} managed by p{_PROCESS})?"
_LAUNCHED = r"(?:launched up to operation (?P<count>\d{1,18})|not launched any)"
#: what the lines under a heading state; groups are named after the fields of `NcclRas`
_COUNTED = regex(rf"(?P<ranks>\d{{1,9}}) ranks? ha(?:ve|s) {_LAUNCHED}")
_LISTED = regex(rf"{_RANK} has {_LAUNCHED}(?: operations)?{_WHERE}")
_MEMBER = regex(rf"{_RANK}{_WHERE}$")
_MISSING = regex(r"The missing ranks?: ([\d, \-]{1,65536})")
_FORMS = {
    "status": regex(rf"{_RANK} has status (?P<status>[A-Z]{{2,20}}){_WHERE}"),
    "error": regex(rf"{_RANK} reported (?P<result>[\w ]{{1,60}}?){_WHERE}$"),
    "dead": regex(rf"\[[^\]]{{1,40}}\] PEER_DEAD: P{_PROCESS}"),
    "missing": regex(rf"P{_PROCESS} managing GPUs? [\d,]{{1,64}}"),
}


def read_text(text: str, file: str) -> tuple[list[NcclRas], list[Note]]:
    """Return the events of the snapshots in a file, each of which begins with the version line, and notes. Never raises."""
    blocks = [_Block(file, f"{file}:{0:08}")]
    for number, raw in enumerate(text.splitlines(), start=1):
        if (following := blocks[-1].followed_by(raw.strip(), number)) is not None:
            blocks.append(following)
        else:
            blocks[-1].read(raw.strip(), number)
    events = [event for block in blocks for event in block.end()]
    garbled = sum(block.garbled for block in blocks)
    if not garbled:
        return events, []
    what = f"{garbled} lines name ranks that their communicator does not have, as NCCL 2.27 prints them; they were dropped"
    return events, [Note("garbled_ras", what, file, hint="ask once more, or update NCCL")]


@dataclass(slots=True)
class _Block:
    """The lines under one heading. The text form prints no time, so that `snapshot` is the line of its beginning."""

    file: str
    snapshot: str
    comm: str | None = None
    problem: str = ""
    op: str | None = None
    counted: list[tuple[int, int]] = field(default_factory=list)  # (ranks, count)
    below: int | None = None  # the count of the ranks that are listed from here on, each on a line of its own
    listed: list[NcclRas] = field(default_factory=list)
    stated: list[NcclRas] = field(default_factory=list)
    garbled: int = 0

    def followed_by(self, line: str, number: int) -> _Block | None:
        """Return the block that a line begins, None for a line within this one."""
        if _HEADER.search(line) is not None:
            return _Block(self.file, f"{self.file}:{number:08}")
        if (heading := _HEADING.match(line)) is not None:
            comm = comm_hash(heading["hash"]) if heading["hash"] else None
            return _Block(self.file, self.snapshot, comm, heading["problem"] or heading["of_all"])
        if (different := _DIFFERENT.search(line)) is not None:
            op = None if different["op"] == "collective" else user_op(different["op"])
            return _Block(self.file, self.snapshot, self.comm, self.problem, op)
        return None

    def read(self, line: str, number: int) -> None:
        """Take what a line states; counts are compared at the end."""
        below, self.below = self.below, None
        member = _MEMBER.match(line)
        if (counted := _COUNTED.match(line)) is not None:
            self.below = int(counted["count"] or 0)
            self.counted.append((int(counted["ranks"]), self.below))
        elif member is not None and below is not None and member["pid"]:
            self.below = below
            self.listed.append(self._event(line, number, member, what="behind", count=below))
        elif (launched := _LISTED.match(line)) is not None:
            count = int(launched["count"] or 0)
            self.listed.append(self._event(line, number, launched, what="behind", count=count))
        elif member is not None:
            if "INCOMPLETE" in self.problem:
                self.stated.append(self._event(line, number, member, what="missing"))
        elif (missing := _MISSING.match(line)) is not None:
            for rank in spans(missing[1], MAX_LISTED):
                self.stated.append(self._event(line, number, None, what="missing", comm_rank=rank))
        else:
            for what, pattern in _FORMS.items():
                if (match := pattern.match(line)) is not None:
                    dead = what == "missing" and self.problem == "DEAD"
                    self.stated.append(self._event(line, number, match, what="dead" if dead else what))

    def _event(self, line: str, number: int, match: re.Match[str] | None, **fields: Any) -> NcclRas:
        caught = {**(dict(typed(NcclRas, match)) if match is not None else {}), **fields}
        heading = {"comm": self.comm, "op": self.op, "snapshot": self.snapshot}
        return NcclRas.at(self.file, number, line, **heading, **caught)

    def end(self) -> Iterator[NcclRas]:
        """Yield what lines state by themselves, and who is behind, now that all counts under a heading are known.

        RAS lists only the minority by rank, and that may be the one ahead; then the many behind are only counted.
        """
        yield from self.stated
        counts = {count for _, count in self.counted}
        total = sum(ranks for ranks, _ in self.counted) + sum(e.count not in counts for e in self.listed)
        if self.comm is None or not total:
            return
        if any((event.comm_rank or 0) >= total for event in self.listed):
            self.garbled = sum((event.comm_rank or 0) >= total for event in self.listed)
            return  # 2.27 printed uninitialized memory: neither these ranks nor the counts are reliable
        most = max(*counts, *(event.count or 0 for event in self.listed), 0)
        for event in self.listed:
            ahead = event.count == most
            yield replace(event, nranks=total, most=most, what="ahead" if ahead else "behind")
        for ranks, count in self.counted:
            if count < most and all(event.count != count for event in self.listed):
                text = f"{ranks} ranks have launched up to operation {count}"
                line = self.listed[0].line if self.listed else 1
                yield self._event(text, line, None, what="behind", count=count, ranks=ranks)
