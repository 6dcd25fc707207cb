"""The wait-for graph as sentences, from the victims to the root cause."""

from __future__ import annotations

from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report.schema.pictures import WaitEdge, WaitNode
from hangscope.report.subject import Subject
from hangscope.report.words import cut, some_ranks

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
        for_whom = (
            [f"rank{'s' if len(awaited[node.id]) > 1 else ''} {some_ranks(awaited[node.id])}"]
            if awaited.get(node.id)
            else []
        )
        earlier = [f"{t.label} on {t.group}" if t.group else t.label for t in targets if t.kind == "call"]
        tail = " and ".join(
            filter(None, (", ".join(for_whom), "is queued after " + ", ".join(earlier) if earlier else ""))
        )
        word = "waits for " if for_whom else ""
        where = f" on {node.group}" if node.group else ""
        who = f"{_who_is(node)} in " if node.ranks else ""
        lines.append(
            f"{who}{node.label}{where}, which {word}{tail}."
            if tail
            else f"{who}{node.label}{where}; no member is known that has not issued it."
        )
    left_out = len(lines) - _LINES
    lines = lines[:_LINES] + ([f"{counted(left_out, 'more collective')}."] if left_out > 0 else [])
    verdict = subject.verdict
    if verdict is not None and verdict.culprit_ranks and verdict.explained:
        explained = f"{verdict.explained} of {counted(len(verdict.waiting_ranks), 'blocked rank')}"
        lines.append(f"Root cause: {ranks_phrase(verdict.culprit_ranks)}, which accounts for {explained}.")
    return tuple(lines)


def _who_is(node: WaitNode) -> str:
    """Return `Rank 3 is` or `Ranks 0-2 are`."""
    return f"Rank {node.ranks} is" if node.count == 1 else f"Ranks {cut(node.ranks, 80)} are"
