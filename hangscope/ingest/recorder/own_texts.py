"""Texts in the frames of a dump that may be a rank's own, such as the name of a file that a compiler wrote for it.

A dump whose calls are those of a template but for such texts has the template's stacks with its own texts in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any

from hangscope.ingest.recorder.forms.entry_parts import NewFrame
from hangscope.ingest.recorder.forms.form import Form
from hangscope.ingest.recorder.recording import StackRow
from hangscope.model.dataclass import dataclass

_ROW = frozenset({"name", "filename"})  # what of a frame's texts becomes part of a row


@dataclass(slots=True)
class OwnTexts:
    """The texts of a template that other dumps may have others in place of.

    `spans` are where they stand among the bytes of its calls, `picked` picks them. `others` are the texts that stand elsewhere.
    """

    spans: list[tuple[int, int]]
    picked: struct.Struct
    texts: tuple[bytes, ...]
    others: frozenset[str]

    def stacks(self, stacks: list[StackRow], body: bytes) -> list[StackRow] | None:
        """Return the template's stacks with the texts of a dump; None where two of its texts are one, so that stacks may be."""
        found = self.picked.unpack_from(body)
        if found == self.texts:
            return stacks
        new = {
            old.decode("ascii"): intern(text.decode("ascii"))
            for old, text in zip(self.texts, found, strict=True)
        }
        if len(set(found)) < len(found) or not self.others.isdisjoint(new.values()):
            return None
        rows = {row: row for stack in stacks for row in stack}
        for name, file, line in rows:
            if name in new or file in new:
                rows[name, file, line] = new.get(name, name), new.get(file, file), line
        return [tuple(map(rows.__getitem__, stack)) for stack in stacks]


def own_texts(
    forms: Sequence[Form], starts: Sequence[int], memo: Mapping[int, Any], body: bytes
) -> OwnTexts | None:
    """Return the texts in the frames of a dump that may be its own, None where one of them may be something else as well.

    `starts` says where the entries of these forms begin in `body`, `memo` what stands before them.
    """
    placed = [
        (start + begin, start + end, number)
        for form, start in zip(forms, starts, strict=False)
        for begin, end, number in form.texts
    ]
    spans, numbers = [(begin, end) for begin, end, _ in placed], {number for *_, number in placed}
    texts = tuple(body[begin:end] for begin, end in spans)
    if not len(texts) == len(numbers) == len(set(texts)) or not b"".join(texts).isascii():
        return None
    others = set()
    for form in set(forms):
        content = form.content
        if not numbers.isdisjoint(content.gets) or (content.frames is None and content.value.get("frames")):
            return None
        for frame in content.frames or ():
            for key, value, number in _texts(frame):
                if number not in numbers:
                    others.add(str(value if number is None else memo.get(number, value)))
                elif key not in _ROW:
                    return None
    if not others.isdisjoint(text.decode("ascii") for text in texts):
        return None
    gaps = [
        begin - before for (begin, _), before in zip(spans, [0, *(end for _, end in spans)], strict=False)
    ]
    layout = "".join(f"{gap}x{end - begin}s" for gap, (begin, end) in zip(gaps, spans, strict=True))
    return OwnTexts(spans, struct.Struct("<" + layout), texts, frozenset(others))


def _texts(frame: int | NewFrame) -> Iterator[tuple[str, Any, int | None]]:
    """Yield (key, value, memo number) of what an entry writes of a frame; the value is that of the first dump."""
    if isinstance(frame, NewFrame):
        for (key, value), number in zip(frame.made.items(), frame.texts, strict=True):
            yield key, value, number
