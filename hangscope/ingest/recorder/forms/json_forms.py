"""The entries of a recorder's dump in JSON, read by their form, as `entry_forms.py` reads those of a pickle.

    {"collective_seq_id": 1, "op_id": 1, "process_group": ["0", "default_pg"], "record_id": 4, "time_created_ns": 1773300000012345678, ...}

Digits are what differs (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, `dump_json`, version 2.10, which writes the keys by the
alphabet; here they may come in any order): an entry of as many of them in the same places is of the same form. Names of groups, which
are a rank's own and stand in every entry, are taken out before.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hangscope.ingest.recorder import flight_recorder
from hangscope.ingest.recorder.calls.entries import Entries
from hangscope.ingest.recorder.calls.rows import Call
from hangscope.ingest.recorder.forms.entry_forms import EntryForms
from hangscope.ingest.recorder.forms.entry_parts import COUNTED, SIZES, TIMES, Field, NotPlain, PlainEntry
from hangscope.ingest.recorder.forms.form import Form
from hangscope.ingest.recorder.forms.form_reader import Found, Reader
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.torchcomms import is_torchcomms
from hangscope.model.regex import regex

SMALLEST = 1 << 16  # bytes; a smaller dump is loaded in no time
FAILURES = 3  # dumps in a row that are not of this form before no more is tried
_LARGEST = 2**62
_ENTRIES = regex(rb'"entries"\s{0,9}:\s{0,9}\[(?=\{)')
_BETWEEN = regex(rb"\},[ ]?(?=\{)")
_TOKEN = regex(rb'"[^"\\\x00-\x1f]*"|[-+.\w]+|[\[\]{},:]')
_WHOLE = regex(rb"0|[1-9]\d{0,18}")
_THREAD = regex(rb'"\d{1,20}"')


class JsonForms:
    """Reads the dumps in JSON of one process."""

    def __init__(self) -> None:
        self._forms = EntryForms()
        self._failures = 0

    def read(self, data: bytes) -> Recording | None:
        """Return the recording of a dump, None where it must be loaded."""
        if len(data) < SMALLEST or self._failures >= FAILURES:
            return None
        try:
            recording = self._read(data)
        except Exception:  # it is not written as torch writes it; loading it says what is wrong with it
            self._failures += 1
            return None
        self._failures = 0
        return recording

    def _read(self, data: bytes) -> Recording:
        opening = _ENTRIES.search(data)
        between = opening and _BETWEEN.search(data, opening.end())
        end = data.find(b"}]", opening.end()) + 1 if opening else 0
        if opening is None or between is None or end == 0:
            raise NotPlain
        top = json.loads(data[: opening.end()] + data[end:], object_pairs_hook=_without_repeats)
        if not isinstance(top, dict) or top.get("entries") != [] or is_torchcomms(top):
            raise NotPlain
        recording = flight_recorder.reduce_dump(top)
        entries = self._forms.entries(recording)
        separator = between.group()[1:]
        reader = _JsonReader(self._forms, data[opening.end() : end] + separator, entries, top, separator)
        found = reader.read(0, len(reader.body))
        if not flight_recorder.looks_like_dump({**top, "entries": [call.entry for call in found.calls[:4]]}):
            raise NotPlain
        entries.add(found.calls, reader.numbers_of(found), found.own)
        return recording


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise NotPlain
    return made


def _nameless(body: bytes, top: dict[str, Any], separator: bytes) -> tuple[bytes, dict[str, str], int]:
    """Return entries without the names of groups that differ in their descriptions, the names by description, and how many were taken."""
    names: dict[str, str] = {}
    count = 0
    config = top.get("pg_config")
    groups = [row for row in config.values() if isinstance(row, dict)] if isinstance(config, dict) else []
    described = Counter(row.get("desc") for row in groups if isinstance(row.get("desc"), str))
    for row in groups:
        name, desc = row.get("name"), row.get("desc")
        if isinstance(name, str) and name and isinstance(desc, str) and described[desc] == 1:
            names[desc] = name
            size = len(body)
            body = body.replace(
                b"[" + _text(name) + separator + _text(desc), b'[""' + separator + _text(desc)
            )
            count += (size - len(body)) // (len(_text(name)) - 2)
    return body, names, count


def _text(value: str) -> bytes:
    return json.dumps(value).encode()


class _JsonReader(Reader):
    """Reads the entries of one dump in JSON; each ends with the separator that stands between them."""

    digits = True

    def __init__(
        self, forms: EntryForms, body: bytes, entries: Entries, top: dict[str, Any], separator: bytes
    ) -> None:
        body, self.names, self.taken_out = _nameless(body, top, separator)
        super().__init__(forms, body, {}, entries)
        self.separator = separator

    def parsed_at(self, at: int) -> PlainEntry:
        """Return the entry at `at`. Raises NotPlain."""
        end = self.body.find(b"}" + self.separator, at) + 1
        if end == 0:
            raise NotPlain
        return _parsed(self.body[at:end], len(self.separator))

    def group_of(self, value: dict[str, Any]) -> Any:
        """Return what an entry says of its group, with the name that was taken out."""
        group = value.get("process_group")
        return [self.names[group[1]], group[1]] if isinstance(group, list) and _is_nameless(group) else group

    def call_of(self, form: Form, at: int) -> Call | None:
        """Return a call for the content of a form."""
        if form.layout.odd:
            return None
        value = form.content.value
        return self.entries.call_of(value, self.group_of(value), value.get("frames"))

    def whole(self, numbers: tuple[Any, ...]) -> tuple[int, ...]:
        """Return numbers as they were picked out as whole numbers. Raises NotPlain where they are none."""
        made = tuple(map(int, numbers))
        if " ".join(map(str, made)).encode() != b" ".join(numbers) or max(made, default=0) >= _LARGEST:
            raise NotPlain
        return made

    def numbers_of(self, found: Found) -> list[int]:
        """Return the numbers of all entries. Raises NotPlain where a name was taken out of anything else."""
        counts = Counter(found.forms)
        if self.taken_out != sum(
            n for form, n in counts.items() if _is_nameless(form.content.value.get("process_group"))
        ):
            raise NotPlain
        return list(self.whole(tuple(found.numbers)))


def _is_nameless(group: Any) -> bool:
    return isinstance(group, list) and len(group) == 2 and group[0] == ""


def _parsed(text: bytes, behind: int) -> PlainEntry:
    """Return an entry with the places of its numbers; `behind` bytes of a separator follow it. Raises NotPlain."""
    found = PlainEntry(length=len(text) + behind)
    value = json.loads(text, object_pairs_hook=_without_repeats)
    if not isinstance(value, dict):
        raise NotPlain
    found.value = value
    depth, key, before = 0, "", b""
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word in b"{[":
            depth += 1
        elif word in b"}]":
            depth -= 1
        elif depth == 1 and before in (b"{", b",") and word.startswith(b'"'):
            key = word[1:-1].decode()
        elif _WHOLE.fullmatch(word):
            place = Field(key, token.start(), f"{len(word)}s")
            if depth == 1 and key in COUNTED:
                found.numbers.append(place)
            elif depth == 1 and key in TIMES:
                found.times.append(place)
            elif depth > 1 and key in SIZES:
                found.sizes.append(place)
        elif depth == 1 and key == "thread_id" and _THREAD.fullmatch(word):
            found.times.append(Field(key, token.start() + 1, f"{len(word) - 2}s"))
        before = word
    return found
