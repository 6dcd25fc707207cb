r"""One line of a log without its prefixes: who printed it, when, and the bare message.

A line of a multi-node job can carry five layers, outermost first, for example

    2026-11-20T15:13:24.870Z 11: [default3]:[rank11]:[E1120 15:13:24.220687360 ProcessGroupNCCL.cpp:632] [PG ID 0 ...

a log shipper's stamp, srun's task number, torchrun's *local* rank, torch's global rank and the header of
c10's logger (`c10/util/Logging.cpp`, `torch/_logging/_internal.py`,
`torch/distributed/elastic/multiprocessing/tail_log.py`).

A line of a file may hold several lines of a job: glued because line feeds were lost, or quoted with `\n` in a string.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, TypeVar

from hangscope.ingest.lines.layers import peel
from hangscope.model.codec import MAX_NUMBER
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

TEXT_LIMIT = 500
REPLACED = "\ufffd"  # in place of invalid bytes
AnyEvent = TypeVar("AnyEvent", bound=Event)
_WHO = ("rank", "host", "pid", "time", "local_rank", "task", "stamp")

_ANSI = regex(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = regex("[\x07\x08\x0a-\x0f\x1b\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
#: What neither programs nor terminals write into a text; zeros around a line fill a hole of its file.
_NO_TEXT = regex("[\x00-\x06\x10-\x1a\x1c-\x1f]+")

_RANK_AGAIN = regex(r"\[rank(\d{1,7})\]: ?")
_RANK_INSIDE = regex(r"\[rank\d{1,7}\]:")


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the parsers see it.

    `text` is the message without its prefixes, `raw` the whole line; both without control characters. `rank`
    is global (`[rank3]:`), `local_rank` is torchrun's (`[default3]:`), `task` is srun's or mpirun's number,
    which is the rank only where one task is one rank. `origin` distinguishes interleaved writers.
    `time` is seconds since the epoch where the year is printed (UTC where no zone is), `stamp` seconds since
    1 January of any leap year where only month and day are; c10's own headers count whole seconds only,
    because their fraction comes from another clock. `source` is the `file:line` of the logging call.
    """

    file: str
    number: int
    text: str
    raw: str
    origin: str = ""
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pid: int | None = None
    time: float | None = None
    stamp: float | None = None
    level: str | None = None
    source: str | None = None

    def event(self, kind: type[AnyEvent], group_rank: int | None = None, **fields: Any) -> AnyEvent:
        """Return an event that quotes this line. What `fields` state about host, process or task overrides the line's prefix."""
        stated = {name: value for name, value in fields.items() if value is not None}
        who = {name: stated.pop(name, getattr(self, name)) for name in _WHO}
        for name, value in who.items():
            if isinstance(value, int) and not 0 <= value < MAX_NUMBER:
                who[name] = None  # no process of a job has such a number
        return kind(self.file, self.number, quote(self.raw), group_rank=group_rank, **who, **stated)


def clean(text: str) -> str:
    """Return the text without escape sequences, control characters and direction marks; tabs stay. What is no text is marked as invalid."""
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _NO_TEXT.sub(REPLACED, _CONTROL.sub("", text).strip("\0"))


def cut(text: str, limit: int) -> str:
    """Return the text, with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text cut for quoting, without the blanks around it."""
    return cut(text.strip(), limit)


def strip_prefix(raw: str, number: int = 1, file: str = "") -> Line:
    """Return the line without its prefixes. Any string is accepted; linear in its length."""
    raw = clean(raw)
    found: dict[str, Any] = {}
    origin: list[str] = []
    rest = peel(raw, found, origin)
    if "rank" not in found and "[rank" in rest:
        inside = _RANK_INSIDE.search(rest)  # after a progress bar that ended without a line feed
        if inside:
            rest = peel(rest[inside.start() :], found, origin)
    while (inner := _RANK_AGAIN.match(rest)) is not None:  # torchrun's own prefix may be called so, too
        found["local_rank"], found["rank"] = found.get("rank"), int(inner[1])
        origin.append(inner[1])
        rest = rest[inner.end() :]
    return Line(file, number, rest, raw, "".join(origin), **found)


_MOST_PIECES = 4096  # pieces of one line
_LONGEST_PREFIX = 400  # what wrappers put in front of a line is no longer
#: What only the first words of a line look like. NCCL's own parser splits its lines.
_START = regex(
    r"\[(?:rank|default)\d{1,7}\]:(?=\[[EWIF]\d{3,4} \d\d:|\[[EWIF] \w| ?Traceback |\[[EWIF]\d{3,4} | ?[\w.]{1,100}(?:Error|Exception): )"
    r"|\[\d{1,9},\d{1,7}\](?:<std(?:out|err)>):"
    r"|(?<!\]:)(?<!\]: )\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{6,9} [\w./]{1,100}\.(?:cpp|hpp|cc|py):\d{1,6}\]"
    r"|(?<!\]:)(?<!\]: )\[[EWIF] [\w./]{1,100}\.(?:cpp|hpp|cc):\d{1,10}\]"
)
_HINTS = ("[rank", "<std", ".cpp:", ".hpp:")


def pieces(text: str) -> list[str]:
    r"""Return the lines that a line holds, in their order: itself alone in nearly every case.

    It is cut where another line begins, and at `\n` where it is a quoted text. Linear in its length.
    """
    if "\\n" in text and '"' in text:
        parts = re.split(r"\\r?\\n|\\n", text)[:_MOST_PIECES]
        parts = [part.replace('\\"', '"').replace("\\t", "\t") for part in parts]
        parts[0] = _opened(parts[0])
        return [piece for part in parts for piece in _glued(part)]
    return _glued(text)


def is_headless(text: str) -> bool:
    """Return whether a line is the end of a JSON record whose beginning was lost."""
    return text.rstrip().endswith('"}') and '{"' not in text


def _opened(first: str) -> str:
    """Return the first line of a quoted text without the JSON before it."""
    at = first.rfind('": "')
    at = at + 4 if at >= 0 else first.rfind('":"') + 3 if '":"' in first else 0
    return first[at:]


def _glued(text: str) -> list[str]:
    if not any(hint in text[1:] for hint in _HINTS):
        return [text]
    starts = [match.start() for match in _START.finditer(text, 1)][: _MOST_PIECES - 1]
    starts = [at for at in starts if at > _LONGEST_PREFIX or peel(text[:at], {}, []).strip()]
    if not starts:
        return [text]
    edges = [0, *starts, len(text)]
    return [text[a:b] for a, b in pairwise(edges) if text[a:b].strip()]
