"""What one kind of line shows, in sentences: the part of an answer. Numbers are written as they are printed, to be searched for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import gmtime, strftime

from hangscope.model.conclusion import Collect
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase

MOST_LISTED = 64  # ranks


@dataclass(frozen=True, slots=True)
class Observation:
    """What lines of one kind show, what that means, the ranks (global) that must contain the root cause, and what to collect next.

    `proves`: the job stopped. `blamed`: `suspects` were named by others, and not only left over. `events` are the lines that were read, `cause` the verdict that
    they establish by themselves.
    """

    shows: str
    means: str = ""
    next: Collect | None = None
    suspects: tuple[int, ...] = ()
    proves: bool = False
    blamed: bool = False
    events: tuple[Event, ...] = ()
    cause: str = ""

    def reads(self, lines: Collection[tuple[str, int | None]]) -> bool:
        """Return whether it was read from one of these lines, each a file and a number."""
        return any((e.file, e.line) in lines for e in self.events)


def others_of(world: int | None, seen: Iterable[int]) -> tuple[int, ...]:
    """Return the ranks of a world of known size that were not seen; none where it is unknown or too large to list."""
    known = set(seen)
    if world is None or not known or max(known) >= world or world - len(known) > MOST_LISTED:
        return ()
    return tuple(sorted(set(range(world)) - known))


def who(ranks: Iterable[int], unnamed: str = "a process") -> str:
    """Return ranks as the subject of a sentence."""
    named = tuple(ranks)
    return ranks_phrase(named) if named else unnamed


def clock(stamp: float | None) -> str:
    """Return the time of day of a stamp, empty where there is none."""
    return strftime("%H:%M:%S", gmtime(stamp)) if stamp is not None else ""


def lasted(milliseconds: int) -> str:
    """Return a duration as `600 s`, and from half an hour on also in minutes or hours."""
    seconds = round(milliseconds / 1000)
    if seconds >= 7200:
        return f"{seconds} s ({seconds / 3600:.3g} hours)"
    return f"{seconds} s ({seconds / 60:.3g} minutes)" if seconds >= 1200 else f"{seconds} s"
