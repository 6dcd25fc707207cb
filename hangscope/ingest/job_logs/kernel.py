"""Devices that the kernel lost: a GPU that fell off its bus, as the driver says it over several lines, and the link of a network card.

    [ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
    [Mon Aug  3 17:20:44 2026] mlx5_core 0000:2a:00.0 ens6np0: Link down

(The NVIDIA driver's nvidia_open; drivers/net/ethernet and infiniband/hw.) A port without a cable reports a link that is down when the
host starts, and a link that comes back carries on: neither is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangscope.ingest.job_logs.faults import Xid
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import LineParser, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.model.events import Event
from hangscope.model.regex import regex

_STARTING = 600.0  # seconds since the kernel's start
_MOST = 256  # links of one text
_LINK = regex(
    r"\b((?:mlx[45]_(?:core|ib)|bnxt_en|ice|i40e|irdma|hfi1|efa|ena|qede|cxgb4|hns3)\b.{0,120}?)"
    r"(?::? [Ll]ink (?:is )?([Dd]own|[Uu]p)|: NIC Link is (Down|Up)|: [Pp]ort \d+ (?:went )?(down|up))\b"
)
_SINCE_START = regex(r"^\[ {0,6}(\d{1,9}\.\d{1,9})\]")
_OFF = r"NVRM: .{0,200}?\bfallen off the bus and is not responding"


def _gone(found: Found) -> Iterator[Event]:
    """Yield the device that is gone."""
    if "fallen off" in found.latest.text:
        yield found.latest.event(Xid, code=79, device=found.last("device"))


GONE = block(
    says(r"NVRM: The NVIDIA GPU (?:at )?(?:PCI:)?(?P<device>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}(?:\.\d)?)"),
    says(_OFF),
    ends=regex(_OFF),
    lines=4,
    made=_gone,
)


class LinkParser(LineParser):
    """Returns at the end of a text the links that went down and did not come back."""

    literals = (
        b"Link down",
        b"Link up",
        b"link down",
        b"link up",
        b"Link is ",
        b"link is ",
        b": Port ",
        b": port ",
    )

    def __init__(self) -> None:
        self._down: dict[tuple[str | None, str], Line] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Take note of a link's state."""
        if link := _LINK.search(line.text):
            key, since = (line.host, link[1].strip()), _SINCE_START.match(line.raw)
            if (link[2] or link[3] or link[4]).lower() == "up":
                self._down.pop(key, None)
            elif len(self._down) < _MOST and not (since and float(since[1]) < _STARTING):
                self._down.setdefault(key, line)
        return ()

    def close(self) -> Iterable[Event]:
        """Return the links that are down."""
        for (_, nic), line in self._down.items():
            yield line.event(NcclWarn, fault="port_error", tier=1, nic=nic[:80])
