"""What NCCL's RAS client (`ncclras`, 2.24 on) reports about a running job: ranks missing, dead, behind or in error.

RAS counts the collectives that each rank *launched* on each communicator, five operations only and none of a
captured CUDA graph; ranks of a communicator are group-local. One snapshot with different counts is normal. Formats:
src/ras/client_support.cc, text from 2.24 on and JSON from 2.28.7 on.
"""

from __future__ import annotations

import re

from hangscope.errors import Note
from hangscope.ingest.nccl.ras.json_form import read_json
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.ras.text_form import read_text
from hangscope.model.regex import regex

_TEXT_SIGN = regex(
    rb"^(?:NCCL version [\d.]+ compiled with CUDA|Job summary|\[[^\]\n]{1,40}\] PEER_[A-Z]+: )", re.M
)
_JSON_SIGN = regex(rb'"(?:communicators_count|nccl_version)"\s*:|"event"\s*:\s*"PEER_')


def sniff(head: bytes) -> str | None:
    """Return `text` or `json` where the first bytes of a file are an answer of RAS, else None."""
    if head.lstrip()[:1] == b"{":
        return "json" if _JSON_SIGN.search(head) else None
    return "text" if _TEXT_SIGN.search(head) else None


def read(data: bytes, file: str) -> tuple[list[NcclRas], list[Note]]:
    """Return the events of the snapshots in a file, in file order, and notes on what could not be read. Never raises."""
    text = data.decode("utf-8", "replace")
    return read_json(text, file) if text.lstrip()[:1] == "{" else read_text(text, file)
