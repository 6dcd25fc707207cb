"""Whose process it is by its command line, as a stack dump tells it.

    Process 880: python fit.py --rank 2          py-spy's first line of a process; `# RANK=2`, `[rank 2]`

A command line may also say the rank of a matrix (`--lora-rank 8`, `--rank 8`): then all processes say the same one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hangscope.ingest.stacks.engine_titles import ranks_of_titles
from hangscope.model.regex import regex

_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(--?)?(?:global[_-]?)?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)
_LOCAL_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(?:--?)?local[_-]?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)


def local_ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the local rank of each process id whose command line states it (`train.py --local-rank=2`)."""
    found = {pid: match for pid, title in titles.items() if (match := _LOCAL_IN_COMMAND.search(title))}
    return {pid: int(match[1]) for pid, match in found.items()}


def ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process id that its command line or its name tells."""
    found = {pid: match for pid, title in titles.items() if (match := _IN_COMMAND.search(title))}
    ranks = {pid: int(match[2]) for pid, match in found.items()}
    if len(set(ranks.values())) < len(ranks) or (len(ranks) == 1 and any(m[1] for m in found.values())):
        ranks = {}
    return {**ranks_of_titles(titles), **ranks}
