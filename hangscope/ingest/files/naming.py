"""Which rank a dump's file name speaks of.

A dump does not say which rank wrote it; torch appends the global rank to a prefix that users choose
(`TORCH_FR_DUMP_TEMP_FILE`), so the name is all there is: `nccl_trace_rank_3`, `comm_lib_trace_rank_3`, `_dump_3`,
`nccl_trace_rank_container-node07_40`, `rank3.json`, `node2/rank_17.pkl.gz`.
"""

from __future__ import annotations

import re

_SUFFIXES = re.compile(r"(?:\.(?:json|pkl|pickle|bin|dump|trace|txt|out|fr|gz|zst))+$", re.IGNORECASE)
_RANK_WORD = re.compile(r"rank[_\-.= ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TRAILING = re.compile(r"(?<!\d)(\d{1,7})$")  # eight digits are a date


def rank_from_name(path: str) -> int | None:
    """Return the global rank that a dump's path names, or None.

    The word `rank` before a number wins, else the number that ends the stem, else the same two in the folder's name.
    """
    parts = path.replace("\\", "/").split("/")
    for part in [_SUFFIXES.sub("", parts[-1]), *reversed(parts[:-1])]:
        match = _last(_RANK_WORD, part) or (
            _TRAILING.search(part) if part is not parts[0] or len(parts) == 1 else None
        )
        if match:
            return int(match.group(1))
    return None


def says_rank(path: str) -> bool:
    """Return whether a path has the word `rank` before a number, and not a bare number only."""
    return bool(_RANK_WORD.search(path))


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(text):  # noqa: B007 - the last match is wanted
        pass
    return match
