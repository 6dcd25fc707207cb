"""Dumps as torch writes them, read without loading their entries: most of a dump's bytes were seen in one before.

Ranks of one role make the same calls in the same order, so all but the head of their dumps is the same, byte for byte, but
for times and the number of a thread (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes the keys of an entry in
one order, and torch/csrc/jit/serialization/pickler.cpp numbers what it memoizes in order). Of a dump that is like a template
only the head is loaded, and the times of its calls are picked out: a tenth of the work.

Where the ring began at another call, or sizes are a rank's own, no dump is like another, but its entries still are
(`entry_forms.py`): that takes half of the work, and makes the templates for others. Texts in frames may be a rank's own
(`own_texts.py`).

A dump is like a template only where every byte that is not masked is equal, so that it would be read as the first one was.
What the calls refer to in the head is compared as well; where it is the name of a group, the dump's own name is taken.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Any

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.calls.entries import Entries
from hangscope.ingest.recorder.forms.entry_forms import EntryForms
from hangscope.ingest.recorder.forms.entry_parts import NewFrame, NotPlain
from hangscope.ingest.recorder.forms.form_reader import Found
from hangscope.ingest.recorder.own_texts import OwnTexts, own_texts
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.torchcomms import is_torchcomms
from hangscope.ingest.recorder.values import as_desc, as_text
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

SMALLEST = 1 << 16  # bytes; a smaller dump is loaded in no time
SIGHTINGS = 2  # dumps whose calls take equally many bytes before one of them becomes a template
KEPT = 1 << 21  # bytes of dumps that are kept to compare others with
UNUSED = 12  # templates that are made beyond the number of dumps that were like one
_ENTRIES = b"X\x07\x00\x00\x00entries"
_KEY = regex(re.escape(_ENTRIES) + rb"(?:q.|r.{4})?", re.DOTALL)


@dataclass(slots=True)
class _Template:
    """A dump that others are compared with: its calls as bytes under a mask, and what they were read as."""

    length: int
    mask: int
    value: int
    created: struct.Struct  # picks the times of the calls
    used: dict[int, Any]  # what the calls take from the head, by memo number
    names: dict[int, tuple[int, int]]  # by index of a group: the memo numbers of its name and description
    texts: OwnTexts | None  # of frames; None where they are those of the template
    recording: Recording


class Templates:
    """Reads the dumps of one process."""

    def __init__(self) -> None:
        self._templates: dict[int, list[_Template]] = {}
        self._kept: list[_Template] = []
        self._sighted: Counter[int] = Counter()
        self._unused = 0
        self._forms = EntryForms()

    def read(self, data: bytes) -> Recording | None:
        """Return the recording of a dump, None where it must be loaded."""
        split = _split(data) if len(data) >= SMALLEST else None
        if split is None:
            return None
        head, body = split
        try:
            top, memo = _head(head)
            if is_torchcomms(top):
                return None  # what its keys mean is another thing
            return self._like(top, memo, body) or self._by_forms(top, memo, body)
        except Exception:  # it is not written as torch writes it; loading it says what is wrong with it
            return None

    def _like(self, top: dict[Any, Any], memo: dict[int, Any], body: bytes) -> Recording | None:
        alike = self._templates.get(len(body))
        if alike is None:
            return None
        calls = int.from_bytes(body, "little")
        for template in alike:
            if calls & template.mask == template.value:
                self._unused -= 1
                return _recording(template, top, memo, body)
        return None

    def _by_forms(self, top: dict[Any, Any], memo: dict[int, Any], body: bytes) -> Recording | None:
        recording = flight_recorder.reduce_dump(top)
        entries = self._forms.entries(recording)
        found = self._forms.read(body, memo, entries)
        if not flight_recorder.looks_like_dump({**top, "entries": [call.entry for call in found.calls[:4]]}):
            return None
        entries.add(found.calls, found.numbers, found.own)
        self._sighted[len(body)] += 1
        if self._sighted[len(body)] >= SIGHTINGS and self._unused < UNUSED:
            self._keep(_template(body, memo, found, entries))
        return recording

    def _keep(self, template: _Template | None) -> None:
        if template is None:
            return
        self._unused += 1
        self._kept.append(template)
        self._templates.setdefault(template.length, []).insert(0, template)
        while len(self._kept) > 1 and sum(one.length for one in self._kept) > KEPT:
            oldest = self._kept.pop(0)
            self._templates[oldest.length].remove(oldest)


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """Return a dump up to the key of its entries, and the rest; None where it has none or is of another protocol."""
    found = data.find(_ENTRIES) if data.startswith(b"\x80\x02") else -1
    key = _KEY.match(data, found) if found >= 0 else None
    return None if key is None else (data[: key.end()], data[key.end() :])


def _head(head: bytes) -> tuple[dict[Any, Any], dict[int, Any]]:
    """Return a dump without its entries, and what its head memoizes. Raises whatever the pickle module raises, or NotPlain."""
    top, memo = safe_pickle.load_with_memo(head + b"Nu.")
    if not isinstance(top, dict) or "entries" not in top:
        raise NotPlain
    return top, memo


def _template(body: bytes, memo: dict[int, Any], found: Found, entries: Entries) -> _Template | None:
    """Return a dump as a template, None where its calls refer to what cannot be compared."""
    if entries.recording.notes:
        return None
    used: dict[int, Any] = {}
    names: dict[int, tuple[int, int]] = {}
    for form, call in dict(zip(found.forms, found.calls, strict=True)).items():
        used.update((number, value) for number, value in form.content.gets.items() if number in memo)
        pair = form.content.pair
        if pair is None or not (pair[0] in memo and pair[1] in memo):
            continue
        if names.setdefault(call.group, pair) != pair:
            return None
    frames = {frame for form in set(found.forms) for frame in form.content.frames or ()}
    if not memo.keys().isdisjoint(frames):
        return None
    texts = {number for frame in frames if isinstance(frame, NewFrame) for number in frame.texts}
    used.update((number, memo[number]) for number in texts & memo.keys() if number is not None)
    starts = list(accumulate((form.layout.length for form in found.forms), initial=2))
    own = own_texts(found.forms, starts, memo, body)
    steady = bytearray().join([b"\xff\xff", *(form.layout.steady for form in found.forms), b"\xff\xff\xff"])
    for begin, end in own.spans if own is not None else ():
        steady[begin:end] = b"\x80" * (end - begin)  # other texts, too, are ASCII
    bits = int.from_bytes(steady, "little")
    times = [starts[position] + found.forms[position].layout.created for position in entries.kept]
    gaps = [time - before - 8 for before, time in zip([-8, *times], times, strict=False)]
    return _Template(
        length=len(body),
        mask=bits,
        value=int.from_bytes(body, "little") & bits,
        created=struct.Struct("<" + "".join(f"{gap}xq" for gap in gaps)),
        used=used,
        names=names,
        texts=own,
        recording=entries.recording,
    )


def _recording(
    template: _Template, top: dict[Any, Any], memo: dict[int, Any], body: bytes
) -> Recording | None:
    """Return the recording of a dump whose calls are the template's."""
    if any(memo.get(number) != value for number, value in template.used.items()):
        return None
    own = flight_recorder.reduce_dump(top)
    groups = list(template.recording.groups)
    for index, (name, desc) in template.names.items():
        if not isinstance(memo.get(name), str) or not isinstance(memo.get(desc), str):
            return None
        groups[index] = (groups[index][0], as_text(memo[name]), as_desc(memo[desc]))
    stacks = template.recording.stacks
    renamed = template.texts.stacks(stacks, body) if template.texts is not None else stacks
    if renamed is None or len(set(groups)) < len(groups):
        return None
    return replace(
        own,
        groups=groups,
        kinds=template.recording.kinds,
        stacks=renamed,
        columns={**template.recording.columns, "created": array("q", template.created.unpack_from(body))},
        own_sizes=template.recording.own_sizes,
    )
