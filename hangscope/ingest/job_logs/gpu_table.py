"""How busy each GPU is, by a table of nvidia-smi that somebody pasted.

    |   2  NVIDIA H100 80GB HBM3          On  |   00000000:52:00.0 Off |                    0 |
    | N/A   33C    P0             71W /  700W |   61198MiB /  81559MiB |      0%      Default |

A process that waits in a collective keeps its GPU at 100 % and far below its power limit; one that is on the CPU leaves it idle.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_NAME = regex(r"^\|\s{1,4}(\d{1,3})\s{1,4}\S.{0,60}\|\s{1,6}[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d")
_USE = regex(
    r"^\|.{1,44}?\s(?:(\d{1,4})W|N/A) ?/ {1,4}(?:(\d{1,4})W|N/A) \| {1,8}(\d{1,7})MiB / {1,4}\d{1,7}MiB \| {1,8}(\d{1,3})%"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse(Event, same_by=("gpu",), by_launcher=True, calm=True):
    """One GPU of a host by its local number: `percent` of time with a kernel, power and its limit in `watts` and `limit`, MiB in use."""

    gpu: int
    percent: int
    mib: int
    watts: int | None = None
    limit: int | None = None


class GpuTableParser(LineParser):
    """Reads the two rows of each GPU."""

    literals = (b"MiB / ", b".0 Off |", b".0  On |")

    def __init__(self) -> None:
        self._gpu: int | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Take the number from the first row, and the rest from the second."""
        if name := _NAME.match(line.text):
            self._gpu = int(name[1])
            return ()
        use, gpu = _USE.match(line.text), self._gpu
        if use is None or gpu is None:
            return ()
        self._gpu = None
        watts, limit = (int(n) if n else None for n in use.groups()[:2])
        return [line.event(GpuUse, gpu=gpu, percent=int(use[4]), mib=int(use[3]), watts=watts, limit=limit)]
