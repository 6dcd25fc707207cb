"""Flight Recorder dumps: the pickle or JSON of one rank, in every shape since torch 2.2, reduced to a Recording.

Format facts: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (`dump`, version 2.10 in torch 2.13) and
torch/distributed/flight_recorder/components/ for the older shapes. Seen and handled here:

- no version: the top level is a bare list of entries; 1.x: `seq_id`; 2.0: `collective_seq_id` and `p2p_seq_id`;
  2.1: dtypes; 2.3: `pg_status`; 2.7: the members of coalesced calls are entries too;
- JSON (`_dump_fr_trace_json`): numbers as strings in `pg_status`, no `entries` key when there are none, no frames;
- gloo: `state` is always "scheduled" and completion is `retired`, which also becomes true on errors and timeouts, so the
  completion of a rank's *last* call is UNKNOWN; `pg_config` is one nameless group;
- members of a coalesced call keep "scheduled" for ever: the end entry with the same sequence number carries their state.

Dumps of torchcomms' FlightRecorderHook are put into the form of torch's own recorder:

    {"version": "2.10", "pg_config": {"world": {"name": "world", "desc": "ncclx", "ranks": "0,1,2,3"}}, "pg_status": {}, ...}

(meta-pytorch/torchcomms, comms/torchcomms/hooks/FlightRecorder.cpp, 2026; JSON of `dump_json` and of the debug server, a pickle
where a communicator is aborted.) What it writes under the same keys means something else:

- `ranks` are the places 0 to n - 1 in the communicator, without brackets, so only a communicator of all ranks states members;
- `state` is always "scheduled", and completion is `retired`;
- `collective_seq_id` counts the calls of all communicators together, from 0, sends and receives included, and those do not say
  between which ranks they go.
"""

from __future__ import annotations

from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.entries import Entries
from hangscope.ingest.recorder.members import Members, known_members, parse_members
from hangscope.ingest.recorder.plausibility import Implausible, check_top
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.values import as_desc, as_group, as_int, as_text
from hangscope.model.regex import regex

NAMELESS = "torchcomms"  # the description of the member list of the largest communicator
_PLACES = regex(r"\d{1,7}(?:,\d{1,7})*")
_ONE_SIDED = frozenset({"send", "recv"})


def is_torchcomms(top: dict[str, Any]) -> bool:
    """Return whether a dump is torchcomms': its member lists have no brackets."""
    config = top.get("pg_config")
    rows = config.values() if isinstance(config, dict) else ()
    lists = [row.get("ranks") for row in rows if isinstance(row, dict)]
    return bool(lists) and all(isinstance(ranks, str) and _PLACES.fullmatch(ranks) for ranks in lists)


def as_torchs(top: dict[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    """Return the dump as torch would have written it, and notes on what was left out of it.

    The calls of the largest communicator stay, numbered as calls of one group; which ranks the smaller ones join is not
    recorded, and calls of several groups of one name cannot be distinguished.
    """
    sizes = {str(name): str(row["ranks"]).count(",") + 1 for name, row in top["pg_config"].items()}
    most = max(sizes.values())
    world = next(name for name in sizes if sizes[name] == most)
    entries = [e for e in top.get("entries") or [] if isinstance(e, dict)]
    own = [e for e in entries if as_group(e.get("process_group"))[0] == world]
    calls = [e for e in own if as_text(e.get("profiling_name")).rpartition(":")[2] not in _ONE_SIDED]
    # A ring that still holds the first call numbers each group by itself; else the count over all groups must do.
    whole = bool(entries) and entries[0].get("record_id") == 0
    kept = []
    for number, entry in enumerate(calls, 1):
        seq = number if whole else as_int(entry.get("collective_seq_id")) + 1
        state = "completed" if entry.get("retired") else "scheduled"
        own_group = [world, "default_pg"]
        kept.append({**entry, "collective_seq_id": seq, "state": state, "process_group": own_group})
    members = {"name": "", "desc": NAMELESS, "ranks": f"[{','.join(map(str, range(most)))}]"}
    notes = []
    others, one_sided = len(entries) - len(own), len(own) - len(calls)
    left = {"calls of other communicators": others, "sends and receives": one_sided}
    if others or one_sided:
        what = " and ".join(f"{count} {name}" for name, count in left.items() if count)
        why = "torchcomms records neither the members of a communicator nor the peer of a send"
        notes.append(Note("torchcomms", f"{what} were left out: {why}"))
    return {**top, "pg_config": {"": members}, "pg_status": {}, "entries": kept}, notes


_VERSION = 40  # characters of a version


def looks_like_dump(value: Any) -> bool:
    """Return whether a loaded value has the shape of a dump of any version."""
    if not isinstance(value, dict):
        return isinstance(value, list) and bool(value) and all(is_entry(e) for e in value[:4])
    entries = value.get("entries")
    if "pg_config" in value or "pg_status" in value or ("entries" in value and "version" in value):
        return True
    return isinstance(entries, list) and any(is_entry(e) for e in entries[:4])


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
    entries = [] if top.get("entries") is None else top["entries"]
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
