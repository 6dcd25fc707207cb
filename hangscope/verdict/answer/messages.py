"""Known messages in sentences: each entry's blanks filled with what its lines say, of all ranks together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import world_size
from hangscope.explain.text.known_messages import blanks_of, filled
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.messages import Known, Message, Notice, table
from hangscope.ingest.job_logs.text.vocabulary import of_people
from hangscope.ingest.torch_logs.store import StoreUnreachable
from hangscope.model.conclusion import Collect
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation
from hangscope.verdict.answer.telling import groups, often, without

_OTHERS = (regex(r"\b(?:any )?other\b"),)


def messages(case: Case) -> Iterator[tuple[Known, Observation]]:
    """Yield the known messages of a text: those that tell of a fault first, then what follows from one, then what healthy jobs print too."""
    by_entry: dict[str, list[Message]] = defaultdict(list)
    # A sentence that quotes a message is none.
    notices = (e for e in case.statements.all(Notice) if '"' not in e.text or not of_people(e.text))
    for event in (*case.statements.all(Message), *notices):
        by_entry[event.id].append(event)
    known = table()
    order = sorted(
        (known[id] for id in by_entry if id in known),
        key=lambda k: (k.benign, k.follows, not k.cause, not k.stops),
    )
    for entry in order:
        yield entry, _observation(case, entry, by_entry[entry.id])


def _places(case: Case) -> dict[str, str]:
    """Return the address of the store or rendezvous, where the text names one alone."""
    told = {e.endpoint for e in case.statements.all(Excerpt) if e.endpoint}
    lost = (e for e in case.statements.all(StoreUnreachable) if e.store_host and e.what != "peer")
    told = told or {f"{e.store_host}:{e.port}" for e in lost}
    return {"endpoint": told.pop()} if len(told) == 1 else {}


def _observation(case: Case, entry: Known, events: Sequence[Message]) -> Observation:
    """Return an entry in sentences; one that establishes a cause tells all that its verdict rests on."""
    blanks = {**_places(case), **blanks_of(events)}
    ranks = tuple(sorted({e.rank for e in events if e.rank is not None}))
    collect, means = filled(entry.collect, blanks), filled(entry.means, blanks)
    if ranks and ranks == tuple(
        range(world_size(case.statements) or 0)
    ):  # nobody else is left to be asked or to wait
        collect, means = without(collect, _OTHERS), without(means, _OTHERS)
    versions = f" Known: {entry.upstream}." if entry.upstream else ""
    if entry.cause == "known_defect":
        versions = f" Reported for {entry.versions}: {entry.upstream}."
    suspects = ranks if entry.culprit and len(ranks) == 1 else ()
    next_one = Collect(suspects, entry.collect_what, collect) if collect else None
    means = f"{means}{versions}"
    said, proofs = filled(entry.says, blanks), tuple(events)
    lines = {(e.file, e.line) for e in events}
    alike = next(
        (g for file, g in groups(case) if any((file, number) in lines for number in g.numbers)), None
    )
    said += often(alike) if alike is not None else ""
    return Observation(said, means, next_one, suspects, entry.stops, bool(entry.cause), proofs, entry.cause)
