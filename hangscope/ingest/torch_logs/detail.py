"""The recorder in text: one line per collective of every rank, in the order of its calls.

    [rank1]:[I1120 15:13:24.220687360 ProcessGroupWrapper.cpp:710] [Rank 1] Running collective: CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, ...)

(TORCH_DISTRIBUTED_DEBUG=DETAIL with TORCH_CPP_LOG_LEVEL=INFO;
torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp.) The line names no group: the first sequence of numbers
of a rank is taken as the default group, a second one that runs beside it as another, and the recording says
so. A later line of the same group proves that the earlier call was joined by all; nothing proves that the
last one ended.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from hangscope.errors import Note
from hangscope.ingest.lines.forms import BulkParser
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.recorder.recording import COLUMNS, KindRow, Recording
from hangscope.ingest.torch_logs.fingerprint import RANDOM_START, Fingerprint, fingerprints
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import State
from hangscope.model.regex import regex

#: Calls that all writers of one log may keep; the oldest of each writer go first.
CALL_BUDGET = 1_500_000
_LEAST_KEPT = 2_048
_DONE = int(State.DONE)
_CHAINS = 64  # groups of a writer that a number is compared with; a log of leaping numbers has no end of them
_GAP = 64  # point-to-point calls take numbers too, without a line

_GROUP_RANK = regex(r"\[Rank (\d{1,7})\] Running collective: ")
#: A whole line of the form that repeats endlessly, behind the prefix of its writer.
_BULK = regex(
    rb"\[I\d{3,4} \d\d:\d\d:\d\d\.\d{6,9} ProcessGroupWrapper\.cpp:\d{1,6}\] \[Rank (\d{1,7})\] Running collective: "
    rb"CollectiveFingerPrint\(SequenceNumber=(\d{1,18}),? ?OpType=([A-Z_]{3,60}[,)][^\r\n\x1b]{0,2000})\n"
)
_HEAD = 120  # bytes of a prefix that is remembered
_HEADS = 4096


@dataclass(slots=True)
class _Writer:
    """One process: its recording, and where each of its groups' numbers stands."""

    recording: Recording
    first_line: int
    attempt: int
    chains: list[tuple[int, int]] = field(default_factory=list)  # (group-local rank, last number)
    recent: list[int] = field(
        default_factory=list
    )  # the chains that a number may continue, the last used last
    calls: int = 0
    trimmed: int = 0


