"""One line per collective of every rank, in the order in which it issued them: a flight recorder in text.

    [rank1]:[I1120 15:13:24.220687360 ProcessGroupWrapper.cpp:710] [Rank 1] Running collective: CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, ...)

(TORCH_DISTRIBUTED_DEBUG=DETAIL with TORCH_CPP_LOG_LEVEL=INFO; torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp.) The line
names no group. The first sequence of numbers of a rank is assumed to be that of the default group and a second, concurrent one
that of another group; the recording says so. A later line of the same group proves that all members joined the earlier
collective. Nothing proves that the last one completed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from hangscope.errors import Note
from hangscope.ingest.lines import call_lines
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs.wrapper import RANDOM_START, fingerprints
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import State
from hangscope.model.regex import regex

_DONE = int(State.DONE)
_CHAINS = 64  # groups of a writer that a number is compared with; a log of leaping numbers would have no end of them
_CHECK_EVERY = 1024  # calls
_GAP = 64  # P2P ops take numbers too, without a line

_CALL = r"Running collective: CollectiveFingerPrint\(SequenceNumber=(\d{1,18}),? ?OpType=([A-Z_]{3,60}[,)][^\r\n\x1b]{0,2000})"
_IN_TEXT = regex(rf"(?:\[Rank (\d{{1,7}})\] )?{_CALL}")
_HEADER = r"\[I\d{3,4} \d\d:\d\d:\d\d\.\d{6,9} ProcessGroupWrapper\.cpp:\d{1,6}\]"


@dataclass(slots=True)
class _Writer:
    """One process: its recording, and the last number of each of its groups."""

    recording: Recording
    first_line: int
    attempt: int
    chains: list[tuple[int, int]] = field(default_factory=list)  # by group: (group-local rank, last number)
    recent: list[int] = field(default_factory=list)  # chains that a number may continue, the last used last
    starts: dict[int, int] = field(default_factory=dict)  # first number of a chain that began at random
    kinds: dict[bytes, int] = field(default_factory=dict)  # by the text after the number
    calls: int = 0

    def chain(self, group_rank: int, number: int) -> int:
        """Return which group the number continues: the one with the closest number, or a new one."""
        best, closest = -1, _GAP + 1
        for index in self.recent:
            rank, last = self.chains[index]
            step = number - last
            nearer = step < closest or (step == closest and index < best)
            if nearer and step > 0 and rank == group_rank:
                best, closest = index, step
        if best >= 0:
            self.recent.remove(best)
            self.chains[best] = (group_rank, number)
        else:
            best = self.recording.group(str(len(self.chains)), *_name(len(self.chains)))
            self.chains.append((group_rank, number))
        self.recent.append(best)
        del self.recent[:-_CHAINS]
        return best

    def kind(self, text: bytes) -> int | None:
        """Return the kind of a call, from its fingerprint after the number; None where that is damaged."""
        found = fingerprints(f"CollectiveFingerPrint(OpType={text.decode('utf-8', 'replace')}")
        if not found:
            return None
        call, _ = found[0]
        shape, dtypes = call["shape"], tuple((call["dtype"] or "").split())
        sizes = ((shape,) + ((),) * (len(dtypes) - 1)) if shape is not None else ()
        row = (call["op"], call["device"] or "", sizes, (), dtypes, (), None, None, -1, None)
        kind = self.recording.kind(row)
        if len(self.kinds) < call_lines.MOST_REMEMBERED:
            self.kinds[text] = kind
        return kind


class DetailParser(call_lines.CallParser):
    """Collects the calls of every writer into recordings; it makes no events."""

    literals = (b"Running collective: CollectiveFingerPrint(", b"failed (exitcode: ")
    mark = b"[I"
    whole = regex(rf"{_HEADER} \[Rank (\d{{1,7}})\] {_CALL}\n".encode())

    def __init__(self, file: str = "") -> None:
        super().__init__(file)
        self._writers: dict[str, _Writer] = {}
        self._attempt = 0
        self.keep = call_lines.most_kept(1)

    def add(self, writer: _Writer, found: re.Match[bytes], number: int) -> bool:
        """Add a call, unless another line begins within this one."""
        rank, count, text = found.groups()
        if text not in writer.kinds and b"[Rank " in text:
            return False
        return self._add(writer, int(rank), int(count), text)

    def feed(self, line: Line) -> Iterable[Event]:
        """Add one call; returns no events. A message of the launcher's agent that its workers are gone ends the attempt."""
        if line.text.startswith("failed (exitcode: "):
            if any(writer.attempt == self._attempt for writer in self._writers.values()):
                self._attempt += 1
                self._heads.clear()
        elif (found := _IN_TEXT.search(line.text)) is not None:
            rank, count, text = found.groups()
            self._add(self._writer(line), int(rank or -1), int(count), text.encode())
        return ()

    def writer(self, line: Line) -> _Writer | None:
        """Return the writer of a line that has nothing between the prefixes and the group's rank."""
        return self._writer(line) if line.text.startswith("[Rank ") else None

    def _writer(self, line: Line) -> _Writer:
        key = f"{self._attempt:04}|{line.origin}|{line.host}"
        writer = self._writers.get(key)
        if writer is None:
            recording = Recording("detail_log", rank=line.rank, host=line.host)
            recording.local_rank, recording.task = line.local_rank, line.task
            writer = self._writers[key] = _Writer(recording, line.number, self._attempt)
            self.keep = call_lines.most_kept(len(self._writers))
        return writer

    def _add(self, writer: _Writer, rank: int, number: int, text: bytes) -> bool:
        kind = writer.kinds.get(text)
        if kind is None and (kind := writer.kind(text)) is None:
            return False
        chain = writer.chain(rank, number)
        seq = number + 1 if number < RANDOM_START else number + 1 - writer.starts.setdefault(chain, number)
        writer.recording.add(group=chain, seq=seq, kind=kind, state=_DONE, order=writer.calls)
        writer.calls += 1
        if writer.calls % _CHECK_EVERY == 0 and len(writer.recording) > 2 * self.keep:
            what = "the first calls of this process were not kept"
            note = Note("calls_dropped", what, self._file, writer.first_line)
            writer.recording = call_lines.last_calls(writer.recording, self.keep, note)
            writer.kinds.clear()
        return True

    def recordings(self, owned: bool = False) -> list[Recording]:
        """Return the recording of each writer; call once, at the end of the log. `owned`: its path names a rank."""
        return [r for _, writer in sorted(self._writers.items()) for r in self._finished(writer, owned)]

    def _finished(self, writer: _Writer, owned: bool) -> Iterable[Recording]:
        recording = writer.recording
        if not len(recording):
            return []
        recording.attempt = writer.attempt if self._attempt else None
        last = {group: index for index, group in enumerate(recording.columns["group"])}
        for index in last.values():
            recording.columns["state"][index] = int(State.PENDING)
        known = owned or (recording.rank, recording.local_rank, recording.task) != (None, None, None)
        parts = {} if known else _by_printed_rank(writer)
        several = _are_several_processes(parts)
        if len(writer.chains) > (len(parts) if several else 1):
            text = f"the lines name no group; {len(writer.chains)} groups were assumed from their numbers"
            recording.notes.append(Note("group_assumed", text, self._file, writer.first_line))
        if not several:
            return [recording]
        next(iter(parts.values())).notes = recording.notes
        return parts.values()


