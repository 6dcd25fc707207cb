"""Dumps of torchcomms' FlightRecorderHook, put into the form of torch's own recorder.

    {"version": "2.10", "pg_config": {"world": {"name": "world", "desc": "ncclx", "ranks": "0,1,2,3"}}, "pg_status": {}, ...}

(meta-pytorch/torchcomms, comms/torchcomms/hooks/FlightRecorder.cpp, 2026; JSON of `dump_json` and of the debug server, a pickle
where a communicator is aborted.) What it writes under the same keys means something else:

- `ranks` are the places 0 to n - 1 in the communicator, without brackets, so only a communicator of all ranks tells members;
- `state` is always "scheduled", and completion is `retired`;
- `collective_seq_id` counts the calls of all communicators together, from 0, sends and receives included, and those do not say
  between whom they go.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.values import as_group, as_int, as_text
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
    recorded, and calls of several groups of one name cannot be told apart.
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
        kept.append(
            {**entry, "collective_seq_id": seq, "state": state, "process_group": [world, "default_pg"]}
        )
    members = {"name": "", "desc": NAMELESS, "ranks": f"[{','.join(map(str, range(most)))}]"}
    notes = []
    left = Counter(
        {"sends and receives": len(own) - len(calls), "calls of other communicators": len(entries) - len(own)}
    )
    if +left:
        what = " and ".join(f"{count} {name}" for name, count in sorted((+left).items()))
        why = "torchcomms records neither the members of a communicator nor the peer of a send"
        notes.append(Note("torchcomms", f"{what} were left out: {why}"))
    return {**top, "pg_config": {"": members}, "pg_status": {}, "entries": kept}, notes
