"""What the store, the rendezvous, DDP, FSDP and Join print when ranks are missing or built different models.

    torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 2/3 clients joined.
    [2]: params[0] in this process with sizes [16, 4] appears not to match sizes of the same param in process 0.

(torch/csrc/distributed/c10d/TCPStore.cpp, socket.cpp, reducer.cpp, utils/verify;
torch/distributed/distributed_c10d.py, fsdp, algorithms/join.py.) Ranks in these texts are local to the group
that checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rules import Rule, integer, rule, told
from hangscope.ingest.torch_logs.c10d import told_of_group
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.regex import regex

_KEY_RANK = regex(r"//(?:cpu|cuda)//\d{1,7}/(\d{1,7})$")  # gloo's address of that rank
_LAST_PORT = regex(r"[\w\])]:(\d{4,5})\b(?!\])")
_NAMES_SHOWN = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTimeout(GroupEvent, same_by=("key", "joined", "expected")):
    """A wait for the store or the rendezvous that ran out. `waited_rank` is the rank that a key speaks of, as its group counts."""

    joined: int | None = None
    expected: int | None = None
    key: str | None = None
    waited_rank: int | None = None
    what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnreachable(GroupEvent, same_by=("store_host", "port", "what")):
    """The store host did not answer; `what` is "store gone" where it had been there."""

    store_host: str | None = None
    port: int | None = None
    what: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousTimeout(Event, same_by=()):
    """The rendezvous of the launcher never became whole."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousBegun(Event, same_by=("complete",), by_launcher=True, calm=True):
    """An agent's word that it starts, or has gathered the others (`complete`)."""

    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInUse(Event, same_by=("port",)):
    """The store host could not listen: the port is taken."""

    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpParams(Event, same_by=("counts",)):
    """The line "expects same model": numbers of parameters by rank, as the group counts."""

    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherUnfilled(Event, same_by=("peer_group_rank",), prints_group_rank=True):
    """The line "has inconsistent 0 params": a gather that a rank, local to its group, never filled; no other model."""

    peer_group_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpShape(Event, same_by=("index", "sizes")):
    """The line "params[i] in this process with sizes …" does not match process 0."""

    index: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpUnused(Event, same_by=("indices", "names")):
    """The line "did not receive grad for rank r": parameters by index or by name."""

    indices: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpUnfinished(Event, same_by=()):
    """The line "Expected to have finished reduction in the prior iteration"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpOrder(Event, same_by=()):
    """FSDP: the forward order differs: of two ranks (group-local), or of one (`group_rank`) from that of its first iteration.

    The ranks are compared pair by pair from 0 on, so those before `peer` did as rank 0 did (fsdp/_exec_order_utils.py).
    """

    peer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinExhausted(Event, same_by=(), prints_group_rank=True):
    """Join: a rank ran out of inputs."""


def _key(line: Line, match: re.Match[str]) -> Event:
    key = match.group(1).strip()
    rank = _KEY_RANK.search(key)
    waited = integer(rank.group(1)) if rank else None
    return line.event(StoreTimeout, key=key, waited_rank=waited)


def _unreachable(line: Line, match: re.Match[str]) -> Event:
    host, port = (
        re.search(r"\(([\w.:%-]{1,253}), (\d{1,5})\)", line.text[match.start() :]),
        re.search(r"remote=\[([\w.:%-]{1,253})\]:(\d{1,5})", line.text),
    )
    place = host or port
    return line.event(
        StoreUnreachable,
        store_host=place.group(1) if place else None,
        port=integer(place.group(2)) if place else None,
    )


def _port_in_use(line: Line, match: re.Match[str]) -> Event:
    text = line.text[: match.end() + 200]
    port = (
        re.search(r"\bport: (\d{1,5})\b", text)
        or re.search(r"[\])\d]:(\d{2,5}) \(errno", text)
        or _LAST_PORT.search(text)
    )
    return line.event(PortInUse, port=int(port.group(1)) if port else None)


def _params(line: Line, match: re.Match[str]) -> Event:
    first, own, second, other = (int(n) for n in match.groups())
    if not own or not other:  # the answer of a rank that is gone, or never came, stays at its initial zero
        return line.event(GatherUnfilled, first, peer_group_rank=second if not other else first)
    return line.event(DdpParams, first, counts={first: own, second: other})


def _shape(line: Line, match: re.Match[str]) -> Event:
    sizes = tuple(int(n) for n in re.findall(r"\d{1,15}", match.group(3)))
    return line.event(DdpShape, int(match.group(1)), index=int(match.group(2)), sizes=sizes)


def _unused_indices(line: Line, match: re.Match[str]) -> Event:
    indices = tuple(int(n) for n in re.findall(r"\d{1,9}", match.group(2)[:_NAMES_SHOWN]))
    return line.event(DdpUnused, int(match.group(1)), indices=indices)


def _unused_names(line: Line, match: re.Match[str]) -> Event:
    names = tuple(name for name in re.split(r"[,\s]+", match.group(2)[:_NAMES_SHOWN]) if name)
    return line.event(DdpUnused, int(match.group(1)), names=names)


RULES: tuple[Rule, ...] = (
    rule(
        "clients joined",
        r"Timed out after \d{1,9} seconds waiting for clients\. (?P<joined>\d{1,7})/(?P<expected>\d{1,7}) clients joined",
        told(StoreTimeout),
    ),
    rule(
        "workers joined",
        r"Timed out after \d{1,9} seconds waiting for workers\. (?P<joined>\d{1,7})/(?P<expected>\d{1,7}) workers joined",
        told(StoreTimeout),
    ),
    rule("wait timeout after", r"wait timeout after \d{1,18} ?ms, keys: (.{1,300})", _key),
    rule(
        "likely a timeout",
        r"waitForInput: poll for socket .{0,400} returned 0, likely a timeout",
        told(StoreTimeout, what="no answer"),
    ),
    rule(
        "Socket Timeout",
        r"(?:RuntimeError|DistStoreError|DistNetworkError): Socket Timeout",
        told(StoreTimeout, what="no answer"),
    ),
    rule("client socket has timed out", r"client socket has timed out after", _unreachable),
    rule("connect() timed out. Original timeout", None, _unreachable),  # up to torch 1.11
    rule("client socket has failed to connect", r"client socket has failed to connect to", _unreachable),
    rule("Gloo connectFullMesh failed", None, _unreachable),
    rule("TCP client failed to connect", None, _unreachable),
    rule(
        '"should dump" flag on TCPStore',
        r"Failed to check the \"should dump\" flag on TCPStore",
        told_of_group(StoreUnreachable, what="store gone"),
    ),
    # torch/distributed/launcher/api.py, elastic/agent/server/api.py
    rule("Starting elastic_operator", None, told(RendezvousBegun)),
    rule("endezvous'ing worker group", None, told(RendezvousBegun)),
    rule("endezvous complete for workers", None, told(RendezvousBegun, complete=True)),
    rule("RendezvousTimeoutError", r"(?P<what>RendezvousTimeoutError)", told(RendezvousTimeout)),
    # gloo/transport/tcp/address.cc: one rank gave an IPv4 address and another one an IPv6 address
    rule(
        "ss1.ss_family == ss2.ss_family",
        r"(?P<what>ss1\.ss_family == ss2\.ss_family)",
        told(RendezvousTimeout),
    ),
    rule("RendezvousConnectionError", r"(?P<what>RendezvousConnectionError)", told(RendezvousTimeout)),
    rule("EADDRINUSE", None, _port_in_use),
    rule("ddress already in use", r"[Aa]ddress already in use", _port_in_use),
    rule(
        "DDP expects same model across all ranks",
        r"but Rank (\d{1,7}) has (\d{1,9}) params, while rank (\d{1,7}) has inconsistent (\d{1,9}) params",
        _params,
    ),
    rule(
        "appears not to match ",
        r"\[(\d{1,7})\]: params\[(\d{1,9})\] in this process with (?:sizes|strides) \[([\d, ]{0,400})\] "
        r"appears not to match",
        _shape,
    ),
    rule(
        "which did not receive grad for rank",
        r"Parameters which did not receive grad for rank (\d{1,7}): ?(.*)",
        _unused_names,
    ),
    rule(
        "which did not receive grad for rank",
        r"Parameter indices which did not receive grad for rank (\d{1,7}): ?([\d ,]*)",
        _unused_indices,
    ),
    rule("Expected to have finished reduction in the prior iteration", None, told(DdpUnfinished)),
    rule(
        "Forward order differs",
        r"Forward order differs (?:across ranks(?:: rank 0 is all-gathering .{1,2000}? while rank (?P<peer>\d{1,7}) is )?|from that of the first iteration on rank (?P<group_rank>\d{1,7}))",
        told(FsdpOrder),
    ),
    rule("exhausted inputs", r"Detected at least one rank that exhausted inputs", told(JoinExhausted)),
    rule("exhausted all inputs", r"Rank (?P<group_rank>\d{1,7}) exhausted all inputs", told(JoinExhausted)),
    rule(
        "retrieving ncclUniqueId from",
        r"retrieving ncclUniqueId from \[(?P<waited_rank>\d{1,7})\] via c10d key-value store by key '(?P<key>[^']{0,"
        r"300})'",
        told_of_group(StoreTimeout, what="ncclUniqueId"),
    ),
)
