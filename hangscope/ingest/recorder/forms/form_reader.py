"""The entries of one dump, read by the forms that are known, and what is not known parsed."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from hangscope.ingest.recorder.calls.entries import Entries, names_a_call
from hangscope.ingest.recorder.calls.own_sizes import Ranks
from hangscope.ingest.recorder.calls.rows import Call
from hangscope.ingest.recorder.forms.entry_parts import NewFrame, NotPlain, PlainEntry
from hangscope.ingest.recorder.forms.form import Content, Form
from hangscope.ingest.recorder.forms.plain_entry import parse
from hangscope.ingest.recorder.forms.stretches import LONGEST, Picker, Stretch
from hangscope.ingest.recorder.odd_values import look_at_entry
from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.ingest.recorder.forms.entry_forms import EntryForms

MAX_FOLLOWERS = 24  # forms that are tried as the next of one
TRIED = 256  # shapes that are tried beyond those, which takes a third of the time of parsing an entry
FREE_PARSES = 96  # entries of a dump that are parsed beyond those that need it least
PARSED_SHARE = 8  # of a dump's entries one in so many may be parsed


@dataclass(slots=True)
class Found:
    """A dump's entries as columns, and their forms in order."""

    calls: list[Call]
    numbers: list[int]  # order, seq, p2p_seq and created, one after the other
    own: list[int]
    forms: list[Form]


#: numbers of sizes, given as they come
_Numbers: TypeAlias = defaultdict[tuple[int, ...], int]


