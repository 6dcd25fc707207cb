"""The stages of a job's life, by the words of knowledge/stages/stages.toml."""

from __future__ import annotations

import re
from functools import cache

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_SETTINGS = 4  # of a line: `name=value`
_COMMAND = regex(
    r"^(?:\S{0,80}[$#>] ?)?(?:[A-Z_]{3,40}=\S{0,80} ){0,9}(?:torchrun|python3?|accelerate|deepspeed|srun|mpirun|mpiexec\S{0,8}|bash|sh|cmd:) "
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job's life: the words that show it, and what to collect where a text ends in it (`what`: log or stack)."""

    name: str
    words: tuple[re.Pattern[str], ...]
    phrase: str
    collect: str
    what: str


@cache
def stages() -> tuple[Stage, ...]:
    """Return the stages in the order of a job's life."""
    return tuple(
        Stage(s["name"], tuple(map(regex, s["words"])), s["phrase"], s["collect"], s["what"])
        for s in entries("stages/stages.toml", "stage")
    )


def stage_of_line(text: str) -> Stage | None:
    """Return the latest stage whose words a line holds; a command starts a job, and settings show nothing that happens."""
    if text.count("=") > _SETTINGS:
        return None
    if _COMMAND.match(text):
        return stages()[0] if any(word.search(text) for word in stages()[0].words) else None
    return next((s for s in reversed(stages()) if any(word.search(text) for word in s.words)), None)
