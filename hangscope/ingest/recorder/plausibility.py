"""Whether the values of a dump are such as a recorder writes.

A value that is not is read as far as possible. It shows that the file was damaged or changed after it was written, so other values
may have changed, too, and no verdict may rest on the file alone. Missing keys, and keys that a later version adds, are plausible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, pairwise
from operator import ge
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.values import LIMIT, STATES, Numbers
from hangscope.model.regex import regex

_VERSION = regex(r"\d{1,4}(?:\.\d{1,4}){0,3}")
#: a backend and what it does: `nccl:all_reduce`, `nccl:recv 0<-1`
_NAME = regex(r"[\w.+-]{1,60}:[^\[\]{}()\x00-\x1f\x7f]{1,338}")
# c10/core/ScalarType.h; newer types are named like its Float8_e5m2 and UInt4. Other writers of dumps spell them `float32`.
_TYPE = regex(
    r"Byte|Char|Short|Int|Long|Half|Float|Double|Bool|Complex(?:Half|Float|Double)"
    r"|(?:B?Float|Q?U?Int|Bits)\d\w{0,20}|[a-z][\w:.]{0,59}"
)
_MEMBERS = regex(r"\[[\d, ]*\]")
_NUMBER = regex(r"-?\d{1,19}")
_IN_PLACE = (":all_reduce", ":broadcast", ":barrier", ":all_reduce_barrier")  # their outputs are their inputs
_SHOWN = 60  # characters of a value in a note

_Check = Callable[[Any], bool]


class Implausible:
    """Keeps the first value of one dump that no recorder writes."""

    def __init__(self) -> None:
        self._first = ""

    def add(self, key: Any, value: Any) -> None:
        """Record a value that no recorder writes; the first one is quoted."""
        if not self._first:
            shown = repr(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
            self._first = f"`{str(key)[:_SHOWN]}` is {shown[:_SHOWN]}"

    def check(self, row: Mapping[Any, Any], fits: Mapping[str, _Check]) -> None:
        """Take note of a key that is no text, or of a value that does not fit its key."""
        for key, value in row.items():
            if not isinstance(key, str):
                self.add("a key", key)
            elif key in fits and not fits[key](value):
                self.add(key, value)

    def notes(self) -> Iterator[Note]:
        """Yield a note on the value, if there is one."""
        if self._first:
            hint = "the file was damaged or changed after it was written; copy it again from where the job wrote it"
            yield Note("odd_values", f"contains a value that no recorder writes: {self._first}", hint=hint)


def _is(*types: type) -> _Check:
    return lambda value: isinstance(value, types)


def _each(fits: _Check) -> _Check:
    return lambda value: isinstance(value, (list, tuple)) and all(map(fits, value))


def _matches(pattern: Any) -> _Check:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_number(value: Any, least: int = 0) -> bool:
    """Return whether a value is a whole number, which JSON may contain as text."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    return type(value) is int and least <= value < LIMIT


def _are_members(value: Any) -> bool:
    return _matches(_MEMBERS)(value) or (isinstance(value, list) and all(map(_is_number, value)))


_is_text, _is_count = _is(str), partial(_is_number, least=-1)
_TOP: dict[str, _Check] = {
    **dict.fromkeys(("comm_lib_version", "nccl_version"), _is_text),
    **dict.fromkeys(("pg_config", "pg_status"), _is(dict)),
    "version": _matches(_VERSION),
}
_GROUP: dict[str, _Check] = {"name": _is_text, "desc": _is_text, "ranks": _are_members}
_FRAME: dict[str, _Check] = {"name": _is_text, "filename": _is_text, "line": _is_count}
_ENTRY: dict[str, _Check] = {
    "profiling_name": _matches(_NAME),
    "process_group": _each(_is_text),
    "state": lambda value: isinstance(value, str) and value.lower() in STATES,
    "frames": _is(list),
    "thread_name": _is_text,
    **dict.fromkeys(("is_p2p", "retired"), _is(bool)),
    **dict.fromkeys(("input_sizes", "output_sizes"), _each(_each(_is_number))),
    **dict.fromkeys(("input_dtypes", "output_dtypes"), _each(_matches(_TYPE))),
    **dict.fromkeys(
        ("pg_id", "record_id", "collective_seq_id", "p2p_seq_id", "seq_id", "time_created_ns", "timeout_ms"),
        _is_number,
    ),
}


def check_top(top: dict[Any, Any], found: Implausible) -> None:
    """Check the values of a dump except its entries."""
    found.check(top, _TOP)
    for key in ("pg_config", "pg_status"):
        rows = top.get(key)
        for name, row in rows.items() if isinstance(rows, dict) else ():
            if not isinstance(name, str) or not isinstance(row, dict):
                found.add(key, row if isinstance(name, str) else name)
            else:
                found.check(row, _GROUP if key == "pg_config" else dict.fromkeys(row, _is_count))


def check_entry(entry: dict[Any, Any], found: Implausible) -> None:
    """Check what an entry has in common with others, except its frames; the numbers of all entries are checked together."""
    found.check({key: value for key, value in entry.items() if value is not None}, _ENTRY)
    name = entry.get("profiling_name")
    if isinstance(name, str) and name.endswith(_IN_PLACE):
        for ins, outs in (("input_sizes", "output_sizes"), ("input_dtypes", "output_dtypes")):
            if ins in entry and outs in entry and entry[ins] != entry[outs]:
                found.add(f"{outs} of {name[:40]}", entry[outs])


def check_frame(frame: dict[Any, Any], found: Implausible) -> None:
    """Check a frame, which needs all of its keys."""
    found.check({key: frame.get(key) for key in _FRAME}, _FRAME)


def check_numbers(numbers: Sequence[Numbers], found: Implausible, *, complete: bool) -> None:
    """Check the numbers of a dump's entries, oldest first.

    A `complete` dump has all entries of the recorder's buffer; a dump of pending calls lacks those between them.
    """
    if not numbers:
        return
    columns = orders, _, _, times = list(zip(*numbers, strict=True))
    if (least := min(map(min, columns))) < 0:
        found.add("a number of an entry", least)
    for after in compress(orders[1:], map(ge, orders, orders[1:])):
        found.add("record_id", after)
    if complete and orders[-1] - orders[0] >= len(orders):
        before, after = next(pair for pair in pairwise(orders) if pair[1] - pair[0] > 1)
        found.add(f"record_id after {before}", after)
    if min(times) <= 0 < max(times):
        found.add("time_created_ns", min(times))


def check_seqs(seqs: Iterable[tuple[int, int]], found: Implausible) -> None:
    """Check the (group, seq) of a dump's collectives, oldest first.

    Where a group's numbers grow by two, the one between them must be the number between: DETAIL leaves numbers out, and members of a
    coalesced call share theirs, but no recorder writes 12, 14, 14 or 12, 4, 14.
    """
    by_group: dict[int, list[int]] = {}
    for group, seq in seqs:
        by_group.setdefault(group, []).append(seq)
    for numbers in by_group.values():
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            if numbers[0] < 1:
                found.add("collective_seq_id", numbers[0])
            continue
        for before, between, after in zip(numbers, numbers[1:], numbers[2:], strict=False):
            if after - before == 2 and between != before + 1:
                found.add("collective_seq_id", between)
                return
