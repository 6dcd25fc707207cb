"""The stacks of all ranks as one tree of common beginnings, as MPI's STAT draws it.

A branch is a run of frames, outermost first, and the ranks (global) that are in all of them, so that a thousand ranks fold to as many branches as there are different places. Branches are listed depth first; time is linear in the frames of the stacks that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame, Stack
from hangscope.model.rankset import compress
from hangscope.report.schema.document import BranchPart
from hangscope.report.words import rank_words


@dataclass(slots=True)
class _Node:
    ranks: list[int] = field(default_factory=list)
    calls: dict[Frame, _Node] = field(default_factory=dict)


def merged(stacks: Mapping[int, Stack]) -> tuple[BranchPart, ...]:
    """Return the branches of each rank's stack; stacks are innermost first, as everywhere.

    Of two branches that fork, that of fewer ranks comes first: a rank that is somewhere alone is the likely culprit.
    """
    alike: dict[Stack, list[int]] = {}
    for rank in sorted(stacks):
        alike.setdefault(stacks[rank], []).append(rank)
    root = _Node()
    for stack, ranks in alike.items():
        node = root
        node.ranks += ranks
        for frame in reversed(stack):
            node = node.calls.setdefault(frame, _Node())
            node.ranks += ranks
    return tuple(_branches(root))


def _branches(root: _Node) -> Iterator[BranchPart]:
    work = [(frame, node, 0) for frame, node in _forks(root)]
    while work:
        frame, node, depth = work.pop()
        frames = [frame]
        while len(node.calls) == 1:
            ((frame, inner),) = node.calls.items()
            if len(inner.ranks) != len(node.ranks):
                break
            frames.append(frame)
            node = inner
        yield BranchPart(depth, compress(node.ranks), len(node.ranks), tuple(frames))
        work += [(frame, fork, depth + 1) for frame, fork in _forks(node)]


def _forks(node: _Node) -> list[tuple[Frame, _Node]]:
    """Return what was called from a node, in the order of a stack of work: that of fewer ranks last."""
    return sorted(node.calls.items(), key=lambda it: (len(it[1].ranks), sorted(it[1].ranks)), reverse=True)


def tree_text(branches: Sequence[BranchPart]) -> str:
    """Return the tree as lines: frames of the same ranks are below each other, forks are indented."""
    lines = []
    for branch in branches:
        first, *rest = map(str, branch.frames)
        lines += ["  " * branch.depth + line for line in (f"{rank_words(branch.ranks)}: {first}", *rest)]
    return "".join(f"{line}\n" for line in lines)
