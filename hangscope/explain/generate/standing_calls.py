"""A call that all its members joined and that none finishes: nobody is absent, and the call itself stands still."""

from __future__ import annotations

from hangscope.align.nodes import Called
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Stalled


def standing_call(aligned: Aligned) -> Stalled | None:
    """Return the finding of the call that most ranks wait for and that waits for nobody; of equals the earliest."""
    roots = [r for r in aligned.graph.roots if r.kind == "call" and r.explains]
    if not roots:
        return None
    root = min(roots, key=lambda r: (-len(r.explains), aligned.when(r.nodes[0])))
    (node, *_) = (n for n in root.nodes if isinstance(n, Called))
    return aligned.reached_by(Stalled((), aligned.stuck_in(node)), root.explains | set(root.ranks))
