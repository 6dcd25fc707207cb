"""Known messages in sentences: each entry's placeholders filled with what its lines say, of all ranks together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import world_size
from hangscope.explain.text.known_messages import blanks_of, filled
from hangscope.ingest.job_logs.messages import Known, Message, Notice, table
from hangscope.ingest.lines.vocabulary import of_people
from hangscope.model.conclusion import Collect
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation
from hangscope.verdict.answer.text import groups, often, without

_OTHERS = (regex(r"\b(?:any )?other\b"),)


def messages(case: Case) -> Iterator[tuple[Known, Observation]]:
    """Yield the known messages of a text: faults first, then what follows from one, then what healthy jobs print too."""
    by_entry: dict[str, list[Message]] = defaultdict(list)
    # A sentence that quotes a message is none.
    notices = (e for e in case.statements.all(Notice) if '"' not in e.text or not of_people(e.text))
    for event in (*case.statements.all(Message), *notices):
        by_entry[event.id].append(event)
    known = [table()[entry] for entry in by_entry if entry in table()]
    for entry in sorted(known, key=lambda k: (k.benign, k.follows, not k.cause, not k.stops)):
        yield entry, _observation(case, entry, by_entry[entry.id])


def _observation(case: Case, entry: Known, events: Sequence[Message]) -> Observation:
    """Return an entry in sentences."""
    blanks = blanks_of(events)
    ranks = tuple(sorted({e.rank for e in events if e.rank is not None}))
    wanted = filled(entry.collect, blanks)
    if ranks and ranks == tuple(range(world_size(case.statements) or 0)):
        wanted = without(wanted, _OTHERS)  # nobody else is left to be asked
    suspects = ranks if entry.culprit and len(ranks) == 1 else ()
    numbers = {e.line for e in events}
    alike = (group for group in groups(case) if not numbers.isdisjoint(group.numbers))
    shows = filled(entry.says, blanks) + "".join(often(group) for group in [*alike][:1])
    if entry.means:
        shows += f". {filled(entry.means, blanks)}".rstrip(".")
    if entry.upstream:
        shows += f". Known upstream{f' for {entry.versions}' if entry.versions else ''}: {entry.upstream}"
    collect = Collect(suspects, entry.collect_what, wanted) if wanted else None
    return Observation(shows, collect, suspects, entry.stops, bool(entry.cause), tuple(events), entry.cause)
