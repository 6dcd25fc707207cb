"""What the store, the rendezvous, DDP, FSDP and Join print when ranks are missing or built different models.

    torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 2/3 clients joined.
    [2]: params[0] in this process with sizes [16, 4] appears not to match sizes of the same param in process 0.

(torch/csrc/distributed/c10d/TCPStore.cpp, socket.cpp, reducer.cpp, utils/verify;
torch/distributed/distributed_c10d.py, fsdp, algorithms/join.py.) Ranks in these texts are local to the group
that checked.

The barrier in the store with which every group begins: who waits in it until the text ends.

    Waiting in store based barrier to initialize process group for rank: 2, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)
    Rank 2: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.
    Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)

(torch/distributed/distributed_c10d.py, `_store_based_barrier`, 1.8 to 2.13; `num_workers_joined` since 2.0, "for 10 seconds" before
the rank since 2.6, where the level is DEBUG.) The first line comes every ten seconds and proves nothing once the second has come.
The same holds for what the store's own server prints while it waits, where anything but such lines follows:

    [W1120 15:13:24.102 TCPStore.cpp:158] [c10d] waiting for workers. 3/4 workers joined.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from hangscope.ingest.lines.forms import FormParser, any_of, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.torch_logs.c10d import GroupEvent
from hangscope.model.events import Event
from hangscope.model.regex import regex

_OF_THE_STORE = (
    r"TCPStore|[Ss]erver socket|socket\.cpp|c10d|rendezvous|rdzv|init_process_group|DistNetworkError"
)


def _params(line: Line, match: re.Match[str]) -> Event:
    first, own, second, other = (int(n) for n in match.groups())
    if not own or not other:  # the answer of a rank that is gone, or never came, stays at its initial zero
        return line.event(GatherUnfilled, first, peer_group_rank=second if not other else first)
    return line.event(DdpParams, first, counts={first: own, second: other})


class StoreTimeout(GroupEvent, same_by=("key", "joined", "expected"), size_field="expected"):
    """A wait for the store or the rendezvous that ran out. `waited_rank` is the rank that a key names, local to its group."""

    joined: int | None = None
    expected: int | None = None
    key: str | None = None
    waited_rank: int | None = None
    what: str | None = None
    forms = (
        says(
            r"Timed out after \d{1,9} seconds waiting for (?:clients|workers)\. "
            r"(?P<joined>\d{1,7})/(?P<expected>\d{1,7}) (?:clients|workers) joined"
        ),
        says(r"wait timeout after \d{1,18} ?ms, keys: (?P<key>.{0,299}\S)"),
        says(r"waitForInput: poll for socket .{0,400} returned 0, likely a timeout", what="no answer"),
        says(r"(?:RuntimeError|DistStoreError|DistNetworkError): Socket Timeout", what="no answer"),
        says(
            r"retr(?:ie|ei)ving ncclUniqueId from \[(?P<waited_rank>\d{1,7})\]"
            r" via c10d key-value store by key '(?P<key>[^']{0,300})'",
            what="ncclUniqueId",
        ),
    )
    # gloo's address of that rank, and who prints the line in ProcessGroupNCCL.cpp
    also = (
        regex(r", keys: .{0,290}//(?:cpu|cuda)//\d{1,7}/(?P<waited_rank>\d{1,7})\s*$"),
        regex(r", keys: /default_pg/\d{1,7}//(?P<group_name>\d{1,7})//(?:cpu|cuda)//"),
        regex(r"\[(?P<group_rank>\d{1,7})\] is setting up NCCL communicator and retr"),
    )


class StoreUnreachable(GroupEvent, same_by=("store_host", "port", "what")):
    """The store host did not answer; `what` is "store gone" where it had been there, "peer" where gloo tried another rank's address."""

    store_host: str | None = None
    port: int | None = None
    what: str | None = None
    forms = (
        says("client socket has timed out after"),
        says(r"connect\(\) timed out\. Original timeout"),  # up to torch 1.11
        # Windows: 10049 (WSAEADDRNOTAVAIL) is printed of an address that is tried first, in jobs that go on as well
        says("client socket has failed to connect to(?!.{0,300}system error: 10049)"),
        says("Gloo connectFullMesh failed", what="peer"),
        # gloo/transport/tcp/pair.cc: the line below it
        says(r"connecting: SO_ERROR: [\w ]{3,60}, remote=\[", what="peer"),
        says("TCP client failed to connect"),
        says('Failed to check the "should dump" flag on TCPStore', what="store gone"),
        says(r"\b(?:recvValue|recvVector|sendBytes) failed on SocketImpl", what="store gone"),
    )
    also = (  # the last one that matches counts
        regex(r"(?:remote=|connect to )\[(?P<store_host>[\w.:%-]{1,253})\]:(?P<port>\d{1,5})"),
        regex(r"\((?P<store_host>[\w.:%-]{1,253}), (?P<port>\d{1,5})\)"),
    )


