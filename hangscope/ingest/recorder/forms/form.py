"""The form of an entry: what entries have in common as bytes, and where their numbers stand."""

from __future__ import annotations

import struct
from dataclasses import field
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from hangscope.ingest.recorder.calls.own_sizes import Ranks
from hangscope.ingest.recorder.forms.entry_parts import SIZES, Field, NewFrame, NotPlain, PlainEntry
from hangscope.ingest.recorder.forms.stretches import Picker, Stretch, picker
from hangscope.ingest.recorder.odd_values import is_odd
from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.ingest.recorder.forms.shapes import Shape

TENSORS = 64  # of a call with sizes of its own; more of them make more forms than they save
_TAKEN = ("record_id", "collective_seq_id", "p2p_seq_id", "time_created_ns")


@dataclass(slots=True, eq=False)
class Content:
    """What entries say apart from their numbers, and what they take from and give to the memo for it: one call of a dump.

    `value` is the first of them, the others are as in `PlainEntry`. `renumbered` are the same with other memo numbers, by the old
    and the new ones in their order.
    """

    value: dict[str, Any]
    gets: dict[int, Any]
    puts: dict[int, Any]
    pair: tuple[int, int] | None
    frames: tuple[int | NewFrame, ...] | None
    renumbered: dict[tuple[tuple[int, ...], tuple[int, ...]], Content] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: PlainEntry) -> Content:
        """Return the content of an entry."""
        return cls(entry.value, entry.gets, entry.puts, entry.pair, entry.frames)


@dataclass(slots=True, eq=False)
class Layout:
    """Where the numbers stand in entries of one length.

    `steady` is the mask under which entries are equal in everything but times. `own` says of how many dimensions the tensors
    are, where its calls have sizes of their own; None where they have not. `odd` holds where a value is none that a recorder
    writes: names and frames that differ between dumps are text in all of them, so what holds of one entry holds of all.
    `places` says which of the numbers are order, seq, p2p_seq and created, `taken` picks these (None: there are no others);
    `extents` says which are its sizes, `sizes` picks them.
    """

    length: int
    mask: int
    steady: bytes
    numbers: struct.Struct
    created: int
    places: tuple[int, ...]
    taken: itemgetter[Any] | None
    extents: tuple[int, ...]
    sizes: Picker
    own: Ranks | None
    odd: bool


@dataclass(slots=True, eq=False)
class Form:
    """What entries have in common as bytes: `value` is what they are under the mask, `texts` are as in `PlainEntry`."""

    layout: Layout
    value: int
    content: Content
    texts: list[tuple[int, int, int]]
    shape: Shape | None = None
    followers: list[Form] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


def content_key(entry: PlainEntry, own: bool) -> str:
    """Return what is equal for entries of one content; `own`: whether sizes are their own."""
    left_out = {number.key for number in (*entry.numbers, *entry.times)}
    left_out.update(SIZES if own else ())
    left_out.update(
        key for key, known in (("process_group", entry.pair), ("frames", entry.frames)) if known is not None
    )
    said = [(key, value) for key, value in entry.value.items() if key not in left_out]
    return repr((said, entry.gets, entry.puts, entry.pair, entry.frames))


def layout_of(entry: PlainEntry, own: bool) -> Layout:
    """Return the layout of an entry; `own`: whether sizes are its own. Raises NotPlain where it lacks a number that is taken of every call."""
    taken: dict[str, Field] = {}
    mask, steady = bytearray(b"\xff") * entry.length, bytearray(b"\xff") * entry.length
    for number in (*entry.numbers, *entry.times):
        taken[number.key] = number
        mask[number.start : number.end] = number.mask
    for time in entry.times:
        steady[time.start : time.end] = bytes(time.end - time.start)
        if time.form == "q":
            mask[time.end - 1] = steady[time.end - 1] = (
                0xC0  # neither negative nor beyond 2^62, like this one
            )
    if entry.thread is not None:
        start, end = entry.thread
        mask[start:end] = steady[start:end] = b"\x80" * (end - start)  # other texts, too, are ASCII
    for start, end, _ in entry.texts:
        mask[start:end] = b"\x80" * (end - start)
    wanted = [taken[key] for key in _TAKEN if key in taken]
    ranks = _ranks(entry) if own else None
    sizes = entry.sizes if own else []
    for size in sizes:
        mask[size.start : size.end] = size.mask
    others = [one for key, one in taken.items() if key not in _TAKEN and one.is_text]
    fields = sorted([*wanted, *sizes, *others], key=attrgetter("start"))
    ends = [0, *(one.end for one in fields)]
    gaps = [one.start - end for end, one in zip(ends, fields, strict=False)]
    if len(wanted) < len(_TAKEN) or min(gaps) < 0:
        raise NotPlain
    places = tuple(map(fields.index, wanted))
    return Layout(
        length=entry.length,
        mask=int.from_bytes(mask, "little"),
        steady=bytes(steady),
        numbers=struct.Struct(
            "<" + "".join(f"{gap}x{one.form}" for gap, one in zip(gaps, fields, strict=True))
        ),
        created=taken["time_created_ns"].start,
        places=places,
        taken=None if places == tuple(range(len(fields))) else itemgetter(*places),
        extents=(extents := tuple(map(fields.index, sizes))),
        sizes=picker(extents),
        own=ranks,
        odd=is_odd(entry.value),
    )


def _ranks(entry: PlainEntry) -> Ranks:
    """Return of how many dimensions an entry's inputs and outputs are. Raises NotPlain where they are no plain shapes."""
    both = []
    for key in ("input_sizes", "output_sizes"):
        shapes = entry.value.get(key, [])
        if not isinstance(shapes, list) or len(shapes) > TENSORS:
            raise NotPlain
        for shape in shapes:
            if not isinstance(shape, list) or len(shape) > TENSORS or not all(type(n) is int for n in shape):
                raise NotPlain
        both.append(tuple(map(len, shapes)))
    if sum(map(sum, both)) != len(entry.sizes):
        raise NotPlain
    return both[0], both[1]
