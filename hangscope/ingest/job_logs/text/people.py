"""Lines that a person wrote about the job, and no program printed."""

from __future__ import annotations

from hangscope.ingest.job_logs.text.stage import stage_of_line
from hangscope.ingest.lines.words import words
from hangscope.model.regex import regex

_PROSE = 8  # words
_SENTENCE = regex(r"[a-z]{2}[.,!?;](?: |$)")
_CJK = regex(r"[\u4e00-\u9fff]{4}")


def of_people(text: str) -> bool:
    """Return whether a line is a sentence that no program prints."""
    return len(text.split()) >= _PROSE and not words("logged").search(text) and bool(_SENTENCE.search(text))


def complains(text: str) -> bool:
    """Return whether a line is what a reporter writes of a job that hangs, by its words or as prose."""
    if text.startswith("$ ") or any(words(name).search(text) for name in ("logged", "may_hang", "no_hang")):
        return False
    if _CJK.search(text):
        return True
    prose = not text[:1].isspace() and of_people(text)
    return bool(words("complains").search(text)) and (prose or stage_of_line(text) is None)
