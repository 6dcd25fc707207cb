"""Variables that set one rank apart: in the same function its value is another one than that of all others, where stacks have variables.

A microbatch count, a configured size or a flag is the same on all ranks of one program; positions, counters and what follows from
the rank are not, and differ on more than one of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.ingest.stacks.variables import Variables
from hangscope.model.regex import regex

_LEAST = 3  # ranks of which one may be the outlier
_MOST = 4
_SCORE = 0.6
_CONSTANT = regex(r"-?\d{1,18}(?:\.\d{1,18})?|True|False|\"[^\"]{0,80}\"|'[^']{0,80}'")
#: what counts, or follows from the rank
_OWN = regex(
    r"(?i)^(?:_|[ijkntx]$|is_)|rank|step|epoch|iter|idx|index|count|stage|pid|port|device|gpu|host|name|path|file|loss|time|seed|first|last"
)


def outlier_variables(found: list[Variables], files: dict[int, str]) -> tuple[OutlierLine, ...]:
    """Return the variables of which one rank alone has another value; telling where all name the same rank. `files`: its stack, by rank."""
    values: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for event in found:
        for function, name, value in zip(event.functions, event.names, event.values, strict=True):
            if event.rank is not None and not _OWN.search(name) and _CONSTANT.fullmatch(value):
                values[function, name].setdefault(event.rank, value)
    lines = []
    for (function, name), of_rank in values.items():
        sides: dict[str, list[int]] = defaultdict(list)
        for rank, value in sorted(of_rank.items()):
            sides[value].append(rank)
        few, many = sorted(sides, key=lambda value: len(sides[value]))[:2] if len(sides) == 2 else ("", "")
        if few and len(sides[few]) == 1 and len(of_rank) >= _LEAST:
            (rank,) = sides[few]
            note = f"rank {rank}'s stack has another value than {many}, which all others have"
            text = f"{name} = {few} in {function}"
            lines.append(OutlierLine((rank,), "variable", text, files.get(rank, ""), 0, _SCORE, note))
    telling = len({line.ranks for line in lines}) == 1
    return tuple(replace(line, telling=telling) for line in lines[:_MOST])