class DetailParser(BulkParser):
    """Collects the calls of every writer into recordings; it makes no events."""

    literals = (b"Running collective: CollectiveFingerPrint(", b"failed (exitcode: ")

    def __init__(self, file: str = "") -> None:
        self._file = file
        self._writers: dict[str, _Writer] = {}
        self._calls = 0
        self._attempt = 0
        self._cache: dict[str, Fingerprint | None] = {}
        self._heads: dict[bytes, _Writer] = {}
        self._rows: dict[tuple[int, int, bytes], tuple[int, int]] = {}

    def run(self, block: bytes, start: int, number: int) -> int:
        """Read the lines of calls that follow each other from `start` on; see `BulkParser`."""
        heads, rows, match = self._heads, self._rows, _BULK.match
        while True:
            at = block.find(b"[I", start, start + _HEAD)
            found = match(block, at) if at >= 0 else None
            if found is None:
                return start
            if b"[" in found[3] and b"[Rank " in found[3]:
                return start  # another line begins within this one
            writer = heads.get(block[start:at])
            if writer is None:
                writer = self._known_head(block[start:at], found[0], number)
                if writer is None:
                    return start
            rank, count, rest = int(found[1]), int(found[2]), found[3]
            chain = self._chain(writer, rank, count)
            row = rows.get((id(writer), chain, rest))
            if row is None or count >= RANDOM_START:
                fingerprint = self._fingerprint(found[0].decode("utf-8", "replace").strip())
                if fingerprint is None:
                    return start
                before = len(writer.recording)
                self._add(writer, chain, fingerprint)
                columns = writer.recording.columns
                if len(writer.recording) > before and len(rows) < _HEADS:
                    rows[(id(writer), chain, rest)] = (columns["group"][-1], columns["kind"][-1])
            else:
                writer.recording.add(
                    group=row[0], seq=count + 1, kind=row[1], state=_DONE, order=writer.calls
                )
                writer.calls += 1
                self._calls += 1
                if self._calls > CALL_BUDGET and len(writer.recording) > _LEAST_KEPT:
                    self._trim()
            start = found.end()
            number += 1

    def _known_head(self, head: bytes, rest: bytes, number: int) -> _Writer | None:
        """Return whose line it is that begins with these bytes; None where the line is to be read like any other."""
        if b"\n" in head or b"\r" in head:
            return None
        line = strip_prefix((head + rest).decode("utf-8", "replace").rstrip(), number, self._file)
        if not line.text.startswith("[Rank "):
            return None
        if len(self._heads) >= _HEADS:
            self._heads.clear()
        writer = self._heads[head] = self._writer(line)
        return writer

    def feed(self, line: Line) -> Iterable[Event]:
        """Add one call; returns no events."""
        if line.text.startswith("failed (exitcode: "):
            self._end_attempt()
            return ()
        at = line.text.find("Running collective: ")
        print_ = self._fingerprint(line.text[at:]) if at >= 0 else None
        if print_ is None or print_.number is None:
            return ()
        own = _GROUP_RANK.search(line.text)
        group_rank = int(own.group(1)) if own else -1
        writer = self._writer(line)
        chain = self._chain(writer, group_rank, print_.number)
        self._add(writer, chain, print_)
        return ()

    def _end_attempt(self) -> None:
        """Begin new recordings: a launcher's agent says that its workers are gone."""
        if any(writer.attempt == self._attempt for writer in self._writers.values()):
            self._attempt += 1
            self._heads.clear()

    def _fingerprint(self, text: str) -> Fingerprint | None:
        """Return the fingerprint; the text after the number repeats endlessly and is parsed once."""
        head, _, rest = text.partition("OpType=")
        number = re.search(r"SequenceNumber=(\d{1,18})", head)
        if rest not in self._cache:
            if len(self._cache) > 20_000:
                self._cache.clear()
            found = fingerprints(text)
            self._cache[rest] = found[0] if found else None
        known = self._cache[rest]
        if known is None or number is None:
            return None
        return Fingerprint(
            known.op, known.op_type, int(number.group(1)), known.shape, known.dtypes, known.device
        )

    def _writer(self, line: Line) -> _Writer:
        key = f"{self._attempt:04}|{line.origin}|{line.host}"
        writer = self._writers.get(key)
        if writer is None:
            recording = Recording("detail_log", rank=line.rank, host=line.host)
            recording.local_rank, recording.task = line.local_rank, line.task
            writer = self._writers[key] = _Writer(recording, line.number, self._attempt)
        return writer

    def _chain(self, writer: _Writer, group_rank: int, number: int) -> int:
        """Return which of the writer's groups the number continues."""
        best = None
        for index in writer.recent:
            rank, last = writer.chains[index]
            ahead = number - last
            if (
                rank == group_rank
                and 0 < ahead <= _GAP
                and (best is None or (ahead, index) < (number - writer.chains[best][1], best))
            ):
                best = index
        if best is None:
            best = len(writer.chains)
            writer.chains.append((group_rank, number))
        else:
            writer.recent.remove(best)
        writer.recent.append(best)
        del writer.recent[:-_CHAINS]
        writer.chains[best] = (group_rank, number)
        return best

    def _add(self, writer: _Writer, chain: int, print_: Fingerprint) -> None:
        recording = writer.recording
        sizes = ((print_.shape,) + ((),) * (len(print_.dtypes) - 1)) if print_.shape is not None else ()
        row: KindRow = (print_.op, print_.device or "", sizes, (), print_.dtypes, (), None, None, -1, None)
        group = recording.group(str(chain), *_named(chain))
        seq = (
            print_.number + 1
            if print_.number is not None and print_.number < RANDOM_START
            else self._relative(writer, chain, print_)
        )
        recording.add(
            group=group, seq=seq, kind=recording.kind(row), state=int(State.DONE), order=writer.calls
        )
        writer.calls += 1
        self._calls += 1
        if self._calls > CALL_BUDGET and len(recording) > _LEAST_KEPT:
            self._trim()

    def _relative(self, writer: _Writer, chain: int, print_: Fingerprint) -> int:
        """Return the position in a count that began at random: the first number seen is call 1 (torch before 2.1)."""
        first = writer.recording.config.setdefault(f"random start {chain}", (str(print_.number), None))
        return (print_.number or 0) - int(first[0]) + 1

    def _trim(self) -> None:
        for writer in self._writers.values():
            drop = len(writer.recording) // 2
            if len(writer.recording) <= _LEAST_KEPT:
                continue
            for name, column in writer.recording.columns.items():
                writer.recording.columns[name] = array(COLUMNS[name], column[drop:])
            writer.trimmed += drop
            self._calls -= drop

    def recordings(self, owned: bool = False) -> list[Recording]:
        """Return the recording of each writer; call once, at the end of the log. `owned`: its path names a rank."""
        result = []
        for key in sorted(self._writers):
            writer = self._writers[key]
            recording = writer.recording
            recording.config.clear()
            recording.attempt = writer.attempt if self._attempt else None
            last_of: dict[int, int] = {}
            for index, group in enumerate(recording.columns["group"]):
                last_of[group] = index
            for index in last_of.values():
                recording.columns["state"][index] = int(State.PENDING)
            if len(writer.chains) > 1:
                text = f"the lines name no group; {len(writer.chains)} groups were assumed from their numbers"
                recording.notes.append(Note("group_assumed", text, self._file, writer.first_line))
            if writer.trimmed:
                recording.notes.append(
                    Note(
                        "calls_dropped",
                        f"the first {writer.trimmed} calls were not kept",
                        self._file,
                        writer.first_line,
                    )
                )
            named = owned or (recording.rank, recording.local_rank, recording.task) != (None, None, None)
            parts = _by_printed_rank(writer) if not named else {}
            if not _of_several(parts):
                result.append(recording)
                continue
            result += parts.values()
            next(iter(parts.values())).notes = recording.notes[len(writer.chains) <= len(parts) :]
        return result


