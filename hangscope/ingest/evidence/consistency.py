"""Whether dumps agree with themselves and with each other. One that does not was changed, or copied, after it was written.

What a recorder cannot have written is looked at where a dump is read (`recorder/odd_values.py`); here, what it can have
written by itself and not together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from hangscope.errors import Note
from hangscope.ingest.evidence.claim import Claim
from hangscope.model.incident import State

_TIMES = 16  # of a rank's last calls; no two processes make two calls each in the same nanoseconds
_HINT = "copy the dumps again from where the job wrote them"


def copies(claims: Collection[Claim]) -> tuple[list[Claim], list[Note]]:
    """Return the dumps whose calls were made in the same nanoseconds as another rank's, and a note for each.

    One of them is the original, and nothing tells which: they are evidence of neither rank. Where most dumps are alike, or
    others share the time of their first call as well, the times are no measurements, and nothing is returned.
    """
    alike: dict[bytes, list[Claim]] = defaultdict(list)
    for claim in claims:
        created = claim.column("created")[-_TIMES:]
        if np.count_nonzero(created) > 1:
            alike[created.tobytes()].append(claim)
    same = [group for group in alike.values() if len(group) > 1]
    found = [claim for group in same for claim in group]
    ranks = {claim.rank for claim in found}
    others = [claim.first_created for claim in claims if claim.rank not in ranks]
    if len(others) < max(2, len(found)) or len(set(others)) < len(others):
        return [], []
    pairs = [pair for group in same for pair in zip(group, [*group[1:], group[0]], strict=True)]
    text = "has the calls of {}, made in the same nanoseconds: one of them is a copy, and neither is used"
    return found, [Note("contradiction", text.format(b.file), a.file, hint=_HINT) for a, b in pairs]


def shifted_counters(claims: Collection[Claim]) -> Iterator[Note]:
    """Yield a note for each dump whose `pg_status` does not fit its entries.

    The entries of a group hold its last call, so that `last_enqueued_collective` cannot be ahead of them. It may lag by
    the call that is being launched, and `last_completed_collective` by what the watchdog has not seen yet, but both by the
    same number means that the entries were renumbered.
    """
    for claim in claims:
        status, kinds = claim.recording.status, claim.recording.kinds
        if not status or not len(claim.recording):
            continue
        seq, done = claim.column("seq"), claim.column("state") == State.DONE
        counted = np.array([row[6] is None and row[1] != "gloo" for row in kinds], bool)[claim.column("kind")]
        for local_id, name, desc, rows in claim.by_group():
            enqueued, _, completed = status.get(local_id, (-1, -1, -1))
            if enqueued < 1 or not rows.any() or not counted[rows].all():
                continue
            last, last_done = int(seq[rows].max()), int(seq[rows & done].max(initial=0))
            ahead = last - enqueued
            if ahead < 0 or (ahead and last_done - completed == ahead and completed > 0):
                text = f"`pg_status` says that call {enqueued} on {desc or name or 'a group'} was the last one enqueued, and its entries end with {last}"
                yield Note("contradiction", text, claim.file, hint=_HINT)
                break
