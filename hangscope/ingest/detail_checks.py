"""What TORCH_DISTRIBUTED_DEBUG=DETAIL records beside the program's calls on gloo: the checks that come before each of them.

Before a call the wrapper exchanges fingerprints on a helper group of its own (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp).
Both groups read ('', '') in a dump, told apart by the local id alone, of which the helper's is the larger one.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

from hangscope.ingest.recorder.recording import COLUMNS, Recording
from hangscope.model.incident import State


def detail_helpers(recording: Recording) -> set[str]:
    """Return the local ids of the helper groups."""
    nameless = _nameless(recording)
    return set(nameless[1:]) if len(nameless) > 1 else set()


def with_pending_checks(recording: Recording) -> Recording:
    """Return the recording with a call behind those of the one group that has a helper, where the last check is behind them.

    A rank in such a check has come to its next call and waits for the others there; one that is through with it found that the
    calls do not fit. Nothing but its line is known of the call itself. Columns of the recording stay as they are, for other
    ranks may share them.
    """
    nameless = _nameless(recording)
    columns = recording.columns
    if len(nameless) != 2 or not len(recording):
        return recording
    own, helper = (
        {place for place, (local_id, _, _) in enumerate(recording.groups) if local_id == wanted}
        for wanted in nameless
    )
    last = {of: row for row, of in enumerate(columns["group"])}
    check = max((last[place] for place in helper if place in last), default=-1)
    calls = [row for row, place in enumerate(columns["group"]) if place in own]
    if check < 0 or not calls or calls[-1] > check or recording.own_sizes is not None:
        return recording
    longer = replace(
        recording,
        kinds=list(recording.kinds),
        columns={name: array(column.typecode, column) for name, column in columns.items() if name in COLUMNS},
        _kind_index={},
    )
    stack = recording.kinds[columns["kind"][check]][8]
    longer.add(
        group=min(own), seq=max(columns["seq"][row] for row in calls) + 1, kind=longer.kind(("", "gloo", (), (), (), (), None, None, stack, None)),
        state=State.PENDING, created=columns["created"][check], order=columns["order"][check],
    )  # fmt: skip
    return longer


def _nameless(recording: Recording) -> list[str]:
    ids = {local_id for local_id, name, _ in recording.groups if not name}
    return sorted(ids, key=lambda local_id: (len(local_id), local_id))