def _name(chain: int) -> tuple[str, str]:
    """Return the name and description of a group that no line names."""
    return (f"assumed {chain}", "assumed from the order of numbers") if chain else ("", "assumed")


def _by_printed_rank(writer: _Writer) -> dict[int, Recording]:
    """Return the calls of a writer without a name by the rank that its lines print, as if each rank had its own log."""
    parts: dict[int, Recording] = {}
    places = []
    for rank, _ in writer.chains:
        part = parts.setdefault(rank, call_lines.without_calls(writer.recording))
        part.rank = rank
        number = len(part.groups)  # the first of each rank is the one that all have
        places.append((part, part.group(str(number), *_name(number))))
    if -1 in parts or not 1 < len(parts) <= call_lines.MOST_REMEMBERED:
        return {}
    call_lines.copy_calls(writer.recording, places)
    return parts


def _are_several_processes(parts: Mapping[int, Recording]) -> bool:
    """Return whether most of these ranks issued calls that others issued under the same numbers: one process counts its groups apart."""
    issued = [
        {(seq, part.kinds[kind]) for seq, kind in zip(part.columns["seq"], part.columns["kind"], strict=True)}
        for part in parts.values()
    ]
    times = Counter(call for own in issued for call in own)
    return 2 * sum(2 * sum(times[call] > 1 for call in own) >= len(own) for own in issued) > len(parts) > 1
