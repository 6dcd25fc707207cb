"""What an earlier attempt said in files that tell of no restart themselves.

Logs of requeued jobs go on in the same files. Some show the restart (an agent that ends its workers twice, a rank that
speaks on after its watchdog ended its process), others do not: a rank that had nothing overdue just stops and begins.
Other runs left files of their own, whose names tell of which day they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.events import Event
from hangscope.ingest.workers.reading import Reading


def without_earlier(events: Sequence[Event], over: float) -> list[Event]:
    """Return the events without those that are older than `over`, when the attempt before ended (as stamps are printed).

    A file that shows no restart itself is cut behind its last stamp up to then. Where a rank's own file has later stamps
    only, what stands before the first of them without a stamp is of the earlier attempt too: a process that ended by
    what it says there would not have spoken on. The clocks of hosts are taken to agree within the gap between attempts.
    """
    files: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        files[event.file].append(event)
    return [event for told in files.values() for event in _later(sorted(told, key=lambda e: e.line), over)]


def drop_copies(launchers: Sequence[Reading], others: Sequence[Reading], own: Sequence[Reading]) -> None:
    """Remove from launchers' logs what they copied from ranks of `others`, earlier attempts, but not from ranks of `own`."""
    copied = {(e.kind, e.text) for r in others for e in r.all_events}
    copied -= {(e.kind, e.text) for r in own for e in r.all_events}
    for reading in launchers:
        for events in (reading.events, *([reading.log.events] if reading.log is not None else [])):
            events[:] = [e for e in events if (e.kind, e.text) not in copied]


def _later(events: list[Event], over: float) -> list[Event]:
    if any(event.attempt is not None for event in events):
        return events
    stamped = [index for index, event in enumerate(events) if event.stamp is not None]
    earlier = [index for index in stamped if (events[index].stamp or 0.0) <= over]
    if earlier:
        return events[earlier[-1] + 1 :]
    one_rank = len({event.rank for event in events}) == 1 and not any(e.by_launcher for e in events)
    return events[stamped[0] :] if stamped and one_rank else events
