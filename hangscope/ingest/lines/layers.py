"""What wrappers put in front of a line, one layer at a time: the kinds of prefixes are data, in knowledge/lines/prefixes.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from hangscope.ingest.lines.stamps import GLOG, ISO, TIME, Found, take
from hangscope.model.dataclass import dataclass
from hangscope.model.tables import entries

CODE = r"[\w./<>+-]{1,200}\.(?:cpp|cc|cxx|h|hpp|cu|cuh|py)"
CLOCK = r"(\d\d):(\d\d):(\d\d)"
_NO_NAME = r"(?!(?:rank|step|epoch|iter|batch|layer|cuda|stage|fold)[\d_\[-])"  # what programs count
_PATTERNS = {"<clock>": CLOCK, "<code>": CODE, "<no_name>": _NO_NAME}
_FIELDS = {"time": TIME, "iso": ISO, "glog": GLOG}
_MOST = 8  # layers of one line


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of prefix: which fields its groups are (`stamps.take`), and which of all groups are its own.

    `of_writer`: it distinguishes writers. `bare`: so plain that it counts only outside of everything that torch prints; `outside`: a
    bare one may follow it.
    """

    fields: tuple[str, ...]
    groups: slice
    of_writer: bool = False
    bare: bool = False
    outside: bool = False


@cache
def layers() -> tuple[re.Pattern[str], Mapping[str, Layer]]:
    """Return a pattern that finds any layer, and the layers by the name of their group in it."""
    alternatives, found, groups = list[str](), dict[str, Layer](), 1
    for entry in entries("lines/prefixes.toml", "prefix"):
        name, pattern = entry.pop("name"), entry.pop("pattern")
        for short, meant in _PATTERNS.items():
            pattern = pattern.replace(short, meant)
        alternatives.append(f"(?P<{name}>{pattern})")
        fields = tuple(field for short in entry.pop("fields", ()) for field in _FIELDS.get(short, (short,)))
        found[name] = Layer(fields, slice(groups, groups + len(fields)), **entry)
        groups += 1 + len(fields)
    return re.compile("|".join(alternatives)), found


def peel(text: str, found: Found, origin: list[str], before: Iterable[str] = ()) -> str:
    """Return what is left when all layers but those `before` are taken off; fill `found` and `origin`."""
    any_layer, known = layers()
    at = 0
    seen = set(before)
    for _ in range(_MOST):
        match = any_layer.match(text, at)
        name = match.lastgroup or "" if match is not None else ""
        if match is None or (name in seen and name != "debris"):
            break
        layer = known[name]
        if layer.bare and not all(known[other].outside for other in seen):
            break  # a bare "3: " or "node1: "
        if name == "unit" and not seen & {"iso", "syslog"}:
            break  # "python[123]: " is a name only behind a time
        seen.add(name)
        at = match.end()
        values = match.groups()[layer.groups]
        take(found, layer.fields, values)
        if layer.of_writer:
            whole = match.group(0).strip()
            origin.append(f"{values[0]}/" if name == "role" else values[0] if name == "rank" else whole)
    return text[at:] if at else text
