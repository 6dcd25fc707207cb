"""Whether the values of a dump are what a recorder writes.

One that is not is read as far as it goes, and shows that the file was damaged or changed after it was written: then its other values
may have been as well, and nothing may rest on them alone. Keys that are missing, or that a later version adds, are no oddity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import compress, pairwise
from operator import ge, not_
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.values import STATES
from hangscope.model.regex import regex

_VERSION = regex(r"\d{1,4}(?:\.\d{1,4}){0,3}")
_TYPE = regex(r"[\w:.]{1,60}")
_MEMBERS = regex(r"\[[\d, ]*\]")
_NUMBER = regex(r"-?\d{1,19}")
_LARGEST = 2**62
_FEW = 16  # groups, so many that going through all calls for each is the quicker way
_BYTE = 256
_IN_PLACE = (":all_reduce", ":broadcast", ":barrier", ":all_reduce_barrier")  # their outputs are their inputs


class Oddities:
    """Keeps the first value of one dump that no recorder writes."""

    def __init__(self) -> None:
        self.first = ""

    def add(self, where: str, value: Any) -> None:
        """Take note of one value."""
        if not self.first:
            told = repr(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
            self.first = f"`{where}` is {told[:60]}"

    def note(self) -> Note | None:
        """Return what is to be said of it."""
        if not self.first:
            return None
        return Note(
            "odd_values",
            f"holds what no recorder writes: {self.first}",
            hint="it was damaged or changed after it was written; copy it again from where the job wrote it",
        )


def look_at_top(top: dict[Any, Any], found: Oddities) -> None:
    """Look at what stands in a dump beside its entries."""
    for key in top:
        if not isinstance(key, str):
            found.add("a key", key)
    for key in ("comm_lib_version", "nccl_version"):
        if not isinstance(top.get(key, ""), str):
            found.add(key, top[key])
    version = top.get("version", "1.0")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        found.add("version", version)
    for key, look in (("pg_config", _look_at_group), ("pg_status", _look_at_status)):
        value = top.get(key, {})
        if not isinstance(value, dict):
            found.add(key, value)
            continue
        for name, item in value.items():
            if not isinstance(name, str) or not isinstance(item, dict):
                found.add(key, item if isinstance(name, str) else name)
            else:
                look(item, found)


def _look_at_group(item: dict[Any, Any], found: Oddities) -> None:
    for key, value in item.items():
        if not isinstance(key, str):
            found.add("pg_config", key)
        elif (key in ("name", "desc") and not isinstance(value, str)) or (
            key == "ranks" and not _are_members(value)
        ):
            found.add(key, value)


def _are_members(value: Any) -> bool:
    if isinstance(value, str):
        return _MEMBERS.fullmatch(value) is not None
    return isinstance(value, list) and all(type(rank) is int and rank >= 0 for rank in value)


def _look_at_status(item: dict[Any, Any], found: Oddities) -> None:
    for key, value in item.items():
        if not isinstance(key, str) or not _is_number(value, -1):
            found.add(str(key)[:40], value)


def look_at_entry(entry: dict[Any, Any], found: Oddities) -> None:
    """Look at what an entry has in common with others; its numbers are looked at together."""
    for key, value in entry.items():
        fits = _FITS.get(key) if isinstance(key, str) else None
        if not isinstance(key, str) or (fits is not None and value is not None and not fits(value)):
            found.add(str(key)[:40], value)
    name = entry.get("profiling_name")
    if isinstance(name, str) and name.endswith(_IN_PLACE):
        for one, other in (("input_sizes", "output_sizes"), ("input_dtypes", "output_dtypes")):
            if one in entry and other in entry and entry[one] != entry[other]:
                found.add(f"{other} of {name[:40]}", entry[other])


def is_odd(entry: dict[Any, Any]) -> bool:
    """Return whether an entry holds a value that no recorder writes."""
    found = Oddities()
    look_at_entry(entry, found)
    return bool(found.first)


def _is_number(value: Any, least: int = 0) -> bool:
    """Return whether a value is a whole number, which JSON may give as text."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    return type(value) is int and least <= value < _LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) < 400


