"""How many ranks a job may be said to have by inputs that tell something of a few.

One number in one line makes a world of any size, and every rank of it is then a row of every report. Real jobs whose files are
mostly lost have a few ten thousand ranks; above that, size has to be proved by files.
"""

from __future__ import annotations

from hangscope.errors import Note

UNPROVED = 2**15  # ranks that a job may have whatever is left of it
PER_RANK = 256  # ranks that each one with a file or a line of its own makes plausible


def largest_world(evident: int, wanted: int | None) -> int:
    """Return the most ranks that are analysed, where `evident` of them left something and the user said `wanted`."""
    return max(UNPROVED, PER_RANK * evident, wanted or 0)


def left_out(told: int, evident: int, limit: int) -> Note:
    """Return the note that of the `told` ranks only those below `limit` are analysed."""
    return Note(
        "world_size",
        f"the inputs tell of {told:,} ranks, and something of {evident:,} of them; ranks from {limit:,} on are left out",
        hint="--world-size takes them all, if the job had so many; else a file is damaged or forged",
    )
