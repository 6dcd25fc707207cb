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
#: What begins several lines of one text, each with an error of the same name after the end of a sentence.
_ERROR = regex(r"[\w.]{1,100}(?:Error|Exception): (?=\S)")
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
    starts = _repeated(text)
    if not starts and not any(hint in text[1:] for hint in _HINTS):
        return [text]
    starts += [match.start() for match in _START.finditer(text, 1)][: _MOST - 1]
    starts = [at for at in starts if at > _LONGEST_PREFIX or not _is_prefix(text[:at])]
    if not starts:
        return [text]
    edges = [0, *sorted(set(starts)), len(text)]
    return [text[a:b] for a, b in pairwise(edges) if text[a:b].strip()]


def _repeated(text: str) -> list[int]:
    """Return where an error begins once more that the line begins with, as where a paste lost its line feeds."""
    first = _ERROR.match(text, text.find("]: ", 0, _LONGEST_PREFIX) + 3 if text.startswith("[") else 0)
    if first is None:
        return []
    found, again = list[int](), text.find(first[0], first.end())
    while again >= 0 and len(found) < _MOST:
        if text[max(0, again - 8) : again].rstrip().endswith((".", "!", ")", "]")):
            found.append(again)
        again = text.find(first[0], again + 1)
    return found


def _is_prefix(before: str) -> bool:
    """Return whether a text is nothing but the prefixes of a line."""
    return not peel(before, {}, []).strip()
