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
    frame: Frame | None
    ranks: list[int] = field(default_factory=list)
    calls: dict[Frame, _Node] = field(default_factory=dict)


def merged(stacks: Mapping[int, Stack]) -> tuple[BranchPart, ...]:
    """Return the branches of each rank's stack; stacks are innermost first, as everywhere.

    Of two branches that fork, that of fewer ranks comes first: a rank that is somewhere alone is the likely culprit.
    """
    alike: dict[Stack, list[int]] = {}
    for rank in sorted(stacks):
        alike.setdefault(stacks[rank], []).append(rank)
    root = _Node(None)
    for stack, ranks in alike.items():
        node = root
        node.ranks += ranks
        for frame in reversed(stack):
            node = node.calls.setdefault(frame, _Node(frame))
            node.ranks += ranks
    return tuple(_branches(root))


def _branches(root: _Node) -> Iterator[BranchPart]:
    work = [(node, 0) for node in _forks(root)]
    while work:
        node, depth = work.pop()
        frames = []
        while True:
            assert node.frame is not None
            frames.append(node.frame)
            inner = list(node.calls.values())
            if len(inner) != 1 or len(inner[0].ranks) != len(node.ranks):
                break
            node = inner[0]
        yield BranchPart(depth, compress(node.ranks), len(node.ranks), tuple(frames))
        work += [(fork, depth + 1) for fork in _forks(node)]


def _forks(node: _Node) -> list[_Node]:
    """Return what was called from a node, in the order of a stack of work: that of fewer ranks last."""
    return sorted(node.calls.values(), key=lambda fork: (len(fork.ranks), sorted(fork.ranks)), reverse=True)


def tree_text(branches: Sequence[BranchPart]) -> str:
    """Return the tree as lines: frames of the same ranks are below each other, forks are indented."""
    lines = []
    for branch in branches:
        indent = "  " * branch.depth
        first, *rest = branch.frames
        lines.append(f"{indent}{rank_words(branch.ranks)}: {first}")
        lines += [f"{indent}{frame}" for frame in rest]
    return "\n".join(lines) + "\n" if lines else ""
