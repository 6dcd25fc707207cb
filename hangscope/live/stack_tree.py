"""The stacks of all ranks as one tree of common beginnings, as MPI's STAT draws it.

Outermost frame first; a node is one frame and the ranks (global) that are in it, so that a thousand ranks fold to as many
branches as there are places where they stand. Time is linear in the frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hangscope.align.rankset import ranks_phrase
from hangscope.frames import Frame, Stack


@dataclass(slots=True)
class Node:
    """One frame (None at the root), the ranks that are in it, and the frames that they called from it."""

    frame: Frame | None = None
    ranks: list[int] = field(default_factory=list)
    calls: dict[Frame, Node] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain data; branches of fewer ranks first."""
        place = (
            None
            if self.frame is None
            else {"name": self.frame.name, "file": self.frame.file, "line": self.frame.line}
        )
        return {"frame": place, "ranks": self.ranks, "calls": [node.to_dict() for node in self.branches()]}

    def branches(self) -> list[Node]:
        """Return what was called from here, that of fewer ranks first: who stands alone is who is looked for."""
        return sorted(self.calls.values(), key=lambda node: (len(node.ranks), node.ranks))

    def to_text(self) -> str:
        """Return the tree as lines: frames that only one branch goes through stand below each other, branches are indented."""
        lines: list[str] = []
        self._write(lines, 0)
        return "\n".join(lines) + "\n" if lines else ""

    def _write(self, lines: list[str], depth: int) -> None:
        node: Node = self
        before: list[int] | None = None
        while True:
            if node.frame is not None:
                who = f"{ranks_phrase(node.ranks)}: " if node.ranks != before else ""
                lines.append("  " * depth + who + str(node.frame))
                before = node.ranks
            branches = node.branches()
            if len(branches) == 1 and branches[0].ranks == node.ranks:
                node = branches[0]
                continue
            for branch in branches:
                branch._write(lines, depth + (node.frame is not None))
            return


def merged(stacks: Mapping[int, Stack]) -> Node:
    """Return the tree of each rank's stack; stacks are innermost first, as everywhere."""
    root = Node(None, sorted(stacks))
    for rank in root.ranks:
        node = root
        for frame in reversed(stacks[rank]):
            node = node.calls.setdefault(frame, Node(frame))
            if not node.ranks or node.ranks[-1] != rank:
                node.ranks.append(rank)
    return root
