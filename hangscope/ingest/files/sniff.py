"""Recognise a file by its content, never by its name alone.

Each answer is the kind of reader a file goes to (the tables at the end of `reader.py`) or a reason why it goes to none.
"""

from __future__ import annotations

import json
import re

from hangscope.model.regex import regex

HEAD_BYTES = 8192

_PICKLE = regex(rb"\x80[\x02-\x05]")
_STACKS = regex(
    rb"^(?:Current thread 0x|Thread 0x|Fatal Python error|Timeout \(\d)|^Thread \d+ \((?:idle|active)|^Process \d+: |"
    rb"^Traceback for thread \d+ |^Thread \d+ \((?:Thread|LWP)|^# Thread \d{1,19}[ \t\r]{0,8}\n{1,8}  File \"|^#\d+ +0x[0-9a-f]+ in |^=== Rank \d+(?:: \S+)? ===$",
    re.MULTILINE,
)
_RAS_TEXT = regex(
    rb"^NCCL version [\d.]+ compiled with CUDA|^Communicators\.\.\. \(|^Group +Comms +Nodes +Ranks|"
    rb"^#\d{1,9}-\d{1,9} \([0-9a-f]{8,16}\) [A-Z]{2,12}|^Job summary|^\[[^\]\n]{1,40}\] PEER_[A-Z]+: Process ",
    re.MULTILINE,
)
PACK = b"\x89hangscope.pack "  # and its version
_OUR_HTML = b'<meta name="generator" content="hangscope'


def sniff(head: bytes) -> str:
    """Return `pickle`, `pack`, `json`, `stacks`, `ras_text`, `log`, `empty`, `report` or `binary` for a file's first bytes."""
    if not head:
        return "empty"
    if _PICKLE.match(head) or head == b"\x80":  # the latter: cut after its first byte
        return "pickle"
    if head.startswith(PACK) or PACK.startswith(head):  # the latter: cut
        return "pack"
    if _OUR_HTML in head[:2048]:
        return "report"
    if head.lstrip()[:1] in (b"{", b"["):
        kind = _json_kind(head.lstrip())
        if kind:
            return kind
    if _RAS_TEXT.search(head):
        return "ras_text"
    if _STACKS.search(head):
        return "stacks"
    return "log" if _is_text(head) else "binary"


def _json_kind(head: bytes) -> str | None:
    first_line = head.split(b"\n", 1)[0]
    if b'"hangscope.report/' in head:
        return "report"
    if b'"coll_perf"' in first_line or b'"p2p_perf"' in first_line:
        return "inspector"
    # `[rank3]: ...` and `[1,12]<stdout>: ...` are log lines that only begin like JSON.
    if head[:1] == b"[" and not re.match(rb'\[\s*(?:[\[{"\]]|$)', head):
        return None
    if first_line.rstrip().endswith(b"}") and b"\n" in head:
        try:
            json.loads(first_line)
            return "json" if not head.split(b"\n", 1)[1].strip() else "log"
        except ValueError:
            if first_line.count(b"{") == first_line.count(b"}"):
                return None  # what a program printed of a dict: `{'loss': 2.31}`
    return "json"


def _is_text(head: bytes) -> bool:
    """Return whether bytes are text, allowing for NULs and colours that terminals leave in logs."""
    control = sum(1 for byte in head[:2048] if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    return control <= max(1, len(head[:2048]) // 20)
