"""Flight Recorder dumps: the pickle or JSON of one rank, in every shape since torch 2.2, reduced to a Recording.

Format facts: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (`dump`, version 2.10 in torch 2.13) and
torch/distributed/flight_recorder/components/ for the older shapes. Seen and handled here:

- no version: the top level is a bare list of entries; 1.x: `seq_id`; 2.0: `collective_seq_id` and `p2p_seq_id`;
  2.1: dtypes; 2.3: `pg_status`; 2.7: the members of coalesced calls are entries too;
- JSON (`_dump_fr_trace_json`): numbers as strings in `pg_status`, no `entries` key when there are none, no frames;
- gloo: `state` is always "scheduled" and completion is `retired`, which also becomes true on errors and timeouts, so the
  completion of a rank's *last* call is UNKNOWN; `pg_config` is one nameless group;
- members of a coalesced call keep "scheduled" for ever: the end entry with the same sequence number carries their state.
"""

from __future__ import annotations

from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.calls.entries import Entries
from hangscope.ingest.recorder.members import Members, known_members, parse_members
from hangscope.ingest.recorder.plausibility import Implausible, check_top
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.torchcomms import as_torchs, is_torchcomms
from hangscope.ingest.recorder.values import as_desc, as_int, as_text

_VERSION = 40  # characters of a version


def looks_like_dump(value: Any) -> bool:
    """Return whether a loaded value has the shape of a dump of any version."""
    if isinstance(value, dict):
        return (
            "pg_config" in value
            or "pg_status" in value
            or ("entries" in value and "version" in value)
            or (isinstance(value.get("entries"), list) and any(is_entry(e) for e in value["entries"][:4]))
        )
    return isinstance(value, list) and bool(value) and all(is_entry(e) for e in value[:4])


def is_entry(value: Any) -> bool:
    """Return whether a value has the shape of an entry, which is one call."""
    return isinstance(value, dict) and "profiling_name" in value and ("state" in value or "seq_id" in value)


def reduce_dump(value: Any, *, completions: bool = False) -> Recording:
    """Return a loaded dump as a Recording, if wanted with the times at which collectives completed.

    What does not fit becomes a note of it, never an exception.
    """
    top = {"entries": value} if isinstance(value, list) else value
    recording = Recording(source="flight_recorder", version=as_text(top.get("version", "")))
    recording.library = as_text(top.get("comm_lib_version", top.get("nccl_version", "")))[:_VERSION]
    if is_torchcomms(top):
        top, notes = as_torchs(top)
        recording.notes += notes
    recording.config.update(_config(top.get("pg_config")))
    recording.status = _status(top.get("pg_status"))
    rank = top.get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        recording.rank = rank
    implausible = Implausible()
    check_top(top, implausible)
    recording.notes += implausible.notes()
    entries = top.get("entries")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        recording.notes.append(Note("malformed", f"`entries` is a {type(entries).__name__}, not a list"))
        entries = []
    Entries(recording).reduce(entries, completions=completions)
    return recording


def _config(raw: Any) -> dict[str, tuple[str, Members | None]]:
    config: dict[str, tuple[str, Members | None]] = {}
    for key, value in _rows(raw):
        ranks = value.get("ranks")
        # A string "[0, 1]" in pickles; a list in some JSON writers. "[]" is how gloo writes "not recorded".
        listed = [n for n in ranks if isinstance(n, int)] if isinstance(ranks, list) else ()
        members = parse_members(ranks) if isinstance(ranks, str) else known_members(listed)
        config[as_text(value.get("name", key))] = (as_desc(value.get("desc")), members)
    return config


def _status(raw: Any) -> dict[str, tuple[int, int, int]]:
    return {
        as_text(key): (
            as_int(value.get("last_enqueued_collective"), -1),
            as_int(value.get("last_started_collective"), -1),
            as_int(value.get("last_completed_collective"), -1),
        )
        for key, value in _rows(raw)
    }


def _rows(raw: Any) -> list[tuple[Any, dict[Any, Any]]]:
    """Return the groups of `pg_config` or `pg_status` that are objects, with their keys."""
    items = raw.items() if isinstance(raw, dict) else ()
    return [(key, value) for key, value in items if isinstance(value, dict)]
