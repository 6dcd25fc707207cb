"""How wide text will be: an upper estimate in CSS pixels, for boxes that are laid out without a browser.

Widths are those of wide system fonts (DejaVu Sans, Verdana), so that text fits where a narrower one is drawn.
"""

from __future__ import annotations

_LONGEST = 200  # no box is wider than so many characters
_WIDE, _NARROW = frozenset("MWmw@%—…"), frozenset("iIljtf.,:;'|!()[]-/ r1")


def text_width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """Return at most how wide text of a font size is."""
    if mono:
        return len(text) * size * 0.615
    ems = 0.0
    for char in text:
        if ord(char) > 0x2E80:
            ems += 1.05
        elif char in _WIDE:
            ems += 1.0
        elif char in _NARROW:
            ems += 0.43
        elif char.isupper():
            ems += 0.75
        else:
            ems += 0.64
    return ems * size * (1.1 if bold else 1.0)


def fitted(text: str, room: float, size: float, *, bold: bool = False, mono: bool = False) -> str:
    """Return text that is no wider than `room` pixels, cut with a mark."""
    text, whole = text[:_LONGEST], len(text) <= _LONGEST
    if whole and text_width(text, size, bold=bold, mono=mono) <= room:
        return text
    while text and text_width(text + "…", size, bold=bold, mono=mono) > room:
        text = text[:-1]
    return text.rstrip(" ,;·") + "…"
