"""The entries of a recorder's dump, read by their form: entries of one form differ in numbers and times only.

A training job makes the same few calls over and over, so most entries of a dump are, byte for byte, one that was seen before
but for the operands of its numbers. Such an entry is not loaded: it is compared under a mask, and its numbers are picked out,
which takes a third of the time. Only the first entry of a form is parsed.

An entry of a known form is believed only where every byte that is not masked is equal and everything that it refers to is
what it was, so that it would be loaded as the first one was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hangscope.ingest.recorder.calls.entries import Entries
from hangscope.ingest.recorder.calls.stack_rows import Stacks
from hangscope.ingest.recorder.forms.entry_parts import NotPlain, PlainEntry
from hangscope.ingest.recorder.forms.form import Content, Form, content_key, layout_of
from hangscope.ingest.recorder.forms.form_reader import Found, Reader
from hangscope.ingest.recorder.forms.shapes import Shape
from hangscope.ingest.recorder.forms.stretches import learn
from hangscope.ingest.recorder.recording import Recording

KEPT = 7 << 20  # bytes of forms that are kept from dump to dump
_FORM, _CONTENT = 1 << 10, 1 << 12  # bytes of a form beyond its entry's own, and of a content


class EntryForms:
    """The forms of the dumps that one process reads."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[int, int, int, str], Shape] = {}
        self._forget()

    def _forget(self) -> None:
        """Know nothing any more. The circles are opened, as no collector runs where dumps are read."""
        for shape in self.shapes.values():
            for form in shape.known.values():
                form.followers.clear()
                form.stretches.clear()
                form.shape = None
            shape.known.clear()
            shape.followers.clear()
        self.shapes.clear()
        self._known: dict[tuple[int, int, int, Content], Form] = {}
        self._contents: dict[str, Content] = {}
        self.first: list[Form] = []  # that dumps begin with
        self.first_shapes: list[Shape] = []
        self._bytes = 0
        self.stacks = Stacks()  # of the forms that are known

    def entries(self, recording: Recording) -> Entries:
        """Return what takes the entries of a dump that `read` is asked for next."""
        if self._bytes > KEPT:
            self._forget()
        return Entries(recording, self.stacks)

    def read(self, body: bytes, memo: dict[int, Any], entries: Entries) -> Found:
        """Return the entries of a dump, without adding them to `entries`. Raises NotPlain where they have no such form.

        `body` begins behind the key of the entries, `memo` holds what stands before it.
        """
        if not body.startswith(b"](") or not body.endswith(b"eu."):
            raise NotPlain
        return Reader(self, body, memo, entries).read(2, len(body) - 3)

    def learn(self, entry: PlainEntry, data: bytes, own: bool) -> Form:
        """Return the form of an entry whose bytes are `data`; `own`: whether sizes are its own."""
        layout = layout_of(entry, own)
        content = Content.of(entry)
        known_content = self._contents.setdefault(content_key(entry, own), content)
        if known_content is content:
            self._bytes += _CONTENT
        value = int.from_bytes(data, "little") & layout.mask
        key = layout.length, layout.mask, value, known_content
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = Form(layout, value, known_content, entry.texts)
            shape = Shape.of(form, entry.operands)
            form.shape = self.shapes.setdefault(shape.key, shape)
            form.shape.known[shape.numbers] = form
            self._bytes += _FORM + 4 * layout.length
        return form

    def renumbered(self, form: Form) -> None:
        """Take note of the memory of a form that differs from a known one in memo numbers."""
        self._bytes += _FORM + form.layout.length + _CONTENT // 4

    def repeated(self, forms: Sequence[Form]) -> None:
        """Take note of forms in a row that stood there twice."""
        self._bytes += 4 * learn(forms)
