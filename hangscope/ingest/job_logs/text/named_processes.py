"""Which processes a short text names, in whatever form: every number next to a word for a rank or a process.

    [rank: 3] Child process with PID 61243 terminated with code -9
    [ERROR] 2024-11-08-14:33:19 (PID:52806, Device:6, RankID:6) ERR02200 DIST call hccl api failed.
    20:15:02 [rank5] pid 78808 writing /nfs/ckpt/step_14000/__5_0.distcp

Parsers read the forms that they know. This finds the others, so that nothing is reported as unknown that the text states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangscope.ingest.lines.titles import ranks_titled
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_MOST = 256  # lines
#: Not a number within a group, a host or an engine, and no size.
_RANK = regex(
    r"(?i)(?<![a-z_])(?<!local )(?<!node )(?<!group )(?<![tpdec]p )(?:global[_ -]?|world[_ -]?|mpi)?rank(?:[_ ]?id)?['\"]?[ =:#\[]{0,3}(\d{1,6})\b(?![./]\d)"
)
_PID = regex(r"(?i)\bpid['\"]?[ =:#(]{1,3}(\d{2,9})\b|\bprocess (\d{3,9})\b")
_LOCAL = regex(r"(?i)\blocal[_ -]?rank['\"]?[ =:]{1,3}(\d{1,4})\b|\[rank: (\d{1,4})\] Child process")


@dataclass(frozen=True, slots=True)
class Named:
    """What one line names: ranks (global, as far as it shows), local ranks and process ids. `titled`: it is above lines of theirs."""

    line: int
    ranks: tuple[int, ...]
    locals: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    titled: bool = False


def named_processes(lines: Iterable[tuple[int, str]]) -> tuple[Named, ...]:
    """Return what each line names that names anything; of many lines the first ones."""
    return tuple(_named(lines))[:_MOST]


def ranks_in(text: str) -> tuple[int, ...]:
    """Return the ranks that a line names."""
    return tuple(sorted({int(n) for n in _RANK.findall(text)}))


def _named(lines: Iterable[tuple[int, str]]) -> Iterator[Named]:
    for number, text in lines:
        lowered = text.lower()
        if "rank" not in lowered and "pid" not in lowered and "process " not in lowered:
            continue
        own = sorted({int(a or b) for a, b in _LOCAL.findall(text)})
        ranks = ranks_in(text) if "] Child process" not in text else ()
        pids = sorted({int(a or b) for a, b in _PID.findall(text)})
        titled = ranks_titled(text)
        if own or ranks or pids or titled:
            yield Named(number, titled or ranks, tuple(own), tuple(pids), bool(titled))
