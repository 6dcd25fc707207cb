"""Messages of engines, vendors and libraries whose meaning is known: the table is data, in knowledge/messages/*.toml.

    DeepEP dispatch NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 3, start: 0, end: 0
    [ERROR] 2026-01-14-05:02:11 (PID:5201, Device:0, RankID:9) ERR01100 OPS call acl api failed.
    EI0006: [PID: 5201] 2026-01-14-05:02:11.300.711 Getting socket times out. Reason: Remote Rank did not send the data in time.

An entry has the literal and the pattern of a line, what the line says and what to collect next; a line that is no cause also has what it
means. Its named groups are
the blanks of the sentence in `says`; `rank`, `victim_pid` and `host` also name whose line it is.

What Ascend's HCCL reports about a failed collective is quoted by torch_npu below its exception (the wordings of EI0002 to EI0013 and
EJ0002: the table of messages of HCCL's hcomm, src/.../err_msg.cc, CANN 8.5; the line with RankID: torch_npu's NPUException, whose number
is the environment's RANK). The rank that times out is the one that waited; a remote rank is local to its group.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from hangscope.ingest.job_logs.activity import process_of
from hangscope.ingest.lines.forms import FormParser, Keyed, integer, literals_of, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_LONGEST = 120
_BELOW = 12  # lines to which a stated rank applies
#: torch_npu states its process's rank above the messages of Ascend's libraries.
_RANK = regex(r"\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:(\d{1,7})\)")
_RANK_LITERAL = b", RankID:"
_OF_THE_LINE = frozenset({"literal", "pattern", "example"})  # what finds it, and one line that it finds


@dataclass(frozen=True, slots=True)
class Known:
    """One entry of the table.

    `stops`: the line proves that the job stopped. `follows`: it reports what another fault brought about. `benign`: a healthy job prints it too.
    `means` is what these two mean.
    `cause` is the verdict that the line establishes by itself, empty where it establishes none; `culprit`: its rank is to blame.
    `collect_what` is dump, log, stack or other.
    """

    id: str
    system: str
    says: str
    means: str = ""
    collect: str = ""
    collect_what: str = "log"
    cause: str = ""
    category: str = ""
    culprit: bool = False
    stops: bool = True
    follows: bool = False
    benign: bool = False
    versions: str = ""
    upstream: str = ""


class Message(Event, same_by=("id", "values", "process")):
    """A line of the table: `id` is its entry, `values` are (blank, text) in the order of the pattern, `process` its writer's name in an engine."""

    id: str
    values: tuple[tuple[str, str], ...] = ()
    process: str | None = None
    victim_pid: int | None = None

    @property
    def device(self) -> str:
        """Return the bus id that it names, empty where it names none."""
        return dict(self.values).get("device", "")


class Notice(Message, same_by=("id", "values", "process"), calm=True):
    """A line of the table that a healthy job prints as well."""


class HcclTimeout(Event, same_by=("what",)):
    """HCCL waited for a peer until its timeout: `what` is notify or task (in a call), or socket (while it connects)."""

    what: str
    peer_group_rank: int | None = None
    forms = (
        says(
            r"Notify register times out\.(?:.{0,120}?from remote rank:? ?\[(?P<peer_group_rank>\d{1,7})\])?"
            r"(?:.{0,400}?\brankId\[(?P<group_rank>\d{1,7})\])?",
            what="notify",
        ),
        says(r"\bhccl \w{1,20} task timeout occurred", what="task"),
        says("Getting socket times out", what="socket"),
    )


class HcclWarn(NcclWarn):
    """A fault that HCCL reports, in the terms of NCCL's warnings."""

    forms = (
        says(
            "arguments for collective communication are inconsistent between ranks",
            fault="collective_mismatch",
            tier=3,
        ),
        says(
            r"An error CQE occurred during operator execution\."
            r"(?:.{0,300}?Peer information: server (?P<peer_host>[^\s,]{1,255}))?",
            fault="ib_error",
            tier=2,
        ),
        says(r"EJ0002: .{0,80}?The network port is down", fault="port_error", tier=1),
    )


@cache
def table() -> Mapping[str, Known]:
    """Return the entries by id."""
    return {
        entry["id"]: Known(**{name: value for name, value in entry.items() if name not in _OF_THE_LINE})
        for entry in entries("messages", "message")
    }


class MessageParser(FormParser):
    """Reads the lines of the table and HCCL's; of each entry the first literal that a line holds counts."""

    def __init__(self) -> None:
        super().__init__(sys.modules[__name__])
        self._forms = (*self._forms, *_forms())
        self.literals = (*literals_of(form for _, _, form in self._forms), _RANK_LITERAL)
        self._stated: dict[str, tuple[int, int]] = {}  # by writer: the rank, and the number of the line

    def feed(self, line: Line) -> list[Event]:
        """Return at most one event per entry, with the rank of the line's prefix or the one that its writer stated last."""
        if match := _RANK.search(line.text):
            self._stated[line.origin] = (int(match[1]), line.number)
        rank, number = self._stated.get(line.origin, (None, 0))
        rank = line.rank if line.rank is not None else rank if line.number - number <= _BELOW else None
        return [replace(e, rank=rank) if e.rank is None else e for e in super().feed(line)]


@cache
def _forms() -> Keyed:
    """Return a form of each wording with its entry's id; without a pattern the literal says it all."""
    forms = []
    for entry in entries("messages", "message"):
        read = partial(_message, table()[entry["id"]])
        for text in [entry["literal"]] if isinstance(entry["literal"], str) else entry["literal"]:
            form = says(entry.get("pattern", re.escape(text)), literal=text, read=read)
            forms.append((entry["id"], Message, form))
    return tuple(forms)


def _message(known: Known, line: Line, match: re.Match[str]) -> Event:
    caught = {name: text.strip()[:_LONGEST] for name, text in match.groupdict().items() if text}
    victim, rank = integer(caught.get("victim_pid")), integer(caught.get("rank"))
    event = line.event(
        Notice if known.benign else Message, id=known.id, values=tuple(caught.items()), process=process_of(line.raw),
        victim_pid=victim, host=caught.get("host"),
    )  # fmt: skip
    return replace(event, rank=rank) if rank is not None and rank < MAX_RANKS else event
