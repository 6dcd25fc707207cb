"""What is known where no cause is: which collectives are pending, what transport and launcher reported, and what each rank printed last."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.incident import on_group
from hangscope.model.rankset import compress, counted, in_words, ranks_phrase
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.schema.stories import Endings, LastLine, Lines, Part, Story
from hangscope.report.subject import Subject
from hangscope.report.words import cut, first_of, grouped, listed
from hangscope.verdict.claims import are_in

LINES, WIDTH = 6, 240
_SAID, _SIDES = 12, 4
_NUMBER = regex(r"\d+")


def known(subject: Subject, _: Sequence[Behaviour]) -> Story | None:
    """Return what is known where no cause is."""
    lines = _pending(subject) or _apart(subject)
    for found in (quotes.of_kind(subject, "transport"), quotes.ends(subject)):
        alike = grouped((masked(quote.text), quote) for quote in found)
        for same in list(alike.values())[:LINES]:
            more = f", and {len(same) - 1} alike" if len(same) > 1 else ""
            lines.append(f"{quoted(same[0])}{more}")
        if left_out := sum(map(len, list(alike.values())[LINES:])):
            lines.append(f"{left_out} more lines of transport, ends and exits")
    parts: list[Part] = [Lines(tuple(lines))] if lines else []
    if endings := last_lines(subject):
        title = Lines(("Last output of each rank, ignoring numbers:",), "note")
        parts += [title, Endings(endings[:_SAID])]
        if (left_out := len(endings) - _SAID) > 0:
            text = f"{left_out} more ranks printed something else; their panels show it."
            parts.append(Lines((text,), "note"))
    return Story("known", "What is known", "", tuple(parts)) if parts else None


def _pending(subject: Subject) -> list[str]:
    """Return the collectives that ranks are in."""
    calls = [(rank, found[0]) for rank, found in sorted(subject.graph.open_calls.items()) if found]
    by_call = grouped(((subject.call_name(c.node, r), subject.on_group(c.gid)), r) for r, c in calls)
    past = subject.over or subject.all_ended
    lines = [are_in(in_words(compress(ranks)), len(ranks), *where, past) for where, ranks in by_call.items()]
    return first_of(lines, LINES, "{} more collectives are pending")


def _apart(subject: Subject) -> list[str]:
    """Return where ranks have different frontiers although none is seen waiting."""
    lines = []
    for view in subject.views.values():
        reached = grouped((m.enqueued, rank) for rank, m in view.members.items() if m.enqueued is not None)
        issued = [(ranks_phrase(ranks), counted(seq, "collective")) for seq, ranks in sorted(reached.items())]
        sides = [f"{who} issued {what}" for who, what in issued]
        if len(sides) > 1:
            lines.append(f"No rank is seen waiting {on_group(view.group.label)}; {listed(sides, _SIDES)}")
    return first_of(lines, LINES, "{} more groups are uneven as well")


def last_lines(subject: Subject) -> tuple[LastLine, ...]:
    """Return what ranks printed last, those of culprits first, equal words of several ranks once."""
    found: dict[tuple[str, str], tuple[list[int], str, str]] = {}
    for rank in sorted(subject.incident.ranks, key=lambda r: (r not in subject.culprits, r)):
        if said := quotes.last_line(subject, rank):
            text = cut(said.text, WIDTH)
            first: tuple[list[int], str, str] = ([], text, said.source)
            found.setdefault((subject.role(rank), masked(text)), first)[0].append(rank)
    return tuple(LastLine(compress(ranks), role, *said) for (role, _), (ranks, *said) in found.items())


def masked(text: str) -> str:
    """Return a line without its numbers."""
    return _NUMBER.sub("#", text)


def quoted(quote: quotes.Quote) -> str:
    """Return a line and where it is."""
    return f"{cut(quote.text, WIDTH)}  [{quote.source}]"
