"""Jobs that ran side by side and wrote into one log: a driver of Ray prints what all of its actors say.

    (TrainWorker pid=101, ip=10.0.0.1) [rank0]:[E1120 15:13:24.220 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught ...
    (RolloutWorker pid=303, ip=10.0.0.3) [rank2]: ValueError: prompt too long

(Ray's prefix: python/ray/_private/worker.py, `print_worker_logs`; the name is the actor's class or its repr.) The processes of
one job are actors of one class; so lines with torch's own `[rankN]:` behind two classes are of two jobs, each with a rank 0 of its
own. Classes whose ranks follow each other in blocks are roles of one job. vLLM's RayWorkerWrapper is another exception: it serves an engine whose rank 0 may be an actor of another class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hangscope.errors import Note
from hangscope.events import Event
from hangscope.ingest.workers.reading import Reading
from hangscope.regex import regex

_LINE = regex(
    r"\(([A-Za-z_][\w.<>:-]{0,80})(?: rank=\d{1,7})?,? pid=(\d{1,9})(?:, ip=([\w.:]{2,64}))?\) ?(?:\[rank(\d{1,7})\]:)?"
)
_AT_MOST = 200  # characters before Ray's prefix: a stamp, a pod
_NUMBERS = regex(r"\d+")
_BLOCK = 2  # ranks of a class at least, for blocks of ranks that follow each other to be no chance
_WRAPPER = "RayWorkerWrapper"


def worlds_of_actors(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    """Return the readings of each job by the actors that are its ranks; one entry, of all readings, where there is one job.

    Where dumps lie beside such a log nothing tells whose they are: then what its ranks said is left out, and the dumps stay.
    """
    names = _names(readings)
    if len(names) < 2:
        return {"": list(readings)}
    if any(rec.source == "flight_recorder" for reading in readings for rec in reading.recordings):
        note = Note(
            "several_worlds",
            f"actors of {len(names)} jobs speak in logs, each with ranks from 0: {', '.join(names)}; it is not known of which"
            " the dumps are, and what these actors said is left out",
            hint="give one job's dumps and logs alone",
        )
        rest = [_without(reading, set(names), names, set()) for reading in readings]
        return {"": [replace(rest[0], notes=[*rest[0].notes, note]), *rest[1:]]}
    ranks = _ranks(readings, names)
    return {
        f"actor {name}": [_without(r, set(names) - {name}, names, _shared(ranks, name)) for r in readings]
        for name in names
    }


def _names(readings: Sequence[Reading]) -> list[str]:
    """Return the classes of actors whose processes are ranks, one rank each."""
    told: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for reading in readings:
        for event in reading.all_events:
            found = _LINE.search(event.text, 0, _AT_MOST)
            if found and found[4] is not None and not event.by_launcher:
                told[_class(found[1]), found[2], found[3] or ""].add(found[4])
    names = {name for (name, _, _), ranks in told.items() if len(ranks) == 1}
    held = sorted(
        sorted(int(rank) for (other, _, _), ranks in told.items() if other == name for rank in ranks)
        for name in names
    )
    if all(len(ranks) >= _BLOCK for ranks in held) and all(a[-1] < b[0] for a, b in pairwise(held)):
        return []  # roles of one job, each with a block of its ranks
    return sorted(names - {_WRAPPER}) if _WRAPPER not in names else []


def _ranks(readings: Sequence[Reading], names: Sequence[str]) -> dict[str, set[int]]:
    """Return which ranks the actors of each class are, as their lines tell."""
    found: dict[str, set[int]] = {name: set() for name in names}
    for reading in readings:
        for event in reading.all_events:
            name = _actor(event)
            if name in found and event.rank is not None:
                found[name].add(event.rank)
    return found


def _shared(ranks: dict[str, set[int]], name: str) -> set[int]:
    """Return the ranks that actors of other classes are as well."""
    return {rank for other, theirs in ranks.items() if other != name for rank in theirs}


def _without(reading: Reading, others: set[str], names: Sequence[str], shared: set[int]) -> Reading:
    """Return a reading without what the actors of `others` said, nor calls in text that may be theirs."""
    if reading.log is None or not any(_actor(event) in names for event in reading.all_events):
        return reading
    log = reading.log
    return replace(
        reading,
        events=[event for event in reading.events if _stays(event, others, names)],
        threads=[thread for thread in reading.threads if thread.rank not in shared],
        log=replace(
            log,
            events=[event for event in log.events if _stays(event, others, names)],
            recordings=[recording for recording in log.recordings if recording.rank not in shared],
            local_to_global={},
        ),
    )


def _stays(event: Event, others: set[str], names: Sequence[str]) -> bool:
    """Return whether an event is of the job's own ranks, or speaks of no rank."""
    name = _actor(event)
    return name not in others and (name in names or event.rank is None)


def _actor(event: Event) -> str | None:
    found = _LINE.search(event.text, 0, _AT_MOST)
    return _class(found[1]) if found else None


def _class(name: str) -> str:
    return _NUMBERS.sub("#", name)
