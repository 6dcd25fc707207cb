"""The wait-for graph as sentences, from the victims to the root cause."""

from __future__ import annotations

from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report.schema.pictures import WaitEdge, WaitNode
from hangscope.report.subject import Subject
from hangscope.report.words import cut, rank_words, some_ranks
from hangscope.verdict.claims import accounts_for, are_in

_LINES = 16


def sentences(
    subject: Subject,
    nodes: tuple[WaitNode, ...],
    edges: tuple[WaitEdge, ...],
    awaited: dict[str, list[int]],
) -> tuple[str, ...]:
    """Return the picture as sentences, from the victims to the root."""
    by_name = {node.id: node for node in nodes}
    lines = []
    for node in sorted((n for n in nodes if n.kind == "call"), key=lambda n: -n.count):
        targets = [by_name[e.target] for e in edges if e.source == node.id]
        ranks = awaited.get(node.id, ())
        missing = [f"waits for {rank_words(some_ranks(ranks))}"] if ranks else []
        earlier = [f"{t.label} on {t.group}" if t.group else t.label for t in targets if t.kind == "call"]
        tail = " and ".join([*missing, *(["is queued after " + ", ".join(earlier)] if earlier else [])])
        where = f" on {node.group}" if node.group else ""
        call = f"{node.label}{where}"
        if node.ranks:
            call = are_in(cut(node.ranks, 80), node.count, node.label, where)
        lines.append(
            f"{call}, which {tail}." if tail else f"{call}; no member is known that has not issued it."
        )
    left_out = len(lines) - _LINES
    lines = lines[:_LINES] + ([f"{counted(left_out, 'more collective')}."] if left_out > 0 else [])
    verdict = subject.verdict
    if verdict is not None and verdict.culprit_ranks and verdict.explained:
        explained = accounts_for(verdict.explained, len(verdict.waiting_ranks))
        lines.append(f"Root cause: {ranks_phrase(verdict.culprit_ranks)}, which accounts for {explained}.")
    return tuple(lines)