def _named(chain: int) -> tuple[str, str]:
    """Return the name and description of a group that no line names."""
    return (f"assumed {chain}", "assumed from the order of numbers") if chain else ("", "assumed")


def _by_printed_rank(writer: _Writer) -> dict[int, Recording]:
    """Return the calls of a writer without a name by the rank that its lines print, as if each rank had written its own."""
    whole, parts = writer.recording, dict[int, Recording]()
    if not 1 < len(ranks := {rank for rank, _ in writer.chains}) <= _HEADS or -1 in ranks:
        return parts
    groups = dict[tuple[int, int], int]()
    columns = [whole.columns[name] for name in ("group", "seq", "kind", "state", "order")]
    for group, seq, kind, state, order in zip(*columns, strict=True):
        rank = writer.chains[int(whole.groups[group][0])][0]
        if rank not in parts:
            parts[rank] = Recording(whole.source, rank=rank, host=whole.host, attempt=whole.attempt)
        part = parts[rank]
        place = groups.get((rank, group))
        if place is None:  # the first of each rank is the one that all have
            number = len(part.groups)
            place = groups[rank, group] = part.group(str(number), *_named(number))
        part.add(group=place, seq=seq, kind=part.kind(whole.kinds[kind]), state=state, order=order)
    return parts


def _of_several(parts: Mapping[int, Recording]) -> bool:
    """Return whether most of these ranks made calls under numbers under which others made the same: one process counts its groups apart."""
    made = [
        {(seq, part.kinds[kind]) for seq, kind in zip(part.columns["seq"], part.columns["kind"], strict=True)}
        for part in parts.values()
    ]
    times = Counter(call for own in made for call in own)
    return 2 * sum(2 * sum(times[call] > 1 for call in own) >= len(own) for own in made) > len(parts) > 1
