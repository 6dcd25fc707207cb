"""How a pod's container ended, as `kubectl describe pod` prints it, with the rank that its environment states.

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

(kubernetes/kubectl, pkg/describe/describe.go.) RANK is the process's own where the container has at most one device; with more it is
usually the node's number. `Last State` is how the container ended before a restart. People often quote only the part about the end:
then the command above it names the pod, or nothing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import short_number
from hangscope.model.events import Event
from hangscope.model.regex import regex

_ENDED = ("Reason", "Exit Code")  # the fields that state how


def _pod(found: Found) -> Iterator[Event]:
    """Yield the ends of the containers that failed."""
    pod, state = found.last("pod"), ""
    containers: list[dict[str, tuple[Line, str]]] = [{}]
    for line, match in found.parts:
        caught = match.groupdict()
        if "container" in caught:
            containers.append({})
        elif "name" in caught:
            state = caught["name"] if caught["name"].endswith("State") else state
            if state != "Last State" or caught["name"] not in _ENDED:
                containers[-1].setdefault(caught["name"], (line, caught["value"] or ""))
    for fields in containers:
        number = {name: short_number(fields[name][1]) for name in fields}
        if number.get("Exit Code") and fields.get("State", (None, ""))[1].startswith("Terminated"):
            where = min((fields[name][0] for name in _ENDED if name in fields), key=lambda line: line.number)
            alone = (number.get("nvidia.com/gpu", 1) or 1) == 1
            where = replace(where, rank=number.get("RANK") if alone else None, host=pod)
            if fields.get("Reason", (None, ""))[1] == "OOMKilled":
                yield where.event(OomHost)
            else:
                yield Exit.of(where, code=number["Exit Code"], via="kubernetes", host=pod)


POD = block(
    says(r"^Name: {2,}(?P<pod>[\w.-]{1,253})$", literal="Name:  "),
    says(
        r"\bkubectl (?:\S{1,60} ){0,6}?describe (?:\S{1,60} ){0,6}?(?:pods?[ /])(?P<pod>[\w.-]{1,253})",
        literal=" describe ",
    ),
    says(r"^ {0,8}(?P<name>State): {2,}(?P<value>Terminated)$", literal="State:  "),
    regex(r"^  (?P<container>[\w.-]{1,253}):$"),
    regex(r"^ {0,8}(?!Name:)(?P<name>\w[\w./ -]{0,60}?) *:(?: {1,40}(?P<value>\S.{0,200}))?$"),
    ends=regex(r"^(?:Events|Conditions|Volumes):"),
    lines=400,
    made=_pod,
)
