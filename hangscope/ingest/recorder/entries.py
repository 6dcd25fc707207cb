"""The entries of a recorder's dump as rows of a Recording."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.calls import Batches, Call, Key, KindRows, Row
from hangscope.ingest.recorder.plausibility import Implausible, check_entry, check_numbers, check_seqs
from hangscope.ingest.recorder.recording import COLUMNS, COMPLETED, ISSUED, Flat, Recording
from hangscope.ingest.recorder.values import LIMIT, Numbers, as_group, as_int, as_key, as_text
from hangscope.model.incident import State

#: keys whose values are equal in entries of one call
PARTS = (
    "frames", "profiling_name", "state", "pg_id", "process_group", "is_p2p", "retired", "input_dtypes", "output_dtypes",
)  # fmt: skip
SIZES = ("input_sizes", "output_sizes")
_NUMBERS = ("record_id", "collective_seq_id", "seq_id", "p2p_seq_id", "time_created_ns")


class EntryTable:
    """The columns of a dump. Its entries are large, so each is looked at once for all keys."""

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self.entries = entries
        keys = [key for key in (*PARTS, *SIZES, *_NUMBERS) if any(key in entry for entry in entries)]
        try:
            rows = list(map(itemgetter(*keys), entries)) if keys else []
        except KeyError:  # some entries lack some keys
            rows = [tuple(map(entry.get, keys)) for entry in entries]
        self._columns = dict(zip(keys, zip(*rows, strict=True), strict=bool(rows)))

    def parts(self) -> Iterator[tuple[Any, ...]]:
        """Return what each entry has in common with others of its call, first its frames, if the dump has any."""
        return zip(*(self._columns[key] for key in PARTS if key in self._columns), strict=True)

    def sizes(self) -> Iterator[tuple[Any, ...]]:
        """Return the input and output sizes of each entry."""
        missing = [None] * len(self.entries)
        return zip(*(self._columns.get(key, missing) for key in SIZES), strict=True)

    def numbers(self) -> list[Numbers]:
        """Return the numbers of each entry; before version 2.0 `seq_id` counted collectives, sends and receives together."""
        none = [0] * len(self.entries)
        seqs = self._whole("collective_seq_id", self._whole("seq_id", none))
        orders = self._whole("record_id", range(len(none)))
        p2p_seqs, created = self._whole("p2p_seq_id", seqs), self._whole("time_created_ns", none)
        return list(zip(orders, seqs, p2p_seqs, created, strict=True))

    def _whole(self, key: str, missing: Sequence[int]) -> Sequence[int]:
        """Return a column of whole numbers; an entry without a valid one gets the number in `missing`."""
        values = self._columns.get(key, missing)
        if set(map(type, values)) == {int} and min(values) > -LIMIT and max(values) < LIMIT:
            return values
        return list(map(as_int, values, missing))


_EXPECTED = 4  # calls that an entry is compared with before it is looked up


def names_a_call(entry: Any) -> bool:
    """Return whether an entry names an operation and its group; an entry with less is no record of a call."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("profiling_name"), str)
        and ("pg_id" in entry or "process_group" in entry)
    )


