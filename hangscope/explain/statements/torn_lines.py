"""Lines that are damaged copies of a line that others printed: cut off, glued, with a hole, or with something in the middle.

    [watch] rank #: no pros, dumping            of   [watch] rank #: no progress for # s, dumping
    rank # step # loss #rank # step # loss #    of   rank # step # loss #

What is left of the original at both ends is most of one of the two, and what stands between holds no word of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hangscope.ingest.lines.prefixes import REPLACED
from hangscope.model.regex import regex

_END = 4  # characters on which a copy and its original agree at one end
_LEAST = 8  # characters that they have in common
_FRAGMENT = 3  # letters of a piece of a word
_COMPARED = 16  # originals that a line is compared with, by each of its ends
_KEY = 8  # characters by which a piece that follows itself is found
_COPIES, _STRETCH = 3, 24  # of it in a row at least, and characters that they have together
_WORD, _LONGEST = 4, 24  # characters of a word
_READ = 1000  # characters of a line
#: of c10's logger
_HEADER = regex(r"\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{3,9} \w{1,60}\.[ch]pp:\d{1,5}\]")
_FRAME = regex(r'\.py", line \d{1,7}, in \S')
_AS_ZERO = str.maketrans("123456789", "000000000")


class Originals:
    """The lines that others printed, found by their ends."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._by_end: dict[tuple[bool, str], list[str]] = defaultdict(list)
        for line in lines:
            for key in _ends(line):
                if len(self._by_end[key]) < _COMPARED:
                    self._by_end[key].append(line)

    def of(self, line: str) -> list[str]:
        """Return the lines of which a line is a damaged copy."""
        near = dict.fromkeys(found for key in _ends(line) for found in self._by_end.get(key, ()))
        near.pop(line, None)
        return [original for original in near if _is_copy(line, original, near)]


def _ends(line: str) -> tuple[tuple[bool, str], tuple[bool, str]]:
    return (False, line[:_END]), (True, line[-_END:])


def _shared(line: str, original: str) -> tuple[int, int]:
    """Return how many characters two lines have in common at their beginning, and at their end."""
    least, found = min(len(line), len(original)), list[int]()
    for step in (1, -1):
        pairs = enumerate(zip(line[::step], original[::step], strict=False))
        found.append(next((n for n, (a, b) in pairs if a != b), least))
    return found[0], min(found[1], least - found[0])


def _is_copy(line: str, original: str, near: Iterable[str]) -> bool:
    head, tail = _shared(line, original)
    rest, lost = line[head : len(line) - tail], original[head : len(original) - tail]
    if not rest and not (head and tail):
        return len(line) >= _END  # its beginning or its end alone
    if head + tail < max(_LEAST, min(len(line), len(original)) / 2):
        return False
    if not rest.strip() or not lost:
        return True  # a piece is missing, or something stands in the middle
    piece = rest.replace(original, "")
    # Two that were written into each other.
    glued = len(rest) > _FRAGMENT and any(o.startswith(piece) or o.endswith(piece) for o in near)
    if glued or (len(piece) >= _LEAST and any(piece in other for other in near)):
        return True
    in_a_word = (head and line[head - 1].isalpha()) or (tail and line[len(line) - tail].isalpha())
    strange = (rest, lost) if head and tail else (rest,)  # what is left of one end belongs to another line
    return bool(in_a_word) and all(sum(map(str.isalpha, part)) <= _FRAGMENT for part in strange)


def is_garbled(line: str) -> bool:
    """Return whether no program printed a line: it holds invalid bytes, two of c10's headers, a frame that does not begin it, or a piece that follows itself again and again.

    A list repeats its items as well (`nan, nan, nan`), with what separates them.
    """
    line = line[:_READ]
    end = line[line.find(line[:_STRETCH], 1) - 1 :][:1]  # behind which the line begins again
    begins_again = line.count(line[:_STRETCH]) >= _COPIES and (end.isalnum() or end in ".!)")
    inside = _FRAME.search(line) is not None and not line.lstrip().startswith("File ")
    if REPLACED in line or len(_HEADER.findall(line)) > 1 or begins_again or inside:
        return True
    return any(_stutters(line, start) for start in range(0, len(line) - _STRETCH + 1, _KEY))


class Words:
    """The words of lines, found by all but one of their characters."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._known = {word for line in lines for word in _words(line)}
        self._nearly = {form for word in self._known for form in _one_less(word)}

    def damaged_in(self, line: str) -> bool:
        """Return whether one of these words is in a line with another character in one place, so that it is no word: `|oss`, `steP`."""
        strange = (
            w for w in _words(line) if not (w.islower() or w.isupper() or w.istitle()) or not w.isalpha()
        )
        return any(not self._nearly.isdisjoint(_one_less(w)) for w in strange if w not in self._known)


def _words(line: str) -> Iterator[str]:
    parts = (part.strip(".,:;!?()[]{}<>=\"'") for part in line[:_READ].split())
    return (part for part in parts if _WORD <= len(part) <= _LONGEST and sum(map(str.isalpha, part)) > 2)


def _one_less(word: str) -> Iterator[tuple[str, str]]:
    return ((word[:place], word[place + 1 :]) for place in range(len(word)))


def _stutters(line: str, start: int) -> bool:
    """Return whether what begins here follows itself, and one copy ends and the next one begins within a word."""
    again = line.find(line[start : start + _KEY], start + 1)
    size = again - start
    end = start + max(_COPIES * size, _STRETCH)
    if again < 0 or end > len(line) or line[start : end - size] != line[again:end]:
        return False
    while start and line[start - 1] == line[start - 1 + size]:
        start -= 1
    seam = line[start + size - 1 : start + size + 1]
    return seam.isalnum() and not seam.isdigit()


class Endings:
    """How the lines of logs end, numbers apart, each given as (file, text)."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for file, text in lines:
            digits = text.translate(_AS_ZERO)
            if len(alike := self._found[file, digits[-_LEAST:]]) < _COMPARED:
                alike.append(digits)

    def hold(self, file: str, line: str) -> bool:
        """Return whether a line ends as another one of its file does, from within a word of both on: its own end is lost."""
        line = line.translate(_AS_ZERO)
        for other in self._found.get((file, line[-_LEAST:]), ()):
            _, tail = _shared(line, other)
            seams = (text[-tail - 1 : len(text) - tail + 1] for text in (line, other))
            if _LEAST <= tail < min(len(line), len(other)) and all(map(str.isalnum, seams)):
                return True
        return False