class Reader:
    """Reads the entries of one dump. `digits`: whether numbers are written as digits."""

    digits = False

    def __init__(self, forms: EntryForms, body: bytes, memo: dict[int, Any], entries: Entries) -> None:
        self.forms, self.body, self.memo, self.entries = forms, body, dict(memo), entries
        self.bound: dict[Form, Call] = {}
        self.calls: dict[Content, Call] = {}
        self.runs: dict[Stretch, tuple[list[Call], list[tuple[_Numbers, Picker]]]] = {}
        self.parsed = 0
        self.found = Found([], [], [], [])
        self.next_size = count().__next__
        self.sizes: dict[Ranks, _Numbers] = {}  # of different sizes, in the order in which they come

    def read(self, at: int, end: int) -> Found:
        """Return the entries between two places. Raises NotPlain."""
        body, bound, from_bytes = self.body, self.bound, int.from_bytes
        found = self.found
        followers = self.forms.first
        last: dict[Form, int] = {}  # at which place each form was met last
        period = repeated = 0  # so many forms before stands what stands here, of so many in a row
        while at < end:
            for form in followers:
                layout = form.layout
                if from_bytes(body[at : at + layout.length], "little") & layout.mask == form.value:
                    call = bound.get(form) or self.bind(form, at)
                    if call is not None:
                        break
            else:
                form, call = self._new(at, len(found.calls))
                layout = form.layout
                if form not in followers:
                    followers.insert(0, form)
                    del followers[MAX_FOLLOWERS:]
            if form.stretches:
                behind = self._stretches(form.stretches, at)
                if behind > at:
                    at, followers = behind, found.forms[-1].followers
                    continue
            place = len(found.forms)
            if not period or found.forms[-period] is not form:
                period, repeated = place - last.get(form, place), 0
            last[form] = place
            repeated += 1
            found.calls.append(call)
            found.forms.append(form)
            if repeated == period and 1 < period <= LONGEST:
                self.forms.repeated(found.forms[-period:])
            picked = layout.numbers.unpack_from(body, at)
            if self.digits and not b"".join(picked).isdigit():
                raise NotPlain
            if layout.own is not None:
                found.own.append(self._sizes(layout.own)[layout.sizes(picked)])
            found.numbers += picked if layout.taken is None else layout.taken(picked)
            at += layout.length
            followers = form.followers
        if at != end:
            raise NotPlain
        self._keep_sizes()
        return found

    def _keep_sizes(self) -> None:
        """Hand over the different sizes in the order in which they came. Raises NotPlain where a dump has no room for them."""
        room = sum(
            len(numbers) * (sum(map(sum, ranks)) + sum(map(len, ranks)))
            for ranks, numbers in self.sizes.items()
        )
        if not self.entries.tensors.room(room):
            raise NotPlain
        own = self.entries.own_sizes
        sizes = [
            (form, one, n)
            for form, numbers in [(own.number_of(ranks), numbers) for ranks, numbers in self.sizes.items()]
            for one, n in numbers.items()
        ]
        if len(self.sizes) > 1:
            sizes.sort(key=itemgetter(2))
        own.extend(
            [form for form, _, _ in sizes],
            self.whole(tuple(chain.from_iterable([one for _, one, _ in sizes]))),
        )

    def whole(self, numbers: tuple[Any, ...]) -> tuple[int, ...]:
        """Return numbers as they were picked out as whole numbers."""
        return numbers

    def _sizes(self, ranks: Ranks) -> _Numbers:
        """Return the numbers of the different sizes of one form."""
        known = self.sizes.get(ranks)
        if known is None:
            known = self.sizes[ranks] = _Numbers(self.next_size)
        return known

    def _stretches(self, stretches: list[Stretch], at: int) -> int:
        """Take the stretches that stand at `at`, and return where they end."""
        body, found, from_bytes = self.body, self.found, int.from_bytes
        for stretch in stretches:
            begin, length, mask, value = at, stretch.length, stretch.mask, stretch.value
            sign, sign_at = stretch.sign, stretch.sign_at
            while (
                body.startswith(sign, at + sign_at)
                and from_bytes(body[at : at + length], "little") & mask == value
            ):
                run = self.runs.get(stretch) or self._run(stretch)
                if run is None:
                    break
                calls, own = run
                picked = stretch.numbers.unpack_from(body, at)
                if self.digits and not b"".join(picked).isdigit():
                    raise NotPlain
                if own:
                    found.own += [numbers[pick(picked)] for numbers, pick in own]
                found.numbers += picked if stretch.taken is None else stretch.taken(picked)
                found.calls += calls
                found.forms += stretch.forms
                at += length
            if at > begin:
                return at
        return at

    def _run(self, stretch: Stretch) -> tuple[list[Call], list[tuple[_Numbers, Picker]]] | None:
        """Return the calls of a stretch and where its own sizes are; None where one of them refers to something else here."""
        calls = []
        for form in stretch.forms:
            call = self.bound.get(form) or self.bind(form, 0)
            if call is None:
                return None
            calls.append(call)
        own = [(self._sizes(ranks), pick) for ranks, pick in stretch.sizes]
        self.runs[stretch] = calls, own
        return calls, own

    def _new(self, at: int, before: int) -> tuple[Form, Call]:
        """Return the form of the entry at `at`, which was not expected there, and its call. `before`: so many were read."""
        self.parsed += 1
        if self.parsed > FREE_PARSES + before // PARSED_SHARE:
            raise NotPlain
        last = self.found.forms[-1].shape if before else None
        shapes = last.followers if last is not None else self.forms.first_shapes
        others = self.forms.shapes.values() if len(self.forms.shapes) <= TRIED else ()
        for shape in (*shapes, *others):
            known = len(shape.known)
            form = shape.form_at(self.body, at, self.memo)
            if form is None:
                continue
            if len(shape.known) > known:
                self.forms.renumbered(form)
            call = self.bound.get(form) or self.bind(form, at)
            if call is not None:
                break
        else:
            form, call = self.learnt(at)
        if form.shape is not None and form.shape not in shapes:
            shapes.insert(0, form.shape)
            del shapes[MAX_FOLLOWERS:]
        return form, call

    def group_of(self, value: dict[str, Any]) -> Any:
        """Return what an entry says of its group."""
        return value.get("process_group")

    def parsed_at(self, at: int) -> PlainEntry:
        """Return the entry at `at`. Raises NotPlain."""
        return parse(self.body, at, self.memo)

    def learnt(self, at: int) -> tuple[Form, Call]:
        """Return the form of the entry at `at`, which is not known, and its call."""
        entry = self.parsed_at(at)
        if not names_a_call(entry.value):
            raise NotPlain
        own = self.entries.call_of(entry.value, self.group_of(entry.value), None).own
        form = self.forms.learn(entry, self.body[at : at + entry.length], own)
        call = self.bind(form, at)
        if call is None:
            raise NotPlain
        return form, call

    def bind(self, form: Form, at: int) -> Call | None:
        """Return the call of a form in this dump, where it stands at `at`; None where it refers to something else here."""
        content, layout = form.content, form.layout
        call = self.calls.get(content)
        if call is None or layout.odd:
            call = self.call_of(form, at)
            if call is None:
                return None
            if call.own != (layout.own is not None):
                raise NotPlain
        if not content.puts:  # what is memoized is memoized once
            self.calls[content] = self.bound[form] = call
        return call

    def call_of(self, form: Form, at: int) -> Call | None:
        """Return a call for the content of a form, which stands at `at`; None where it refers to something else here."""
        content, memo = form.content, self.memo
        if list(map(memo.get, content.gets)) != list(content.gets.values()):
            return None
        if content.puts:
            if not memo.keys().isdisjoint(content.puts):
                return None
            memo.update(content.puts)
            for start, end, number in form.texts:
                memo[number] = self.body[at + start : at + end].decode()
        value = content.value
        names, frames = value.get("process_group"), value.get("frames")
        if content.pair is not None:
            names = memo.get(content.pair[0]), memo.get(content.pair[1])
            if type(names[0]) is not str or type(names[1]) is not str:
                raise NotPlain
        if content.frames is not None:
            frames = [self._new_frame(f) if isinstance(f, NewFrame) else memo.get(f) for f in content.frames]
            if set(map(type, frames)) != {dict}:
                raise NotPlain
        if form.layout.odd:
            look_at_entry({**value, "process_group": names, "frames": frames}, self.entries.oddities)
        return self.entries.call_of(value, names, frames)

    def _new_frame(self, frame: NewFrame) -> dict[str, Any]:
        """Return a frame that an entry writes, with this dump's texts in it."""
        texts = {
            key: self.memo.get(number)
            for key, number in zip(frame.made, frame.texts, strict=True)
            if number is not None
        }
        if not all(type(text) is str for text in texts.values()):
            raise NotPlain
        made = frame.made
        if any(made[key] != text for key, text in texts.items()):
            made = {**made, **texts}
            self.entries.stacks.own_frames.add(id(made))
        self.memo[frame.number] = made
        return made
