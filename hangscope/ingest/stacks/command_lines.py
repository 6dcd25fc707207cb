"""Whose process it is by its command line, or by the name that it gave itself, in a stack dump.

    Process 880: python fit.py --rank 2          py-spy's first line of a process; `# RANK=2`, `[rank 2]`
    Process 4411: VLLM::Worker_DP0_TP1_EP1
    Process 8102: sglang::scheduler_PP1_TP0

A command line may also state the rank of a matrix (`--lora-rank 8`, `--rank 8`): then all processes state the same one. The names of an
engine's workers (vllm/v1/executor/multiproc_executor.py, sglang/srt/managers/scheduler.py) hold coordinates and no sizes, so a place
in several stages is a rank only where the dump contains the complete grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hangscope.ingest.lines.layers import coordinates
from hangscope.model.regex import regex

_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(--?)?(?:global[_-]?)?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)
_LOCAL_IN_COMMAND = regex(r"(?:^|[\s\[(#,;])(?:--?)?local[_-]?rank[\s=:_#]{0,2}(\d{1,7})\b", re.IGNORECASE)


def local_ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the local rank of each process id whose command line states it (`train.py --local-rank=2`)."""
    found = {pid: match for pid, title in titles.items() if (match := _LOCAL_IN_COMMAND.search(title))}
    return {pid: int(match[1]) for pid, match in found.items()}


def ranks_of_commands(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process id whose command line or name states it."""
    found = {pid: match for pid, title in titles.items() if (match := _IN_COMMAND.search(title))}
    ranks = {pid: int(match[2]) for pid, match in found.items()}
    if len(set(ranks.values())) < len(ranks) or (len(ranks) == 1 and any(m[1] for m in found.values())):
        ranks = {}
    return {**ranks_of_titles(titles), **ranks}


_TITLE = regex(r"(VLLM::Worker|sglang::scheduler)((?:_[A-Z][A-Z_]{0,14}?\d{1,5}){1,6})\b")

Place = tuple[int, int, int]


def ranks_of_titles(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process id whose name states one; nothing where a dump is of two engines."""
    places: dict[int, Place] = {}
    vllm = False
    for pid, title in titles.items():
        if match := _TITLE.match(title):
            found = coordinates(match[2])
            if "TP" in found:
                places[pid] = (found.get("DP", 0), found.get("PP", 0), found["TP"])
                vllm = vllm or match[1].startswith("VLLM")
    inner = {place[1:] for place in places.values()}
    if len(inner) == len(places):  # SGLang's data-parallel attention divides the tensor-parallel ranks
        places = {pid: (0, stage, tensor) for pid, (_, stage, tensor) in places.items()}
    elif not vllm:
        return {}  # replicas that do not know of each other
    sizes = [max((place[axis] for place in places.values()), default=0) + 1 for axis in range(3)]
    if sizes[:2] != [1, 1] and (
        len(set(places.values())) < len(places) or len(places) != sizes[0] * sizes[1] * sizes[2]
    ):
        return {}
    return {pid: (dp * sizes[1] + pp) * sizes[2] + tp for pid, (dp, pp, tp) in places.items()}