class RendezvousTimeout(Event, same_by=()):
    """The launcher's rendezvous was never completed."""

    what: str
    forms = (
        *any_of(
            ("RendezvousTimeoutError", "RendezvousConnectionError"),
            "(?P<what>Rendezvous(?:Timeout|Connection)Error)",
        ),
        # gloo/transport/tcp/address.cc: one rank gave an IPv4 address and another one an IPv6 address
        says(r"ss1\.ss_family == ss2\.ss_family", what="ss1.ss_family == ss2.ss_family"),
    )


class RendezvousBegun(Event, same_by=("complete",), by_launcher=True, calm=True):
    """An agent's word that it starts, or has gathered the others (`complete`)."""

    complete: bool = False
    # torch/distributed/launcher/api.py, elastic/agent/server/api.py
    forms = (
        says("Starting elastic_operator"),
        says("endezvous'ing worker group"),
        says("endezvous complete for workers", complete=True),
    )


class PortInUse(Event, same_by=("port",)):
    """The store host could not listen: the port is taken. Other servers of the job, and NCCL's RAS, print the error as well."""

    port: int | None = None
    forms = (
        says(
            rf"(?:{_OF_THE_STORE}).{{0,600}}EADDRINUSE|EADDRINUSE.{{0,200}}(?:{_OF_THE_STORE})",
            literal="EADDRINUSE",
        ),
        says(
            rf"(?:{_OF_THE_STORE}).{{0,600}}[Aa]ddress already in use|^(?:RuntimeError|[\w.]{{0,80}}DistNetworkError): .{{0,200}}[Aa]ddress already in use",
            literal="ddress already in use",
        ),
    )
    also = (  # the last one that matches counts
        regex(r"[\w\])]:(?P<port>\d{4,5})\b(?!\])"),
        regex(r"[\])\d]:(?P<port>\d{2,5}) \(errno"),
        regex(r"\bport: (?P<port>\d{1,5})\b"),
    )


class DdpParams(Event, same_by=("counts",), rank_fields=("counts",)):
    """The line "expects same model": numbers of parameters by rank, as the group counts."""

    counts: Mapping[int, int]
    forms = (
        says(
            r"but Rank (\d{1,7}) has (\d{1,9}) params, while rank (\d{1,7}) has inconsistent (\d{1,9}) params",
            read=_params,
        ),
    )


class GatherUnfilled(Event, same_by=("peer_group_rank",), prints_group_rank=True):
    """The line "has inconsistent 0 params": a gather that a rank, local to its group, never filled; no other model."""

    peer_group_rank: int


class DdpShape(Event, same_by=("index", "sizes")):
    """The line "params[i] in this process with sizes …" does not match process 0."""

    index: int
    sizes: tuple[int, ...] = ()
    forms = (
        says(
            r"\[(?P<group_rank>\d{1,7})\]: params\[(?P<index>\d{1,9})\] in this process with (?:sizes|strides)"
            r" \[(?P<sizes>[\d, ]{0,400})\] appears not to match"
        ),
    )


