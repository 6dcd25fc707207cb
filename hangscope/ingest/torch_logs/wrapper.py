"""What DETAIL's wrapper, gloo and the monitored barrier print when calls do not match or a peer is missing.

    RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...),
        but Rank 2 is running collective: CollectiveFingerPrint(...).Collectives differ in the following aspects: ...
    [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 8000 ms

(torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, ProcessGroupGloo.cpp; gloo/transport/tcp.) All ranks are
local to their group. Only a rank's *own* half of a mismatch is taken as fact. gloo's timeouts and closed
connections are symptoms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Build, Rule, RuleParser, rule, told
from hangscope.ingest.torch_logs.c10d import group_event, told_of_group
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, ranks_in
from hangscope.ingest.torch_logs.fingerprint import differing_aspects, fingerprints, garbled_peer
from hangscope.regex import regex

_IN_MS = regex(r"failed to pass monitoredBarrier in (\d{1,9}) ?ms")
_PEER_ADDRESS = regex(r"\[([\w.:%]{2,64})\]:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFingerprint(
    GroupEvent, kind="fingerprint", same_by=("context", "sequence_number", "op"), prints_group_rank=True
):
    """One rank's *own half* of a DETAIL mismatch, or of "encountered error running collective" (`context` mismatch or barrier_error).

    `seq` is the recorder's number, `sequence_number` the printed one. `peer_op` is what the peer's length tells, in words, where it is
    `garbled`; `aspects` are what the message says differs, of sequence number, op, shapes, dtypes, devices.
    """

    op: str
    context: str
    seq: int | None = None
    sequence_number: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    peer_group_rank: int | None = None
    peer_op: str | None = None
    peer_shape: tuple[int, ...] | None = None
    peer_dtype: str | None = None
    garbled: bool = False
    aspects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredBarrier(GroupEvent, same_by=("absent", "what"), prints_group_rank=True):
    """The line "Ranks 1, 3 failed to pass monitoredBarrier": `absent` is group-local.

    `what` is none_passed or timed_out where nobody is listed. `soon`: it failed when the whole text was younger than its timeout, so
    that a connection was lost.
    """

    absent: tuple[int, ...] = ()
    what: str | None = None
    soon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredBarrierWitness(Event, same_by=("from_group_rank",), prints_group_rank=True):
    """The line "successfully reached monitoredBarrier, but received errors": an innocent witness."""

    from_group_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooTimeout(Event, same_by=("what",)):
    """gloo waited for a send or a recv until its timeout; a symptom. `peer` is an address: it names a host, no rank."""

    peer: str | None = None
    what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooClosed(Event, same_by=("what", "peer")):
    """gloo lost a connection; a symptom. `peer` is an address: it names a host, no rank."""

    peer: str | None = None
    what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooSizeMismatch(Event, same_by=("received", "expected")):
    """`op.preamble.length <= op.nbytes`: a peer sent another size than this rank expects (bytes)."""

    received: int
    expected: int


def _mismatch(line: Line, match: re.Match[str]) -> Event | None:
    halves = fingerprints(line.text[match.start() :])
    if not halves:
        return None
    own, peer = halves[0], halves[1] if len(halves) > 1 else None
    other = re.search(r", but Rank (\d{1,7}) is running", line.text)
    garbled = garbled_peer(own, peer) if peer else None
    return line.event(
        CallFingerprint,
        int(match.group(1)),
        context="mismatch",
        **own.fields(),
        peer_group_rank=int(other.group(1)) if other else None,
        peer_op=garbled or (peer.op if peer else None),
        peer_shape=peer.shape if peer and not garbled else None,
        peer_dtype=" ".join(peer.dtypes) or None if peer and not garbled else None,
        garbled=bool(garbled),
        aspects=differing_aspects(line.text, bool(garbled)),
    )


def _barrier_error(line: Line, match: re.Match[str]) -> Event | None:
    halves = fingerprints(line.text[match.start() :])
    if not halves:
        return None
    own = halves[0]
    return group_event(line, CallFingerprint, context="barrier_error", **own.fields())


def _absent(line: Line, match: re.Match[str]) -> Event:
    return group_event(line, MonitoredBarrier, absent=ranks_in(match.group("ranks")))


def _gloo(kind: type[Event]) -> Build:
    """Return what makes an event of a kind, with the address of the peer that the line names."""

    def build(line: Line, match: re.Match[str]) -> Event:
        peer = _PEER_ADDRESS.search(line.text, match.start())
        return line.event(kind, peer=peer and peer.group(1), what=match.group("what"))

    return build


RULES: tuple[Rule, ...] = (
    rule(
        "Detected mismatch between collectives on ranks",
        r"Rank (\d{1,7}) is running (?:collective|inconsistent collective): ",
        _mismatch,
    ),
    rule(
        "is running inconsistent collective",
        r"Rank (\d{1,7}) is running inconsistent collective: ",
        _mismatch,
    ),
    rule("encountered error running collective", r"encountered error running collective: ", _barrier_error),
    rule(
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,70000}) failed to pass monitoredBarrier",
        _absent,
    ),
    rule(
        "No ranks successfully processed in monitoredBarrier",
        r"No ranks successfully processed",
        told_of_group(MonitoredBarrier, what="none_passed"),
    ),
    rule(
        "timed out in monitoredBarrier",
        r"Rank (?P<group_rank>\d{1,7}) timed out in monitoredBarrier after \d{1,18} ?ms",
        told(MonitoredBarrier, what="timed_out"),
    ),
    rule(
        "successfully reached monitoredBarrier, but received errors",
        r"Rank (?P<group_rank>\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting .{0,40}?"
        r"from rank (?P<from_group_rank>\d{1,7})",
        told(MonitoredBarrierWitness),
    ),
    rule(
        " operation to complete",
        r"Timed out waiting \d{1,18} ?ms for (?P<what>recv|send) operation to complete",
        _gloo(GlooTimeout),
    ),
    rule("Connection closed by peer [", r"(?P<what>Connection closed by peer) \[", _gloo(GlooClosed)),
    rule(
        "Connection reset by peer",
        r"(?:Read|Write) error .{0,80}?: (?P<what>Connection reset by peer)",
        _gloo(GlooClosed),
    ),
    rule(
        "Application timeout caused pair closure",
        r"(?P<what>Application timeout caused pair closure)",
        _gloo(GlooClosed),
    ),
    rule(
        "op.preamble.length <= op.nbytes",
        r"op\.preamble\.length <= op\.nbytes\.? (?P<received>\d{1,18}) vs (?P<expected>\d{1,18})",
        told(GlooSizeMismatch),
    ),
)


class WrapperParser(RuleParser):
    """Applies these rules; keeps when the text began, by the first stamp of c10's, against which timeouts are measured."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self.literals = (*self.literals, b"socket.cpp:")
        self._began: float | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Return at most one event per kind."""
        for event in super().feed(line):
            ms = _IN_MS.search(line.text)
            # Stamps count whole seconds.
            since = (line.stamp or 0.0) - self._began + 1.0 if ms and self._began is not None else 0.0
            if isinstance(event, MonitoredBarrier) and ms and 0 < since < int(ms[1]) / 1000:
                yield replace(event, soon=True)
            else:
                yield event
        if self._began is None:
            self._began = line.stamp
