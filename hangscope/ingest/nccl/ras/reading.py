"""What NCCL's RAS client (`ncclras`, 2.24 on) says of a running job: ranks missing, dead, behind or in error.

RAS counts the collectives that each rank *launched* on each communicator, five operations only and none of a
captured CUDA graph; ranks of a communicator are group-local. One snapshot with different counts is normal. Formats: src/ras/client_support.cc, text from 2.24 on and
JSON from 2.28.7 on. Text::

    #0-0 (9f21ab34cd56ef78) MISMATCH
      Communicator ranks have different AllReduce operation counts
      15 ranks have launched up to operation 41
      Rank 3 has launched up to operation 40 -- GPU 3 managed by process 4242 on node 10.0.0.7
"""

from __future__ import annotations

import re

from hangscope.errors import Note
from hangscope.ingest.nccl.ras.json_form import read_json
from hangscope.ingest.nccl.ras.snapshot import RasSnapshot
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


def read(data: bytes, file: str) -> tuple[list[RasSnapshot], list[Note]]:
    """Return the snapshots in a file, in file order, and notes on what could not be read. Never raises."""
    text = data.decode("utf-8", "replace")
    if text.lstrip()[:1] == "{":
        return read_json(text, file)
    snapshots = read_text(text, file)
    garbled = sum(snapshot.garbled for snapshot in snapshots)
    if not garbled:
        return snapshots, []
    what = f"{garbled} lines name ranks that their communicator does not have, as NCCL 2.27 prints them; they were dropped"
    return snapshots, [Note("garbled_ras", what, file, hint="ask once more, or update NCCL")]
