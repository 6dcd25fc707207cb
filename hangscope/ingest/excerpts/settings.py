"""The setting of NCCL with which a job that hangs runs after all, as the reporter of a text says or shows.

With NCCL_P2P_DISABLE=1 it works.                a sentence
$ NCCL_IB_DISABLE=1 torchrun train.py            another run, and what it printed
all ranks done, success
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.ingest.lines.vocabulary import statements_of, words
from hangscope.model.dataclass import dataclass
from hangscope.model.tables import entries

_SHOWN = 8  # lines below a command


@dataclass(frozen=True, slots=True)
class Setting:
    """One entry of the table: settings whose names begin so, the path that they take out of use or choose, and what to look at then."""

    name: str
    path: str
    look: str


def setting(name: str) -> Setting:
    """Return what is known of a setting of NCCL; the last entry is of all."""
    known = (Setting(**entry) for entry in entries("lines/settings.toml", "setting"))
    return next(one for one in known if name.startswith(one.name))


def helpful_setting(texts: Sequence[str], said: str) -> str:
    """Return the name of the setting; empty where nobody says so and no run with one ends well. `said`: what people write in it."""
    for text in (sentence for part in (said, *texts) for sentence in statements_of(part)):
        if match := words("works_with_it").search(text) or words("it_makes_work").search(text):
            return match[1]
    for place, text in enumerate(texts):
        if (run := words("runs_with_it").match(text)) and any(
            words("passed").search(t) for t in texts[place + 1 : place + 1 + _SHOWN]
        ):
            return run[1]
    return ""
