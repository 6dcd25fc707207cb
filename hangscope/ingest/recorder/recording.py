"""One rank's calls as compact columns: what every recorder (dump or text) is reduced to.

A recording is made where a file is read, often in a child process or on another machine, and crosses over as a
*wire* form of plain builtins (`dict`, `list`, `tuple`, `str`, `int`, `bytes`), which the reader loads without looking
up any global. A call costs 33 bytes there; what calls have in common (op, sizes, stack) is stored once per recording,
and what recordings have in common once per job (`members.py`).

The members of a collective may legally differ in some sizes, such as the splits of an all_to_all. A mixture-of-experts job issues thousands of such collectives on every rank, no two with equal sizes. If sizes were a part of their
kind, each would have its own. So the sizes are columns of numbers, and are put together only when those of one call are needed.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable
from dataclasses import field
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from hangscope.errors import Note
from hangscope.ingest.recorder.members import Interner, Members
from hangscope.model.codec import from_row, to_row
from hangscope.model.dataclass import dataclass

#: shapes of a call's inputs and of its outputs
Shapes: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
#: how many dimensions each input and each output has
Dimensions: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
#: these and all extents, one after the other
Flat: TypeAlias = tuple[Dimensions, tuple[int, ...]]


def may_differ(op: str) -> bool:
    """Return whether members of a collective may legally pass different sizes; `op` is the name that users know."""
    return op.startswith("all_to_all")


class OwnSizes:
    """The sizes of one recording's calls whose kind has none.

    `picks`: for each such call, in order, the index of its sizes among the distinct ones. For each of these, `form` is an index
    into `forms`, and `numbers` holds its extents, one after the other.
    """

    def __init__(self) -> None:
        self.picks: array[int] = array("i")
        self.forms: list[Dimensions] = []
        self.form: array[int] = array("i")
        self.numbers: array[int] = array("q")
        self._known: dict[Flat, int] = {}
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self.form)

    def add(self, sizes: Iterable[Flat]) -> list[int]:
        """Return the index of each of these sizes, adding those that are new."""
        indexes = [self._known.setdefault(one, len(self._known)) for one in sizes]
        for dimensions, numbers in islice(self._known, len(self.form), None):
            if dimensions not in self.forms:
                self.forms.append(dimensions)
            self.form.append(self.forms.index(dimensions))
            self.numbers.extend(numbers)
        return indexes

    def of(self, index: int) -> Shapes:
        """Return sizes by their index."""
        if len(self._starts) <= len(self.form):
            self._starts = list(accumulate(self._counts(), initial=0))
        inputs, outputs = self.forms[self.form[index]]
        ends = list(accumulate((*inputs, *outputs), initial=self._starts[index]))
        shapes = [tuple(self.numbers[a:b]) for a, b in pairwise(ends)]
        return tuple(shapes[: len(inputs)]), tuple(shapes[len(inputs) :])

    def _counts(self) -> list[int]:
        counts = [sum(map(sum, dimensions)) for dimensions in self.forms]
        return [counts[form] for form in self.form]

    @property
    def consistent(self) -> bool:
        """Return whether every pick has sizes, and every size its numbers."""
        return (
            all(n >= 0 for dimensions in self.forms for part in dimensions for n in part)
            and all(0 <= form < len(self.forms) for form in self.form)
            and sum(self._counts()) == len(self.numbers)
            and all(0 <= pick < len(self.form) for pick in self.picks)
        )

    def to_wire(self) -> tuple[bytes, list[Dimensions], bytes, bytes]:
        """Return the plain-builtins form."""
        return self.picks.tobytes(), self.forms, self.form.tobytes(), self.numbers.tobytes()

    @classmethod
    def from_wire(cls, wire: Any) -> OwnSizes:
        """Return what `to_wire` wrote."""
        own = cls()
        picks, own.forms, form, numbers = wire
        own.picks, own.form, own.numbers = array("i", picks), array("i", form), array("q", numbers)
        return own


def flat(inputs: Any, outputs: Any) -> Flat:
    """Return shapes as their dimensions and their extents, one after the other."""
    dimensions = tuple(map(len, inputs)), tuple(map(len, outputs))
    return dimensions, tuple(n for shapes in (inputs, outputs) for shape in shapes for n in shape)


WIRE_VERSION = 4

if TYPE_CHECKING:
    Column: TypeAlias = array[int]
else:  # before Python 3.12 an array is no generic type
    Column = array
Sizes = tuple[tuple[int, ...], ...]
#: (op, backend, input_sizes, output_sizes, input_dtypes, output_dtypes, src, dst, stack index, root)
KindRow = tuple[
    str, str, Sizes, Sizes, tuple[str, ...], tuple[str, ...], int | None, int | None, int, int | None
]
#: ((function, file, line), ...), innermost first
StackRow = tuple[tuple[str, str, int], ...]

# One letter per column: the `array` typecode on the wire.
COLUMNS = {
    "group": "i",  # index into `groups`
    "seq": "q",  # collective_seq_id, or p2p_seq_id for a point-to-point call
    "kind": "i",  # index into `kinds`
    "state": "b",  # incident.State
    "created": "q",  # ns, 0 where unknown
    "order": "q",  # the rank's running number over all its groups
}
#: Fields that cross over as they are.
_PLAIN = ("source", "version", "rank", "host", "pid", "attempt", "local_rank", "task", "library", "groups")
#: ns when the recorder noticed the completion, 0 where it did not; a column of recordings that were read for it.
COMPLETED = "completed"
#: the running number of each call among all operations of its group, of recordings that keep only some of them (gloo's: no send or receive)
ISSUED = "issued"
#: Columns that no two ranks have in common.
_OWN_COLUMNS = frozenset({"created", COMPLETED})


def _index(known: dict[Any, int], rows: list[Any], row: Any) -> int:
    """Return the index of a row, adding it when it is new."""
    index = known.setdefault(row, len(rows))
    if index == len(rows):
        rows.append(row)
    return index


@dataclass(slots=True)
class Recording:
    """The calls of one rank (or one process whose rank is not known yet).

    `groups`: (local pg id, name, desc) per local group; `config`: name -> (desc, member ranks or None);
    `status`: local pg id -> (last enqueued, started, completed), -1 for none yet. `rank` is global, None where the content
    does not say. `source` is flight_recorder, detail_log or nccl_log. `own_sizes`: of the calls whose members may legally
    differ in them (`own_sizes.may_differ`), whose kinds then have none; None where kinds have them all. `library` is the version of
    the communication library, where a dump holds it.
    """

    source: str
    version: str = ""
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    groups: list[tuple[str, str, str]] = field(default_factory=list)
    config: dict[str, tuple[str, tuple[int, ...] | None]] = field(default_factory=dict)
    status: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    kinds: list[KindRow] = field(default_factory=list)
    stacks: list[StackRow] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=lambda: {k: array(t) for k, t in COLUMNS.items()})
    notes: list[Note] = field(default_factory=list)
    attempt: int | None = None
    local_rank: int | None = None
    task: int | None = None
    own_sizes: OwnSizes | None = None
    library: str = ""
    _kind_index: dict[Any, int] = field(default_factory=dict, repr=False)
    _stack_index: dict[StackRow, int] = field(default_factory=dict, repr=False)
    _group_index: dict[tuple[str, str, str], int] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.columns["seq"])

    def group(self, local_id: str, name: str, desc: str) -> int:
        """Return the index of a local group, adding it when it is new."""
        return _index(self._group_index, self.groups, (local_id, name, desc))

    def stack(self, frames: StackRow) -> int:
        """Return the index of a stack, adding it when it is new."""
        return _index(self._stack_index, self.stacks, frames)

    def kind(self, row: KindRow) -> int:
        """Return the index of a call kind, adding it when it is new."""
        return _index(self._kind_index, self.kinds, row)

    def add(
        self, *, group: int, seq: int, kind: int, state: int, created: int = 0, order: int | None = None
    ) -> None:
        """Append one call; `order` defaults to the number of calls so far."""
        c = self.columns
        c["order"].append(len(c["seq"]) if order is None else order)
        c["group"].append(group)
        c["seq"].append(seq)
        c["kind"].append(kind)
        c["state"].append(state)
        c["created"].append(created)

    def to_wire(self) -> dict[str, Any]:
        """Return the plain-builtins form."""
        return {
            "wire": WIRE_VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "config": {
                name: (desc, Members.of(ranks).runs if ranks else None)
                for name, (desc, ranks) in self.config.items()
            },
            "status": self.status,
            # Of one role, all ranks have the same; as bytes it is compared without being loaded.
            "calls": pickle.dumps((self.kinds, self.stacks), protocol=5),
            "columns": {name: column.tobytes() for name, column in self.columns.items()},
            "own_sizes": None if self.own_sizes is None else self.own_sizes.to_wire(),
            "notes": to_row(self.notes),
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any], interner: Interner | None = None) -> Recording:
        """Return the recording that `to_wire` wrote; with one interner for a job, what ranks share is kept once.

        Columns, kinds and stacks of the result must not be changed.
        """
        interner = interner or Interner()
        recording = cls(**{name: wire[name] for name in _PLAIN if name in wire or name != "library"})
        recording.config = {
            name: (desc, interner.members(runs) if runs else None)
            for name, (desc, runs) in wire["config"].items()
        }
        left_out = sum(bool(runs) and not recording.config[n][1] for n, (_, runs) in wire["config"].items())
        recording.status = wire["status"]
        recording.kinds, recording.stacks = interner.table(wire["calls"])
        for name, data in wire["columns"].items():
            code = COLUMNS.get(name, "q")
            recording.columns[name] = (
                array(code, data) if name in _OWN_COLUMNS else interner.column(code, data)
            )
        recording.own_sizes = OwnSizes.from_wire(wire["own_sizes"]) if wire["own_sizes"] else None
        recording.notes = from_row(list[Note], wire["notes"])
        if left_out:
            text = f"the members of {left_out:,} groups were not taken: all files together list more than any job has"
            recording.notes.append(Note("too_many_members", text, hint="a file is damaged or forged"))
        return recording
