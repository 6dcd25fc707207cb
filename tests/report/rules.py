"""What both kinds of rules for reports share."""

from __future__ import annotations

import re

#: Causes that say that programs differ: their rows must part where both sides' calls are known.
DIFFERING = {
    "rank_conditional_collective", "shape_mismatch", "dtype_mismatch", "collective_mismatch",
    "gradient_sync_mismatch", "collective_order_mismatch", "uneven_loader",
}  # fmt: skip


def ranks_of(text: str) -> set[int]:
    """Return the ranks of a text such as `0-3, 8`."""
    found: set[int] = set()
    for span in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        found.update(range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1)))
    return found
