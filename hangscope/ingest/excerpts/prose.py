"""What people write around a pasted log: their sentences, and how many devices the job has by them.

    4 nodes x 4 GPUs, `srun python train.py`, one task per gpu. For the record: GPU memory was at 31 of 80 GB

What people suppose is no evidence. A report may answer it, and their count of devices is taken where no line of the log states one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hangscope.ingest.lines.vocabulary import complains, of_people, words
from hangscope.model.regex import regex

_MOST = 3000  # characters
_WORDS, _PLAIN = 4, 0.7
_WORD = regex(r"[(\"'`*]{0,3}[A-Za-z][a-z'’-]{0,30}[.,;:!?)\"'`*]{0,3}|&|-|a|I")
_LONG = 15  # words
_MOSTLY = 0.6  # the share of words in a line outside of fences
_HALF, _PARAGRAPH = 0.5, 8  # of the words of an opening paragraph are plain; lines that it has at most


def written_by_people(lines: Sequence[tuple[int, str]]) -> Mapping[int, str]:
    """Return the lines (number, text) that people wrote: runs of lines of words, of which one at least is a sentence or a complaint.

    Where logs are fenced, so are all lines of words around the fences, and none between them.
    """
    fences = [number for number, text in lines if _is_fence(text)]
    if fences and len(fences) % 2 == 0:
        outside = [(n, text) for n, text in lines if n not in fences and sum(f < n for f in fences) % 2 == 0]
        plain = {
            n for n, text in outside if _has_plain(text, _WORDS, _MOSTLY) and not words("code").match(text)
        }
        return {n: text.strip() for n, text in outside if n in plain or _of_words(text)}
    found: dict[int, str] = _opening(lines)
    run: dict[int, str] = {}
    for number, text in (*lines, (0, "")):
        if not _of_words(text) or number - 1 not in run:
            found |= run if any(_is_long(t) or of_people(t) or complains(t) for t in run.values()) else {}
            run = {}
        if _of_words(text):
            run[number] = text.strip()
    return found


def _opening(lines: Sequence[tuple[int, str]]) -> dict[int, str]:
    """Return the paragraph with which a text begins, where people wrote it: words enough for a sentence, and no line that a program prints."""
    first: dict[int, str] = {}
    for number, text in lines:
        if first and (number - 1 not in first or not text.strip()):
            break
        first[number] = text.strip()
    begins = next(iter(first.values()), "").split()
    enough = len(begins) > _WORDS and _has_plain(" ".join(first.values()), _LONG, _HALF)
    of_people = enough and len(first) <= _PARAGRAPH and not any(map(_begins_like_a_log, first.values()))
    return first if of_people else {}


def _has_plain(text: str, count: int, share: float) -> bool:
    """Return whether a text has so many words at least, of which so large a share are a language's."""
    parts = text.split()
    return len(parts) >= count and sum(bool(_WORD.fullmatch(part)) for part in parts) >= share * len(parts)


def _begins_like_a_log(text: str) -> bool:
    begins = words("begins_a_line").match(text) or words("of_a_logger").search(text)
    return not text[:1].isalnum() or begins is not None or words("code").match(text) is not None


def has_fences(texts: Iterable[str]) -> bool:
    """Return whether somebody fenced the logs in a text."""
    return any(map(_is_fence, texts))


def _is_fence(text: str) -> bool:
    return text.lstrip().startswith("```")


def prose(lines: Mapping[int, str]) -> str:
    """Return the lines that people wrote as one text."""
    return " ".join(lines.values())[:_MOST]


def _is_long(text: str) -> bool:
    """Return whether a line is a sentence or more, whatever names of programs it mentions."""
    starts = text[:1].isalpha() and not words("of_a_logger").search(text)
    return starts and _has_plain(text, _LONG, _PLAIN)


def _of_words(text: str) -> bool:
    """Return whether a line is mostly words of a language."""
    if _is_long(text):
        return True
    if words("logged").search(text) or words("noise").search(text) or words("code").match(text):
        return False
    if "`" not in text and words("printed").search(text):
        return False
    return _has_plain(text, _WORDS, _PLAIN) or of_people(text) or complains(text)


def devices(text: str) -> int | None:
    """Return how many devices a job has by what people write; None where they state no number, or several."""
    products = {int(m[1]) * int(m[2]) for m in words("nodes_by_devices").finditer(text)}
    if products or words("nodes_of_people").search(text):
        return products.pop() if len(products) == 1 else None
    counts = {int(m[1]) for m in words("devices").finditer(text)} - {0, 1}
    return counts.pop() if len(counts) == 1 else None
