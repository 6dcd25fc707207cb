"""What the report of a run was made from: its folder, analysed again, gives the same verdict.

A job goes on after its report, or is ended because of it: logs grow, stacks of the end are added. `evidence.json`, which
`hangscope run` writes (live/watch/evidence.py), lists the files of the last report with their sizes then (bytes) and times (s since the epoch), and
how many ranks the job had, and what the run itself noted:

    {"schema": "hangscope.evidence/1", "world_size": 8, "files": {"logs/restart_0/rank_0.err": [5120, 1795445195.2]},
     "notes": [["not_watched", "rank 2 did not start here", ""]], "torch": "2.13", "began": 1795445101.4, "hosts": {"gpu07": [0, 1]}}

Of the run's own folders only these files are read, and no more of them than there was; what else lies there has been added
by somebody, and is read as ever.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from hangscope.errors import Note
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

NAME = "evidence.json"
SCHEMA = "hangscope.evidence/1"
_OF_THE_WATCHER = regex(
    r"(?:^|/)(?:launcher/[^/]{1,200}\.run|capture_\d{2,9}/(?:kernel|activity|start)_rank_\d{1,7}\.txt|stalls\.txt|trigger)$"
)
_CAPTURE = regex(r"(?:stall|at_end|capture_\d{2,9})/(?:stack_rank_|comm_lib_trace_rank_)")
RESOLVED = "stalls"  # the folder in a run's of what it captured before it went on: evidence only if it is given itself
LATER = "attempt-"  # the folders of later runs, such as those of a requeued job: each has its own report
ELSEWHERE = "ranks_elsewhere"  # code of the note on ranks that the nodes of a run have not seen
_MOST = 64 << 20  # bytes of the list
_MOST_NOTES, _LONGEST = 100, 1000  # notes, and characters of one
_WRITTEN = "launcher logs dumps stall at_end nodes agent report.html report.json trigger stalls.txt"
_OWN = frozenset([NAME, *_WRITTEN.split()])
_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """The files of a report, by their paths below its folder: (size in bytes, time of the last change); what the run noted.

    `torch` is the version that the command was going to use, empty where it is not known. `began` is when the run began (s since the
    epoch, 0 where it is not known), `hosts` has the host of each rank that was seen.
    """

    files: Mapping[str, tuple[int, float]]
    world_size: int | None = None
    notes: tuple[Note, ...] = ()
    torch: str = ""
    began: float = 0.0
    hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def captured(self) -> float:
        """Return when the last stack or dump was captured, 0 where none was."""
        return max((at for path, (_, at) in self.files.items() if _CAPTURE.match(path)), default=0.0)

    def covers(self, path: str) -> bool:
        """Return whether a path below the folder is the run's own, so that only what is listed counts."""
        top = path.partition("/")[0]
        return top in _OWN or top.startswith("capture_")


def passed_over(base: str, folders: Sequence[str]) -> set[str]:
    """Return the folders of a run that are no evidence of it: what its nodes say to each other, stalls that resolved themselves, later runs."""
    if "nodes" not in folders:
        return set()
    said: list[str] = []
    with suppress(OSError):
        said = os.listdir(os.path.join(base, "nodes"))
    if not any(name.endswith(".here") for name in said):
        return {RESOLVED}
    return {RESOLVED, "nodes", *(name for name in folders if name.startswith(LATER))}


def is_unfinished(name: str) -> bool:
    """Return whether a file is what an agent is still writing, or never finished: `.stack_rank_3.4711`."""
    return name.startswith(".") and "_rank_" in name


def is_of_the_watcher(file: str) -> bool:
    """Return whether a file has what the watcher of a run noted, and no output of the job."""
    return _OF_THE_WATCHER.search(file) is not None


def read_evidence(folder: str) -> RunEvidence | None:
    """Return what the list in a folder says, None where there is none or it is not to be trusted."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = json.loads(file.read(_MOST))
        if data["schema"] != SCHEMA:
            return None
        world = data["world_size"]
        return RunEvidence(
            {path: (_size(size), float(written)) for path, (size, written) in data["files"].items()},
            world if isinstance(world, int) and 0 < world <= _RANKS else None,
            tuple(_note(*words) for words in data.get("notes", [])[:_MOST_NOTES]),
            str(data.get("torch", ""))[:40],
            float(data.get("began", 0.0)),
            {int(r): str(host)[:_LONGEST] for host, ranks in data.get("hosts", {}).items() for r in ranks},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _note(code: Any, text: Any, hint: Any) -> Note:
    return Note(str(code)[:_LONGEST], str(text)[:_LONGEST], hint=str(hint)[:_LONGEST])


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a size is a number of bytes")
    return value
