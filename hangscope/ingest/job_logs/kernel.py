"""Devices that the kernel lost: a GPU that is gone from its bus, as the driver says it over several lines, and a network's link.

    [ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
    [Mon Aug  3 17:20:44 2026] mlx5_core 0000:2a:00.0 ens6np0: Link down

(The NVIDIA driver's nvidia_open; drivers/net/ethernet and infiniband/hw.) Ports without a cable say so when a host starts, and a
link that came back carried on: neither is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.ingest.job_logs.faults import Xid
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_STARTING = 600.0  # seconds since the kernel's start
_MOST = 256  # links of one text
_LINES = 4  # of the driver's sentence
_GPU = regex(r"NVRM: The NVIDIA GPU (?:at )?(?:PCI:)?([\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}(?:\.\d)?)")
_OFF = regex(r"NVRM: .{0,200}?\bfallen off the bus and is not responding")
_LINK = regex(
    r"\b((?:mlx[45]_(?:core|ib)|bnxt_en|ice|i40e|irdma|hfi1|efa|ena|qede|cxgb4|hns3)\b.{0,120}?)"
    r"(?::? [Ll]ink (?:is )?([Dd]own|[Uu]p)|: NIC Link is (Down|Up)|: [Pp]ort \d+ (?:went )?(down|up))\b"
)
_SINCE_START = regex(r"^\[ {0,6}(\d{1,9}\.\d{1,9})\]")


@dataclass(slots=True)
class _Device:
    name: str
    line: int


class KernelParser(LineParser):
    """Joins the driver's lines, and tells at the end which links stayed down."""

    literals = (b"NVRM: The NVIDIA ", b"fallen off the bus and is", b"Link down", b"Link up", b"link down", b"link up", b"Link is ", b"link is ", b": Port ", b": port ")  # fmt: skip

    def __init__(self) -> None:
        self._gpu: _Device | None = None
        self._down: dict[tuple[str | None, str], Line] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the device that a line says is gone."""
        if gpu := _GPU.search(line.text):
            self._gpu = _Device(gpu[1], line.number)
        if _OFF.search(line.text):
            gone, self._gpu = self._gpu, None
            near = gone is not None and line.number - gone.line <= _LINES
            yield line.event(Xid, code=79, device=gone.name if gone is not None and near else None)
        elif link := _LINK.search(line.text):
            self._link((line.host, link[1].strip()), (link[2] or link[3] or link[4]).lower(), line)

    def _link(self, key: tuple[str | None, str], state: str, line: Line) -> None:
        since = _SINCE_START.match(line.raw)
        if state == "up":
            self._down.pop(key, None)
        elif len(self._down) < _MOST and not (since and float(since[1]) < _STARTING):
            self._down.setdefault(key, line)

    def close(self) -> Iterable[Event]:
        """Return the links that did not come back."""
        for (_, nic), line in self._down.items():
            yield line.event(NcclWarn, fault="port_error", tier=1, nic=nic[:80])
