r"""One line of a file that holds several lines of a job: glued for want of a line feed, or quoted with `\n` in a JSON string.

    {"asctime": "2026-03-02 11:00:21,118", "levelname": "ERROR", "message": "...", "exc_text": "Traceback ...", "world_rank": 3}

is a record of a Ray Train worker (ray/train/v2/_internal/logging/logging.py; `logs/train/ray-train-app-worker-*.log` of a
session), whose lines are read as if they stood behind its stamp and its rank.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

from hangscope.ingest.lines.layers import peel
from hangscope.regex import regex

_MOST = 4096  # pieces of one line
_LONGEST_PREFIX = 400  # what wrappers put in front of a line is no longer
_MOST_OF_A_RECORD = 500
_RAY = '{"asctime": "'
#: What only the first words of a line look like. NCCL's heads are not here: its own parser tells torn lines apart.
_START = regex(
    r"\[rank\d{1,7}\]:(?=\[[EWIF]\d{3,4} \d\d:|\[[EWIF] \w| ?Traceback |\[[EWIF]\d{3,4} )"
    r"|\[\d{1,9},\d{1,7}\](?:<std(?:out|err)>):"
    r"|(?<!\]:)(?<!\]: )\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{6,9} [\w./]{1,100}\.(?:cpp|hpp|cc|py):\d{1,6}\]"
    r"|(?<!\]:)(?<!\]: )\[[EWIF] [\w./]{1,100}\.(?:cpp|hpp|cc):\d{1,10}\]"
)
_HINTS = ("[rank", "<std", ".cpp:", ".hpp:")


def pieces(text: str) -> list[str]:
    r"""Return the lines that a line holds, in their order: itself alone in nearly every case.

    It is cut where another line begins, and at `\n` where it is a quoted text. Linear in its length.
    """
    if text.startswith(_RAY) and '"world_rank"' in text:
        record = _ray_record(text)
        if record:
            return record
    if "\\n" in text and '"' in text:
        parts = re.split(r"\\r?\\n|\\n", text)[:_MOST]
        parts = [part.replace('\\"', '"').replace("\\t", "\t") for part in parts]
        parts[0] = _opened(parts[0])
        return [piece for part in parts for piece in _glued(part)]
    return _glued(text)


def _ray_record(text: str) -> list[str]:
    """Return the lines of one record of a Ray Train worker, each with its stamp and rank; nothing where it is not whole."""
    try:
        record = json.loads(text)
        rank, stamp = int(record["world_rank"]), str(record["asctime"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    told = [str(record[key]) for key in ("message", "exc_text") if record.get(key)]
    lines = [line for part in told for line in part.splitlines()][:_MOST_OF_A_RECORD]
    return [f"{stamp} [rank{rank}]: {line}" for line in lines] if rank >= 0 else []


def _opened(first: str) -> str:
    """Return the first line of a quoted text without the JSON before it."""
    at = first.rfind('": "')
    at = at + 4 if at >= 0 else first.rfind('":"') + 3 if '":"' in first else 0
    return first[at:]


def _glued(text: str) -> list[str]:
    if not any(hint in text[1:] for hint in _HINTS):
        return [text]
    starts = [match.start() for match in _START.finditer(text, 1)][: _MOST - 1]
    starts = [at for at in starts if at > _LONGEST_PREFIX or not _is_prefix(text[:at])]
    if not starts:
        return [text]
    edges = [0, *starts, len(text)]
    return [text[a:b] for a, b in pairwise(edges) if text[a:b].strip()]


def _is_prefix(before: str) -> bool:
    """Return whether what stands before a start is no line of its own, but what wrappers put in front of one."""
    return not peel(before, {}, []).strip()
