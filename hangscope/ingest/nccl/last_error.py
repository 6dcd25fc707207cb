"""What NCCL said last, as torch quotes it under an exception: often the only line of NCCL's in a paste.

    ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
    Last error:
    NET/IB : Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv)

(torch/csrc/distributed/c10d/NCCLUtils.cpp; the payload is NCCL's `ncclGetLastError`, on the same line or the next.) Who copies
it turns lines around or leaves out the mark: what nobody but NCCL says is read without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.line import NcclLine
from hangscope.ingest.nccl.warn import NcclWarn, classify
from hangscope.model.events import Event

_MARK = "Last error:"
_UNMISTAKABLE = ("Duplicate GPU detected :", "Got completion from peer ")
_LINES = 6  # in which the payload must follow; other writers' lines may stand between


class LastErrorParser(LineParser):
    """Makes an `nccl_warn` of the payload of "Last error:", as if NCCL's own warning stood there."""

    literals = (b"Last error:", *(text.encode() for text in _UNMISTAKABLE))

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Take the payload from the line of the mark, or from the next one of the same writer."""
        if any(text in line.text for text in _UNMISTAKABLE) and "NCCL WARN" not in line.text:
            self._open.pop(line.origin, None)
            return _warning(line, line.text.strip())
        at = line.text.find(_MARK)
        if at >= 0:
            payload = line.text[at + len(_MARK) :].strip()
            if not payload:
                self._open[line.origin] = _LINES
                return ()
            self._open.pop(line.origin, None)
            return _warning(line, payload)
        if line.origin in self._open and line.text.strip():
            del self._open[line.origin]
            return _warning(line, line.text.strip())
        self._open = {origin: left - 1 for origin, left in self._open.items() if left > 1}
        return ()


def _warning(line: Line, payload: str) -> list[Event]:
    fields = classify(NcclLine("WARN", payload))
    if fields is None or fields["fault"] == "other":
        return []
    return [line.event(NcclWarn, **fields)]
