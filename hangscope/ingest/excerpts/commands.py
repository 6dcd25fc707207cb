"""Commands that a text shows with their output, and where the same command prints something else on another host.

gpu-b06 $ ulimit -l
unlimited
gpu-b07 $ ulimit -l
64

$ pdsh -w gpu-b06,gpu-b07 ulimit -l
gpu-b06: unlimited
gpu-b07: 64
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from hangscope.ingest.lines.prefixes import quote
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_PROMPT = regex(
    r"^(?:\[?[\w.-]{1,40}@)?(?P<host>[A-Za-z][\w.-]{0,60})?[\]:~/\w -]{0,40}[$#] (?P<command>[a-zA-Z./]\S{0,60}(?: .{0,200})?)$"
)
_MASK = regex(r"(?<![\w.:])\d[\d.,]*(?!\w)")
# as pdsh and its kind print it
_OF_A_HOST = regex(r"^(?P<host>[A-Za-z][\w.-]{1,60}): {1,40}(?P<line>\S.{0,200})$")
#: a name and one value, which says how something is set or what it is, and not which one it is or how far it came
_SETTING = regex(
    r"(?i)^(?!.{0,30}(?:g?uid|\bid\b|lid|addr|mac|serial|time|temp|power|pid|count|bytes|packets|[rt]x|used|free))[\w .-]{2,30}[:=]\s{1,20}\S{1,40}(?: \(\d{1,6}\))?$"
)
_LINES, _MOST = 40, 8  # of one output, and differences and outputs that are kept
_WIDTH = 200  # characters of a line


@dataclass(frozen=True, slots=True)
class Unlike:
    """A line of the output of one command that is other on another host: (host, line) of both."""

    command: str
    one: tuple[str, str]
    other: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, up to the next empty line."""

    command: str
    lines: tuple[str, ...]


def commands(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[Unlike, ...], tuple[Output, ...]]:
    """Return the commands that prompts show, in their order, the lines in which the outputs of one on two hosts differ, and all outputs."""
    run: list[str] = []
    shown: list[tuple[str, list[str]]] = []
    outputs: dict[str, dict[str, list[str]]] = defaultdict(dict)
    output: list[str] | None = None
    for line in lines:
        prompt = _PROMPT.match(line)
        if prompt is not None:
            run.append(prompt["command"])
            shown.append((prompt["command"], []))
            output = outputs[prompt["command"]].setdefault(prompt["host"], []) if prompt["host"] else None
        elif not line.strip():
            output = None
            shown.append(("", []))
        elif output is not None and len(output) < _LINES:
            output.append(line.strip())
        elif run and (own := _OF_A_HOST.match(line)) is not None:
            known, said = outputs[run[-1]].setdefault(own["host"], []), own["line"].strip()
            if len(known) < _LINES and (" " not in said or _SETTING.match(said)):
                known.append(said)
        if prompt is None and shown and len(shown[-1][1]) < _LINES:
            shown[-1][1].append(quote(line.strip(), _WIDTH))
    found = [unlike for command, by_host in outputs.items() for unlike in _unlike(command, by_host)]
    kept = (Output(command, tuple(said)) for command, said in shown if command and said)
    return tuple(dict.fromkeys(run)), tuple(found[:_MOST]), tuple(islice(kept, _MOST))


def _unlike(command: str, by_host: dict[str, list[str]]) -> list[Unlike]:
    """Return the lines that two hosts print differently; of a line with other words than a number, numbers alone may vary."""
    if len(by_host) != 2:
        return []
    (one, first), (other, second) = by_host.items()
    return [
        Unlike(command, (one, a), (other, b))
        for a, b in zip(first, second, strict=False)
        if a != b and (" " not in a or _SETTING.match(a) or _MASK.sub("#", a) != _MASK.sub("#", b))
    ]
