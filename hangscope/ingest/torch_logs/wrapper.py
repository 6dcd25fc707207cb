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

from hangscope.incident import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Build, Rule, RuleParser, integer, rule
from hangscope.ingest.torch_logs.c10d import group_event
from hangscope.ingest.torch_logs.fingerprint import differing_aspects, fingerprints, garbled_peer

_PEER_ADDRESS = re.compile(r"\[([\w.:%]{2,64})\]:\d{1,5}")


def _mismatch(line: Line, match: re.Match[str]) -> Event | None:
    halves = fingerprints(line.text[match.start() :])
    if not halves:
        return None
    own, peer = halves[0], halves[1] if len(halves) > 1 else None
    other = re.search(r", but Rank (\d{1,7}) is running", line.text)
    garbled = garbled_peer(own, peer) if peer else None
    return line.event(
        "fingerprint",
        int(match.group(1)),
        context="mismatch",
        **own.fields(),
        peer_group_rank=int(other.group(1)) if other else None,
        peer_op=garbled or (peer.op if peer else None),
        peer_shape=list(peer.shape) if peer and peer.shape is not None and not garbled else None,
        garbled=True if garbled else None,
        aspects=differing_aspects(line.text, bool(garbled)),
    )


def _barrier_error(line: Line, match: re.Match[str]) -> Event | None:
    halves = fingerprints(line.text[match.start() :])
    if not halves:
        return None
    own = halves[0]
    return group_event(
        line,
        "fingerprint",
        context="barrier_error",
        **own.fields(),
    )


def _absent(line: Line, match: re.Match[str]) -> Event:
    ranks = sorted({int(n) for n in re.findall(r"\d{1,7}", match.group("ranks"))})
    return group_event(line, "monitored_barrier", absent=ranks, timeout_ms=integer(match.group("ms")))


def _nobody_passed(line: Line, match: re.Match[str]) -> Event:
    return group_event(line, "monitored_barrier", absent=[], what="none_passed")


def _own_timeout(line: Line, match: re.Match[str]) -> Event:
    return line.event(
        "monitored_barrier",
        int(match.group(1)),
        absent=[],
        timeout_ms=integer(match.group(2)),
        what="timed_out",
    )


def _witness(line: Line, match: re.Match[str]) -> Event:
    return line.event("monitored_barrier_witness", int(match.group(1)), from_group_rank=int(match.group(2)))


def _gloo(kind: str) -> Build:
    def build(line: Line, match: re.Match[str]) -> Event:
        peer = _PEER_ADDRESS.search(line.text, match.start())
        return line.event(
            kind,
            peer=peer.group(1) if peer else None,
            what=match.groupdict().get("what"),
            timeout_ms=integer(match.groupdict().get("ms")),
        )

    return build


def _size_mismatch(line: Line, match: re.Match[str]) -> Event:
    return line.event("gloo_size_mismatch", received=int(match.group(1)), expected=int(match.group(2)))


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
        r"Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,70000}) failed to pass monitoredBarrier(?: in (?P<ms>\d{1,"
        r"18}) ?ms)?",
        _absent,
    ),
    rule(
        "No ranks successfully processed in monitoredBarrier",
        r"No ranks successfully processed",
        _nobody_passed,
    ),
    rule(
        "timed out in monitoredBarrier",
        r"Rank (\d{1,7}) timed out in monitoredBarrier after (\d{1,18}) ?ms",
        _own_timeout,
    ),
    rule(
        "successfully reached monitoredBarrier, but received errors",
        r"Rank (\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting .{0,"
        r"40}?from rank (\d{1,7})",
        _witness,
    ),
    rule(
        " operation to complete",
        r"Timed out waiting (?P<ms>\d{1,18}) ?ms for (?P<what>recv|send) operation to complete",
        _gloo("gloo_timeout"),
    ),
    rule("Connection closed by peer [", r"(?P<what>Connection closed by peer) \[", _gloo("gloo_closed")),
    rule(
        "Connection reset by peer",
        r"(?:Read|Write) error .{0,80}?: (?P<what>Connection reset by peer)",
        _gloo("gloo_closed"),
    ),
    rule(
        "Application timeout caused pair closure",
        r"(?P<what>Application timeout caused pair closure)",
        _gloo("gloo_closed"),
    ),
    rule(
        "op.preamble.length <= op.nbytes",
        r"op\.preamble\.length <= op\.nbytes\.? (\d{1,18}) vs (\d{1,18})",
        _size_mismatch,
    ),
)


def wrapper_parser() -> RuleParser:
    """Return the parser of the lines of DETAIL's wrapper and of gloo."""
    return RuleParser(RULES)
