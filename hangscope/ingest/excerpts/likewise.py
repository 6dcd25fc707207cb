"""What a reporter writes of ranks whose output is left out: `(ranks 1 3 5 6 have the same lines as 2)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.excerpts.excerpt import MOST
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.rank_words import likewise
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.model.events import Event

_NEAR = 3  # lines
_ALIKE = 256  # events that a reporter's words repeat
_REPEATED = (WatchdogTimeout, GlooTimeout, RankException)


def repeated(events: Sequence[Event], kept: KeptText, size: int) -> list[Event]:
    """Return the errors of ranks of which a reporter writes that they show the same as another one or as the line above, each as that line's."""
    if size > MOST or kept.own:
        return []
    found: list[Event] = []
    for number, text in kept.texts:
        if (alike := likewise(text)) is not None:
            own = [e for e in events if isinstance(e, _REPEATED)]
            if alike[1] is not None:
                own = [e for e in own if e.rank == alike[1]]
            else:  # as the line above
                own = [e for e in own if 0 < number - e.line <= _NEAR][-1:]
            found += [replace(e, rank=r, line=number, text=text) for r in alike[0] for e in own]
    return found[:_ALIKE]