class DdpUnused(Event, same_by=("indices", "names")):
    """The line "did not receive grad for rank r": parameters by index or by name."""

    indices: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    forms = (
        says(
            r"Parameter(?:s| indices) which did not receive grad for rank (?P<group_rank>\d{1,7}): ?"
            r"(?:(?P<indices>[\d ,]{1,8000})(?:\.{3}|…)?$|(?P<names>.*))"
        ),
    )


class DdpUnfinished(Event, same_by=()):
    """The line "Expected to have finished reduction in the prior iteration"."""

    forms = (says("Expected to have finished reduction in the prior iteration"),)


class FsdpOrder(Event, same_by=()):
    """FSDP: the forward order differs: of two ranks (group-local), or of one (`group_rank`) from that of its first iteration.

    The ranks are compared pair by pair from 0 on, so those before `peer` did as rank 0 did (fsdp/_exec_order_utils.py).
    """

    peer: int | None = None
    forms = (
        says(
            r"Forward order differs (?:across ranks(?:: rank 0 is all-gathering .{1,2000}? while rank (?P<peer>\d{1,7}) is )?"
            r"|from that of the first iteration on rank (?P<group_rank>\d{1,7}))"
        ),
    )


_RANKS_KEPT = 20_000
_IN_BARRIER = r" store based barrier .{0,80}?rank:? (?P<group_rank>\d{1,7}), (?:for )?key: "
_BARRIER_KEY = regex(r"\bkey: ?(\S{1,300})")
_COMPLETED = regex(r"Rank (\d{1,7}): Completed store-based barrier for ")
_SERVER = (None, "")  # its place among those who wait


class StoreBarrier(Event, same_by=("world_size", "joined"), calm=True, size_field="world_size"):
    """The store based barrier at init: how many of how many joined. `waiting`: it had not timed out when the text ended."""

    world_size: int | None = None
    joined: int | None = None
    waiting: bool = False
    forms = (
        says("Timed out initializing process group in" + _IN_BARRIER),
        says("Waiting in" + _IN_BARRIER, waiting=True),
        *any_of(
            ("aiting for workers. ", "aiting for clients. "),
            r"^(?:\[c10d\] )?waiting for \w+\. (?P<joined>\d{1,7})/(?P<world_size>\d{1,7}) \w+ joined",
            waiting=True,
        ),
    )
    also = (
        regex(r"\bworld_size=(?P<world_size>\d{1,7})"),
        regex(r"\b(?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})"),
    )


class StoreParser(FormParser):
    """Reads the forms of this module; keeps the last wait of each rank in a barrier that it did not pass."""

    def __init__(self) -> None:
        super().__init__(sys.modules[__name__])
        self.literals = (*self.literals, b"Completed store-based barrier")
        self._waits: dict[tuple[int | None, str], Event] = {}

    @property
    def wants_more(self) -> bool:
        """Whether the store's server waits, until its process prints something else."""
        return _SERVER in self._waits

    def feed(self, line: Line) -> list[Event]:
        """Return a timeout; keep who waits until a later line shows how that ended."""
        key = _BARRIER_KEY.search(line.text)
        if key and (completed := _COMPLETED.search(line.text)):
            self._waits.pop((int(completed[1]), key[1]), None)
        found = super().feed(line)
        events = [event for event in found if isinstance(event, StoreBarrier)]
        if not events and line.source is None and words("goes_on").search(line.text):
            self._waits.pop(_SERVER, None)
        for event in events:
            place = (event.group_rank, key[1]) if key else _SERVER
            self._waits.pop(place, None)
            complete = event.joined is not None and event.joined == event.world_size
            if event.waiting and not (key is None and complete) and len(self._waits) < _RANKS_KEPT:
                self._waits[place] = event
        return [event for event in found if not getattr(event, "waiting", False)]

    def close(self) -> Iterable[Event]:
        """Return who still waits."""
        waits, self._waits = self._waits, {}
        return list(waits.values())
