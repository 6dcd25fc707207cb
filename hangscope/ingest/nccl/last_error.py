"""What NCCL said last, as torch quotes it under an exception: often the only line of NCCL's in a paste.

    ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
    Last error:
    NET/IB : Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv)

(torch/csrc/distributed/c10d/NCCLUtils.cpp; the payload is NCCL's `ncclGetLastError`, on the same line or the next.) Who copies
it turns lines around or leaves out the mark: what nobody but NCCL says is read without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.nccl.line import NcclLine
from hangscope.ingest.nccl.warn import NcclWarn, classify
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _warning(found: Found) -> Iterator[Event]:
    """Yield the payload as if NCCL's own warning stood there."""
    fields = classify(NcclLine("WARN", (found.last("payload") or "").strip()))
    if fields is not None and fields["fault"] != "other":
        yield found.parts[-1][0].event(NcclWarn, **fields)


LAST_ERROR = block(
    says("Last error:"),
    says(r"^(?!.*NCCL WARN).*Duplicate GPU detected :"),
    says(r"^(?!.*NCCL WARN).*Got completion from peer "),
    ends=regex(r"(?:Last error:|^(?!.*Last error:))\s*(?P<payload>\S.*)$"),
    lines=6,
    made=_warning,
)