class Entries:
    """Adds the entries of one dump to its recording. `kept` are the indexes of the entries that became rows."""

    def __init__(self, recording: Recording) -> None:
        self.kept: Sequence[int] = ()
        self._recording = recording
        self._implausible = Implausible()
        self.kinds = KindRows(recording, self._implausible)
        self._calls: dict[Any, Call] = {}

    def reduce(self, entries: list[Any], *, completions: bool = False) -> None:
        """Add the rows of a dump's entries, oldest first; with `completions` also the times at which they completed."""
        whole = [entry for entry in entries if names_a_call(entry)]
        if len(whole) < len(entries):
            what = f"{len(entries) - len(whole)} of {len(entries)} entries are not recorder entries and were skipped"
            self._recording.notes.append(Note("malformed_entries", what))
        table = EntryTable(whole)
        calls = list(self._calls_of(table))
        sizes = zip(calls, table.sizes(), strict=True)
        own = [self.kinds.own(*both) for call, both in sizes if call.own_sizes]
        self.add(calls, table.numbers(), own)
        if completions:
            times = [as_int(whole[index].get("time_discovered_completed_ns")) for index in self.kept]
            self._recording.columns[COMPLETED] = array("q", times)
        if any(call.backend == "gloo" for call in self._calls.values()):
            self._count_operations(whole)

    def _count_operations(self, entries: Sequence[dict[str, Any]]) -> None:
        """Keep the running numbers of gloo's operations, where they count sends and receives that are no entries.

        `op_id` of an entry and `pg_status` count all operations of the group (ProcessGroupGloo.cpp, torch 2.13): the numbers of the status
        are replaced by those of the last collective up to there.
        """
        recording, columns = self._recording, self._recording.columns
        issued = array("q", [as_int(entries[index].get("op_id")) for index in self.kept])
        if issued == columns["seq"] or min(issued, default=0) <= 0:
            return
        columns[ISSUED] = issued
        for local_id, status in recording.status.items():
            own = [i for i, group in enumerate(columns["group"]) if recording.groups[group][0] == local_id]
            if own:
                enqueued, completed = (
                    max((columns["seq"][i] for i in own if issued[i] <= number), default=0)
                    for number in (status[0], status[2])
                )
                recording.status[local_id] = (enqueued, status[1], completed)

    def add(self, calls: Sequence[Call], numbers: Sequence[Numbers], own: Sequence[Flat]) -> None:
        """Add entries, oldest first: the call and the numbers of each, and the sizes of those with own sizes."""
        distinct = dict.fromkeys(calls)
        complete = any(call.state == State.DONE or call.backend == "gloo" for call in distinct)
        check_numbers(numbers, self._implausible, complete=complete)
        if any(call.is_p2p or call.ends_batch or call.backend == "gloo" for call in distinct):
            sizes = iter(self.kinds.own_sizes.add(own))
            both = zip(calls, numbers, strict=True)
            self._add_with_batches([Row(c, *n, next(sizes) if c.own_sizes else -1) for c, n in both])
        else:
            self._add(calls, numbers)
            self.kinds.own_sizes.picks.extend(self.kinds.own_sizes.add(own))
        self._finish()

    def _calls_of(self, table: EntryTable) -> Iterator[Call]:
        """Yield the call of each entry.

        Training repeats itself: two calls in a row are followed by what followed them before. So an entry is first compared with that,
        which takes a fraction of the time of looking it up.
        """
        followers: dict[Any, list[tuple[Any, Any, Call]]] = defaultdict(list)
        before: Call | None = None
        last: Call | None = None
        for entry, parts, sizes in zip(table.entries, table.parts(), table.sizes(), strict=True):
            expected = followers[before, last]
            for its_parts, its_sizes, its_call in expected:
                if its_parts == parts and (its_sizes is None or its_sizes == sizes):
                    call = its_call
                    break
            else:
                call = self._call(entry, parts, sizes)
                expected.insert(0, (parts, None if call.own_sizes else sizes, call))
                del expected[_EXPECTED:]
            before, last = last, call
            yield call

    def _call(self, entry: dict[str, Any], parts: tuple[Any, ...], sizes: tuple[Any, ...]) -> Call:
        frames, *others = parts if isinstance(parts[0], list) else ((), *parts)
        key = tuple(map(id, frames)), as_key(others)
        with_sizes = key, as_key(sizes)
        call = self._calls.get(key) or self._calls.get(with_sizes)
        if call is None:
            call = self.new_call(entry)
            self._calls[key if call.own_sizes else with_sizes] = call
        return call

    def new_call(self, entry: dict[str, Any], *, checked: bool = False) -> Call:
        """Return a call for an entry; `checked`: its values are known to be plausible."""
        if not checked:
            check_entry(entry, self._implausible)
        local_id, group = as_text(entry.get("pg_id", "")), entry.get("process_group")
        name, desc = as_group(group)
        if not (isinstance(group, (list, tuple)) and group):
            # before `process_group` existed only the local id identified a group; 0 is always the default group
            name = local_id or "0"
        return Call.of(entry, local_id, self._recording.group(local_id, name, desc))

    def _add(self, calls: Sequence[Call], numbers: Sequence[Numbers]) -> None:
        """Add entries that are all collectives, each with its own state."""
        kinds = {call: self.kinds.of(call) for call in dict.fromkeys(calls)}
        order, seq, _, created = zip(*numbers, strict=True) if calls else ((),) * 4
        columns: dict[str, Sequence[int]] = {
            "group": [call.group for call in calls],
            "seq": seq,
            "kind": list(map(kinds.__getitem__, calls)),
            "state": [call.state for call in calls],
            "created": created,
            "order": order,
        }
        for key, column in columns.items():
            self._recording.columns[key].extend(array(COLUMNS[key], column))
        self.kept = range(len(calls))

    def _add_with_batches(self, rows: Sequence[Row]) -> None:
        """Add rows of which some may be members of a batch, or whose state other rows decide."""
        batches = Batches(rows)
        last_on_gloo: dict[str, int] = {}
        added: set[Key] = set()
        kept = self.kept = list[int]()
        for position, row in enumerate(rows):
            call, key = row.call, batches.key(row)
            batch, state, (local_id, is_p2p, seq) = batches.by_key.get(key), call.state, key
            if batch is not None and not is_p2p:
                if key in added:
                    continue
                added.add(key)
                kind, state = self.kinds.of_batch(batch), batch.state
            else:
                if batch is not None:
                    if batch.end is row and batch.members:
                        continue  # it is no send or receive itself
                    state = batch.state
                elif key in batches.lost and call.backend == "nccl":
                    state = State.DONE
                kind = self.kinds.of(call)
                if row.own >= 0:
                    self.kinds.own_sizes.picks.append(row.own)
            if call.backend == "gloo":
                state = State.DONE if call.entry.get("retired") else State.PENDING
                last_on_gloo[local_id] = len(kept)
            kept.append(position)
            self._recording.add(
                group=call.group, seq=seq, kind=kind, state=state, created=row.created, order=row.order
            )
        states = self._recording.columns["state"]
        for index in last_on_gloo.values():
            if states[index] == State.DONE:
                states[index] = int(State.UNKNOWN)

    def _finish(self) -> None:
        recording, columns = self._recording, self._recording.columns
        is_collective = [kind[6] is None for kind in recording.kinds]
        seqs = zip(columns["group"], columns["seq"], strict=True)
        check_seqs(compress(seqs, map(is_collective.__getitem__, columns["kind"])), self._implausible)
        recording.notes += self._implausible.notes()
        if self.kinds.own_sizes.picks:
            recording.own_sizes = self.kinds.own_sizes
        if self.kinds.tensors.cut:
            what = "its calls have more and larger shapes than are kept; some were left out"
            recording.notes.append(Note("sizes_cut", what))
