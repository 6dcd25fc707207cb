"""The entries of a recorder's dump, read by their form: entries of one form differ in numbers and times only.

A training job makes the same few calls over and over, so most entries of a dump are, byte for byte, one that was seen before
but for the operands of its numbers. Such an entry is not loaded: it is compared under a mask, and its numbers are picked out,
which takes a third of the time. Only the first entry of a form is parsed.

An entry of a known form is believed only where every byte that is not masked is equal and everything that it refers to is
what it was, so that it would be loaded as the first one was.
"""

from __future__ import annotations

from typing import Any

from hangscope.ingest.recorder.calls.entries import Entries
from hangscope.ingest.recorder.calls.stack_rows import Stacks
from hangscope.ingest.recorder.forms.entry_parts import NotPlain, PlainEntry
from hangscope.ingest.recorder.forms.form import Form, form_of
from hangscope.ingest.recorder.forms.form_reader import Found, Reader
from hangscope.ingest.recorder.forms.shapes import Shape
from hangscope.ingest.recorder.forms.stretches import learn
from hangscope.ingest.recorder.recording import Recording

KEPT = 7 << 20  # bytes of forms that are kept from dump to dump
LEARNED_SHARE = 8  # of a dump's entries one in so many may be read alone before its stretches are learned


class EntryForms:
    """The forms of the dumps that one process reads."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[int, int, int, str], Shape] = {}
        self._forget()

    def _forget(self) -> None:
        """Know nothing any more. The circles are opened, as no collector runs where dumps are read."""
        for shape in self._shapes.values():
            for form in shape.known.values():
                form.followers.clear()
                form.stretches.clear()
                form.shape = None
            shape.known.clear()
            shape.followers.clear()
        self._shapes.clear()
        self._known: dict[tuple[int, int, int, str], Form] = {}
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
        return self.found_by(Reader(self, body, memo, entries), 2, len(body) - 3)

    def found_by(self, reader: Reader, begin: int, end: int) -> Found:
        """Return what a reader finds between two places, and learn from it. Raises NotPlain."""
        found = reader.read(begin, end)
        if reader.alone > len(found.forms) // LEARNED_SHARE:
            self._bytes += 4 * learn(found.forms)
        return found

    def learn(self, entry: PlainEntry, data: bytes, own: bool) -> Form:
        """Return the form of an entry whose bytes are `data`."""
        form = form_of(entry, data, own)
        key = form.length, form.mask, form.value, repr((entry.gets, entry.puts, entry.pair, entry.frames))
        known = self._known.setdefault(key, form)
        if known is form:
            shape = Shape.of(form)
            form.shape = self._shapes.setdefault(shape.key, shape)
            form.shape.known[shape.numbers] = form
            self.count(form)
        return known

    def count(self, form: Form) -> None:
        """Take note that there is one more form."""
        self._bytes += 4 * form.length + 2048
