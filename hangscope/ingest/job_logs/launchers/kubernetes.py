"""How a pod's container ended, as `kubectl describe pod` prints it, with the rank that its environment tells.

    Name:             run-7c9-worker-2
    Containers:
      pytorch:
        State:          Terminated
          Reason:       OOMKilled
          Exit Code:    137
        Limits:
          nvidia.com/gpu:  1
        Environment:
          WORLD_SIZE:   4
          RANK:         3

(kubernetes/kubectl, pkg/describe/describe.go.) RANK is a process's own where the container has one device at most; with more it
is mostly the node's number. What it was before a restart (`Last State`) is not its end. People quote the part that tells of the end:
then the command above it names the pod, or nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import short_number
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES = 400  # of one pod
_POD = regex(
    r"^Name: {2,}([\w.-]{1,253})$|\bkubectl (?:\S{1,60} ){0,6}?describe (?:\S{1,60} ){0,6}?(?:pods?[ /])([\w.-]{1,253})"
)
_EXCERPT = regex(r"^ {0,8}State: {2,}Terminated$")
_CONTAINER = regex(r"^  ([\w.-]{1,253}):$")
_FIELD = regex(r"^ {0,8}([\w./ -]{1,60}):(?: {1,40}(\S.{0,200}))?$")
_OVER = regex(r"^(?:Events|Conditions|Volumes):")


@dataclass(slots=True)
class _Container:
    where: Line | None = None  # that tells of its end
    told: dict[str, str] = field(default_factory=dict)

    def ended(self, pod: str | None) -> list[Event]:
        """Return its end, where it did not go well."""
        told = self.told
        code, rank = short_number(told.get("Exit Code", "")), short_number(told.get("RANK", ""))
        if self.where is None or not code or not told.get("State", "").startswith("Terminated"):
            return []
        alone = (short_number(told.get("nvidia.com/gpu", "1")) or 1) == 1
        where = replace(self.where, rank=rank if alone else None, host=pod)
        if told.get("Reason") == "OOMKilled":
            return [where.event(OomHost)]
        return [Exit.of(where, code=code, via="kubernetes", host=pod)]


class PodParser(LineParser):
    """Gathers what is told of the containers of a pod; each that failed is an end."""

    literals = (b"Name:  ", b" describe ", b"State:  ")

    def __init__(self) -> None:
        self._pod: str | None = None
        self._container: _Container | None = None
        self._state = ""
        self._left = 0

    @property
    def wants_more(self) -> bool:
        """Whether a pod is being read."""
        return self._pod is not None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line of a pod's description; return the end of the container that it closes."""
        if pod := _POD.search(line.text):
            done = self._closed()
            self._pod, self._left = pod[1] or pod[2], _LINES
            return done
        if _EXCERPT.match(line.text) and self._container is None:
            self._pod, self._left, self._container = self._pod or "", _LINES, _Container()
        elif self._pod is None:
            return ()
        self._left -= 1
        if self._left <= 0 or _OVER.match(line.text):
            return self.close()
        if _CONTAINER.match(line.text):
            done = self._closed()
            self._container = _Container()
            return done
        if self._container is not None and (found := _FIELD.match(line.text)):
            name, value = found[1].strip(), (found[2] or "").strip()
            self._state = name if name.endswith("State") else self._state
            if self._state != "Last State" or name not in ("Reason", "Exit Code"):
                self._container.told.setdefault(name, value)
                if name in ("Reason", "Exit Code"):
                    self._container.where = self._container.where or line
        return ()

    def _closed(self) -> list[Event]:
        """Return the end of the container that was read last."""
        container, self._container, self._state = self._container, None, ""
        return container.ended(self._pod or None) if container is not None else []

    def close(self) -> Iterable[Event]:
        """Return the end of the container that the text ends in."""
        done, self._pod = self._closed(), None
        return done
