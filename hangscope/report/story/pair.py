"""A send and its matching recv, one of which is missing or different."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.p2p import Half, PairInstance
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.schema.stories import HalfPart, PairStory
from hangscope.report.subject import Subject, site_of, sizes_of, state_word


def pair(subject: Subject, classes: Sequence[Behaviour]) -> PairStory | None:
    """Return the send and the recv, and what the rank did instead that did not issue its own; None if no pair is known."""
    node = subject.node
    if not isinstance(node, PairInstance) or node not in subject.graph.pairs:
        return None
    node = next((n for n in (node, *subject.graph.pairs) if _missing(subject, n) in subject.culprits), node)
    found, source, destination = subject.graph.pairs[node], node.source, node.destination
    missing = _missing(subject, node)
    behaviour = next((b for b in classes if missing in b.ranks), None)
    instead = []
    if behaviour is not None:
        program = behaviour.program
        for row in range(max(0, len(program) - 3), len(program)):
            kind = subject.incident.kinds[int(program.kind[row])]
            word = state_word(int(program.state[row]))
            instead.append(
                f"{kind.op} {sizes_of(kind)} at {site_of(kind) or 'a line that is not known'}, {word}"
            )
    return PairStory(
        f"number {node.index + 1}, from rank {source} to rank {destination}",
        _half(subject, source, "send", found.send),
        _half(subject, destination, "recv", found.recv),
        tuple(instead),
    )


def _missing(subject: Subject, node: PairInstance) -> int | None:
    """Return the rank that did not issue its send or recv of a pair, None if both are there."""
    found = subject.graph.pairs[node]
    return node.destination if found.recv is None else node.source if found.send is None else None


def _half(subject: Subject, rank: int, verb: str, half: Half | None) -> HalfPart:
    if half is None:
        return HalfPart(rank, verb, False, "not issued", "")
    kind = subject.incident.kinds[half.kind]
    text = " ".join(
        part for part in (f"seq {half.seq}", sizes_of(kind), f"({half.state.name.lower()})") if part
    )
    return HalfPart(rank, verb, True, text, site_of(kind))
