r"""One line of a file that holds several lines of a job: glued because line feeds were lost, or quoted with `\n` in a string."""

from __future__ import annotations

import re
from itertools import pairwise

from hangscope.ingest.lines.layers import peel
from hangscope.model.regex import regex

_MOST = 4096  # pieces of one line
_LONGEST_PREFIX = 400  # what wrappers put in front of a line is no longer
#: What only the first words of a line look like. NCCL's own parser splits its lines.
_START = regex(
    r"\[rank\d{1,7}\]:(?=\[[EWIF]\d{3,4} \d\d:|\[[EWIF] \w| ?Traceback |\[[EWIF]\d{3,4} | ?[\w.]{1,100}(?:Error|Exception): )"
    r"|\[\d{1,9},\d{1,7}\](?:<std(?:out|err)>):"
    r"|(?<!\]:)(?<!\]: )\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{6,9} [\w./]{1,100}\.(?:cpp|hpp|cc|py):\d{1,6}\]"
    r"|(?<!\]:)(?<!\]: )\[[EWIF] [\w./]{1,100}\.(?:cpp|hpp|cc):\d{1,10}\]"
)
_HINTS = ("[rank", "<std", ".cpp:", ".hpp:")


def pieces(text: str) -> list[str]:
    r"""Return the lines that a line holds, in their order: itself alone in nearly every case.

    It is cut where another line begins, and at `\n` where it is a quoted text. Linear in its length.
    """
    if "\\n" in text and '"' in text:
        parts = re.split(r"\\r?\\n|\\n", text)[:_MOST]
        parts = [part.replace('\\"', '"').replace("\\t", "\t") for part in parts]
        parts[0] = _opened(parts[0])
        return [piece for part in parts for piece in _glued(part)]
    return _glued(text)


def _opened(first: str) -> str:
    """Return the first line of a quoted text without the JSON before it."""
    at = first.rfind('": "')
    at = at + 4 if at >= 0 else first.rfind('":"') + 3 if '":"' in first else 0
    return first[at:]


def _glued(text: str) -> list[str]:
    if not any(hint in text[1:] for hint in _HINTS):
        return [text]
    starts = [match.start() for match in _START.finditer(text, 1)][: _MOST - 1]
    starts = [at for at in starts if at > _LONGEST_PREFIX or peel(text[:at], {}, []).strip()]
    if not starts:
        return [text]
    edges = [0, *starts, len(text)]
    return [text[a:b] for a, b in pairwise(edges) if text[a:b].strip()]