def _is_group(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def _is_state(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in STATES


def _are_sizes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(shape, (list, tuple)) and all(_is_number(n) for n in shape) for shape in value
    )


def _are_types(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(name, str) and _TYPE.fullmatch(name) for name in value
    )


def _are_frames(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(frame, dict)
        and isinstance(frame.get("name"), str)
        and isinstance(frame.get("filename"), str)
        and _is_number(frame.get("line"), -1)
        for frame in value
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    "profiling_name": _is_name,
    "process_group": _is_group,
    "pg_id": _is_number,
    "state": _is_state,
    "input_sizes": _are_sizes,
    "output_sizes": _are_sizes,
    "input_dtypes": _are_types,
    "output_dtypes": _are_types,
    "frames": _are_frames,
    "is_p2p": _is_flag,
    "retired": _is_flag,
    "thread_name": _is_text,
    "record_id": _is_number,
    "collective_seq_id": _is_number,
    "p2p_seq_id": _is_number,
    "seq_id": _is_number,
    "time_created_ns": _is_number,
    "timeout_ms": _is_number,
}


def look_at_numbers(numbers: Sequence[int], found: Oddities, *, whole: bool = True) -> None:
    """Look at the numbers of a dump's entries, oldest first: order, seq, p2p_seq and created of each, one after the other.

    A `whole` dump has all entries of the ring buffer; one of the calls in flight alone leaves out those between them.
    """
    if numbers and min(numbers) < 0:
        found.add("a number of an entry", min(numbers))
    orders = numbers[0::4]
    back = next(_falls(orders), None)
    if back is not None:
        found.add("record_id", orders[back + 1])
    elif whole and orders and orders[-1] - orders[0] >= len(orders) and not found.first:
        before, after = next(pair for pair in pairwise(orders) if pair[1] - pair[0] > 1)
        found.first = f"`record_id` {after} follows {before}"
    times = numbers[3::4]
    if times and min(times) <= 0 < max(times):
        found.add("time_created_ns", min(times))


def _falls(numbers: Sequence[int]) -> Iterator[int]:
    """Yield the positions of numbers behind which one that is not greater follows."""
    return (place for place, falls in enumerate(map(ge, numbers, numbers[1:])) if falls)


@cache
def _only(byte: int) -> bytes:
    """Return what translates one byte to 1 and all others to 0."""
    return bytes(other == byte for other in range(_BYTE))


def _by_group(groups: Sequence[int], seqs: Sequence[int]) -> Iterator[list[int]]:
    """Yield the seqs of each group, the group of the first call first."""
    different = dict.fromkeys(groups)
    if len(different) <= _FEW and max(different, default=0) < _BYTE:
        small = bytes(iter(groups))
        for group in different:
            yield list(compress(seqs, small.translate(_only(group))))
        return
    found: dict[int, list[int]] = {}
    for group, seq in zip(groups, seqs, strict=True):
        found.setdefault(group, []).append(seq)
    yield from found.values()


def look_at_seqs(groups: Sequence[int], seqs: Sequence[int], p2p: Sequence[bool], found: Oddities) -> None:
    """Look at the seqs of a dump's calls, oldest first, each with its group and whether it is a send or receive.

    Where a group's numbers go on by two, the one between them is the one between: DETAIL leaves numbers out, and members of a
    coalesced call share theirs, but no recorder writes 12, 14, 14 or 12, 4, 14.
    """
    if True in p2p:
        collective = list(map(not_, p2p))
        groups, seqs = list(compress(groups, collective)), list(compress(seqs, collective))
    for numbers in _by_group(groups, seqs):
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            if numbers[0] < 1:
                found.add("collective_seq_id", numbers[0])
            continue
        for before, between, after in zip(numbers, numbers[1:], numbers[2:], strict=False):
            if after - before == 2 and between != before + 1:
                found.add("collective_seq_id", between)
                return
