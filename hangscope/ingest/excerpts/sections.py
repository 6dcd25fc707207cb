"""The labelled parts of a short text: what each rank, process or host shows, and which of them differs from the others.

    cuda-gdb rank1
    *      0      -   1 731904 Active 0x0000000f  (4,1,1) (288,1,1) ncclDevKernel_AllGather_RING_LL()
    cuda-gdb rank2
    No CUDA kernels.

A part begins with a line that differs from others in its label alone, whatever tool printed it. Rows with a label of their own are
compared by their numbers.

    Rank=3 Node=dgx-b12 Score=0.61
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_HEADER = 200  # characters of a line that a part begins with
_SHOWN = 110
_MOST, _LEAST_ROWS, _LOGGER = 64, 4, 4
_APART, _NEAR = 0.25, 0.1  # of the median: how far an outlier is from it at least, and the others at most
_RANK = regex(r"(?i)\b(?:global[_ ]?)?rank[ =:#_-]{0,3}(\d{1,6})\b")
#: What distinguishes processes and hosts in the line that its part begins with.
_LABEL = regex(
    r"(?i:\b(?:global[_ ]?)?rank[ =:#_-]{0,3}\d{1,6}\b)|\b(?:[TDPEC]P\d{1,4}\b[_ ]?){1,4}|^Process (?P<process>\d{1,9}: [\w:.-]{1,60})|^(?:\w{1,40}@)?(?P<host>[A-Za-z][\w.-]{0,60}\d)[:~/\w]{0,40} ?[$#] "
    r"|^(?P<alone>(?:host|node|worker|gpu|pod)[ _-]?[\w.-]{1,40}):?$"
)
_MASK = regex(r"0x[0-9a-fA-F]+|(?<![\w.:])(?<!line )\d[\d.,]*(?![\w])")
_NUMBER = regex(r"(?<![\w.:/-])\d{1,15}(?:\.\d{1,9})?(?![\w:/]|\.\d)")
_LAST_INNERMOST = regex(r'^\s*File "[^"]{1,300}", line \d+, in ')
_FRAME = regex(r'^\s*File "(?:[^"]{0,300}/)?([^"/]{1,100})", line (\d+),? in (\S{1,80})$')
_PLACE = regex(r"\(\S{1,200}:\d+\)|, line \d+")
_LIKEWISE = regex(r"(?i)\b(?:identical|the same|same|likewise|ditto)\b")
_NAMES = regex(r"[A-Za-z]\w{0,60}[_.(]")


@dataclass(frozen=True, slots=True)
class Side:
    """Parts of a text that show the same: their labels, their ranks (global) where the labels are ranks, and the line that the other sides do not have.

    `row`: they differ in a number alone. `inside`: the innermost frame that all sides share.
    """

    labels: tuple[str, ...]
    ranks: tuple[int, ...]
    text: str
    row: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    label: str
    head: str
    ranks: tuple[int, ...]
    lines: tuple[str, ...]

    def differs_in(self, common: set[str]) -> str:
        """Return the line that distinguishes it: its innermost frame, else the first that names something, or simply the first."""
        own = [text for text in self.lines if _form(text) not in common]
        named = [text for text in own[:_LEAST_ROWS] if _NAMES.search(text)] or own
        return ([text for text in own if _LAST_INNERMOST.match(text)][-1:] or named[:1] or [""])[0]


def sides(lines: Sequence[str]) -> tuple[Side, ...]:
    """Return the sides of the labelled parts of a text, the largest first; empty where there are none, or all show the same."""
    parts = list(_parts(lines))
    rows = [(label, text.strip(), rest) for _, label, text, rest in _labelled(lines)]
    if len(parts) < 2:
        return _unlike_rows(rows)
    common = set.intersection(*({_form(text) for text in part.lines} for part in parts))
    found: dict[str, list[tuple[_Part, str]]] = defaultdict(list)
    for part in parts:
        text = part.differs_in(common)
        found[_form(text)].append((part, text))
    texts = [(part, text) for those in found.values() for part, text in those]
    stream = any(text[:_LOGGER] == part.head[:_LOGGER] for part, text in texts)
    apart = len(parts) > 2 or all(_PLACE.search(text) for _, text in texts)
    if len(found) < 2 or len(found) == len(parts) > 2 or "" in found or stream or not apart:
        return _unlike_rows([*((part.label, part.lines[0], part.lines[0]) for part in parts), *rows])
    inside = next((text for text in parts[0].lines if _form(text) in common and _PLACE.search(text)), "")
    different = [
        Side(
            tuple(dict.fromkeys(part.label for part, _ in those)),
            tuple(sorted({rank for part, _ in those for rank in part.ranks})),
            _short(those[0][1]),
            inside=_short(inside),
        )
        for those in found.values()
    ]
    return tuple(sorted(different, key=lambda side: -max(len(side.labels), len(side.ranks))))


def _form(text: str) -> str:
    return _MASK.sub("#", text)


def _short(text: str) -> str:
    plain = _FRAME.sub(r"\3 (\1:\2)", " ".join(text.split()))
    return plain if len(plain) <= _SHOWN else "…" + plain[-_SHOWN:].partition(" ")[2]


def _parts(lines: Sequence[str]) -> Iterator[_Part]:
    """Yield the parts of a text that begin with lines of one form, each label once."""
    heads: dict[int, tuple[str, str, str]] = {}
    labels: dict[str, set[str]] = defaultdict(set)
    for at, label, text, rest in _labelled(lines):
        heads[at] = _form(rest), label, text
        labels[_form(rest)].add(label)
    ends = sorted(at for at, (form, *_) in heads.items() if len(labels[form]) > 1)
    bodies: dict[str, dict[str, tuple[int, list[str]]]] = defaultdict(dict)
    for at, end in pairwise([*ends, len(lines)]):
        form, label, _ = heads[at]
        bodies[form].setdefault(label, (at, [*lines[at + 1 : end]]))
    whole = [parts for parts in bodies.values() if len(parts) > 1 and all(body for _, body in parts.values())]
    for label, (at, body) in [*max(whole, key=len, default={}).items()][:_MOST]:
        likewise = [int(r) for text in body if _LIKEWISE.search(text) for r in _RANK.findall(text)]
        kept = tuple(text for text in body if text.strip() and not _LIKEWISE.search(text))
        if kept:
            own = _RANK.search(label)
            yield _Part(label, heads[at][2], (int(own[1]), *likewise) if own else (), kept)


def _name(match: re.Match[str]) -> str:
    name = next((g for g in match.groups() if g), match[0]).strip()
    if rank := _RANK.fullmatch(name):
        return f"rank {int(rank[1])}"
    pid, _, process = name.partition(": ")
    return f"{process} (process {pid})" if process else name


def _labelled(lines: Sequence[str]) -> Iterator[tuple[int, str, str, str]]:
    """Yield (place, label, line, the line without its label) of lines that have a label."""
    for at, text in enumerate(lines):
        if len(text) <= _HEADER and (match := _LABEL.search(text)):
            yield at, _name(match), text, text[: match.start()] + "@" + text[match.end() :]


def _unlike_rows(labelled: Sequence[tuple[str, str, str]]) -> tuple[Side, ...]:
    """Return the others' rows and the row whose number is far from theirs; empty where none is."""
    rows: dict[tuple[str, int], dict[str, tuple[str, list[float]]]] = defaultdict(dict)
    for label, text, rest in labelled:
        numbers = [float(n) for n in _NUMBER.findall(rest)]
        rows[_NUMBER.sub("#", rest), len(numbers)].setdefault(label, (text, numbers))
    for those in rows.values():
        labels = [*those]
        for column in zip(*(numbers for _, numbers in those.values()), strict=True):
            outlier = _outlier(column)
            if outlier is not None:
                others = [label for at, label in enumerate(labels) if at != outlier]
                found = []
                for some in (others, [labels[outlier]]):
                    ranks = tuple(sorted(int(m[1]) for label in some if (m := _RANK.fullmatch(label))))
                    found.append(Side(tuple(some), ranks, _short(those[some[0]][0]), row=True))
                return tuple(found)
    return ()


def _outlier(column: Sequence[float]) -> int | None:
    """Return the place of the one number that is far from all others; of two, the one that is zero where the other is large."""
    if len(column) == 2 and min(column) == 0 and max(column) >= 50:
        return column.index(0)
    if len(column) < _LEAST_ROWS:
        return None
    middle = median(column)
    far = [at for at, number in enumerate(column) if abs(number - middle) > _APART * abs(middle)]
    near = sum(abs(number - middle) <= _NEAR * abs(middle) for number in column)
    return far[0] if len(far) == 1 and near == len(column) - 1 else None
