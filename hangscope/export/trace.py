"""All ranks' collectives as a trace for ui.perfetto.dev and chrome://tracing: JSON of the Trace Event Format.

    {"otherData": {"format": "hangscope.trace/1", "begins_ns": "1795194306322923687", ...}, "traceEvents": [
    {"ph": "X", "pid": 3, "tid": 2, "ts": 0.0, "dur": 412.5, "name": "all_reduce", "args": {"seq": 812, "state": "done"}}, ...

A process is a rank, or a class of ranks with equal behaviour; a thread is one of its groups. A slice begins at the enqueue, or
where the one before it on that track ends. It ends at the recorded completion; where none is recorded, at the next enqueue on
the track (`args.end` says so); a pending one goes on to the end of the trace. Arrows lead from pending slices to the
root cause; instants mark deaths and watchdogs, at the end where their line has no usable time. Times are in µs after `begins_ns`, since a JSON number loses ns since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hangscope._version import __version__
from hangscope.analysis import Analysis
from hangscope.export.frame import is_p2p
from hangscope.export.output import head_of
from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Queue, State
from hangscope.model.rankset import compress
from hangscope.report import quotes
from hangscope.report.masking.secrets import presentable
from hangscope.report.pictures.call_diff.behaviour import Folding
from hangscope.report.subject import Subject, sizes_of
from hangscope.report.words import ROLE_WORDS, cut, rank_words, some_ranks

SCHEMA = "hangscope.trace/1"
FOLD_ABOVE = 64  # ranks; more are folded by class unless all are asked for
LAST_SLICE = 1_000_000  # ns that the trace goes on after its last event
INSTANTS = 1000  # deaths and watchdogs that are marked
_STATES = [state.name.lower() for state in State]
_VERDICT = 1  # the thread of the root cause's slice; groups follow
_ASSUMED_END = "next enqueue; no completion time was recorded"


@dataclass(frozen=True, slots=True)
class _Track:
    """One process of the trace: the first rank of a class, and how the class is called."""

    rank: int
    ranks: tuple[int, ...]
    name: str
    role: str


def write_trace(analysis: Analysis, out: BinaryIO, *, all_ranks: bool = False) -> int:
    """Write the trace to `out`, one event a line, and return the number of events."""
    trace = _Trace(analysis, all_ranks)
    head = {"format": SCHEMA, "tool": f"hangscope {__version__}", "begins_ns": str(trace.begin)}
    out.write(f'{{"otherData": {json.dumps(head)}, "displayTimeUnit": "ms", "traceEvents": [\n'.encode())
    count = 0
    for count, line in enumerate(trace.events(), start=1):
        out.write(((",\n" if count > 1 else "") + line).encode())
    out.write(b"\n]}\n")
    return count


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace that hangscope wrote."""
    return SCHEMA.encode() in head_of(path, 512)


class _Trace:
    def __init__(self, analysis: Analysis, all_ranks: bool) -> None:
        self.subject = Subject(analysis)
        self.incident = analysis.incident
        self.fold = not all_ranks and len(self.incident.ranks) > FOLD_ABOVE
        self.tracks = self._tracks()
        found = (*quotes.of_kind(self.subject, "watchdog"), *quotes.ends(self.subject))
        moments = {(int((t.time or 0) * 1e9), t.rank, t.text, t.source) for t in found}
        self.moments = sorted(moments, key=lambda m: (m[0], *m[2:], -1 if m[1] is None else m[1]))[:INSTANTS]
        queues = [queue for track in self.tracks for queue in self._queues(track)]
        timed = [queue for queue in queues if (queue.created > 0).any()]
        times = [moment[0] for moment in self.moments if moment[0]]
        self.begin = min((*(int(q.created[q.created > 0].min()) for q in timed), *times), default=0)
        self.end = max((*map(_last, timed), *times), default=0) + LAST_SLICE
        self._parts: dict[int, tuple[str, str]] = {}

    def events(self) -> Iterator[str]:
        """Yield every event as JSON."""
        arrows = 0
        root = next((track.rank for track in self.tracks if track.role == "culprit"), None)  # the first
        for track in self.tracks:
            yield from self._names(track)
            pending = None
            for queue in self._queues(track):
                for text, open_since in self._slices(track, queue):
                    yield text
                    if open_since is not None and pending is None:
                        pending = open_since, self._thread(queue)
            if track.role == "culprit":
                yield self._root_slice(track)
            elif pending is not None and root is not None and track.role == "waiting":
                arrows += 1
                since, thread = pending
                yield _event("s", track.rank, thread, self._at(since), "waits for", cat="wait", id=arrows)
                end = self._at(self.end - LAST_SLICE // 2)
                yield _event("f", root, _VERDICT, end, "waits for", cat="wait", id=arrows, bp="e")
        yield from self._instants()

    def _tracks(self) -> tuple[_Track, ...]:
        tracks = []
        for b in Folding(self.subject).classes() if self.fold else ():
            name = f"{rank_words(some_ranks(b.ranks))}, {len(b.ranks):,} alike"
            tracks.append(_Track(b.ranks[0], tuple(b.ranks), name, b.role))
        for rank, record in sorted(self.incident.ranks.items()) if not self.fold else ():
            name = _shown(f"rank {rank} on {record.host}" if record.host else f"rank {rank}")
            tracks.append(_Track(rank, (rank,), name, self.subject.role(rank)))
        return tuple(tracks)

    def _queues(self, track: _Track) -> list[Queue]:
        return list(filter(len, self.incident.ranks[track.rank].all_queues))

    def _thread(self, queue: Queue) -> int:
        return _VERDICT + 1 + 2 * queue.gid + is_p2p(self.incident, queue)

    def _at(self, ns: int) -> float:
        return (ns - self.begin) / 1000

    def _names(self, track: _Track) -> Iterator[str]:
        yield _event("M", track.rank, 0, None, "process_name", args={"name": track.name})
        yield _event("M", track.rank, 0, None, "process_labels", args={"labels": ROLE_WORDS[track.role]})
        yield _event("M", track.rank, 0, None, "process_sort_index", args={"sort_index": track.rank})
        for queue in self._queues(track):
            kind = " · send and recv" if is_p2p(self.incident, queue) else ""
            name = _shown(f"group {self.subject.label(queue.gid)}{kind}")
            yield _event("M", track.rank, self._thread(queue), None, "thread_name", args={"name": name})

    def _slices(self, track: _Track, queue: Queue) -> Iterator[tuple[str, int | None]]:
        """Yield the slices of a queue as JSON, each with its begin where it is pending. Calls without a time have none."""
        times, states = queue.created.tolist(), queue.state.tolist()
        seqs, kinds = queue.seq.tolist(), queue.kind.tolist()
        ends = queue.completed.tolist() if queue.completed is not None else [0] * len(times)
        free = 0  # when the track's last slice ends
        head = f'{{"ph": "X", "pid": {track.rank}, "tid": {self._thread(queue)}, "ts": '
        for place, (created, state, end) in enumerate(zip(times, states, ends, strict=True)):
            if not created:
                continue
            begin = max(created, free)
            is_open = state != State.DONE
            assumed = not is_open and end < begin
            if is_open:
                end = self.end
            elif assumed:
                end = max(begin, times[place + 1] if place + 1 < len(times) else created + LAST_SLICE)
            free = free if is_open else end
            name, args = self._kind(kinds[place])
            tail = f', "end": "{_ASSUMED_END}"' if assumed else ""
            color = ', "cname": "terrible"' if is_open else ""
            text = (
                f'{head}{(begin - self.begin) / 1000}, "dur": {(end - begin) / 1000}, "name": {name}{color}, "args": {{"seq": {seqs[place]},'
                f' "state": "{_STATES[state]}"{args}{tail}}}}}'
            )
            yield text, begin if is_open else None

    def _kind(self, index: int) -> tuple[str, str]:
        found = self._parts.get(index)
        if found is None:
            kind: CallKind = self.incident.kinds[index]
            frame = user_frame(kind.stack)
            site = f"{frame.file}:{frame.line} in {frame.name}" if frame else ""
            args: dict[str, Any] = {"tensors": sizes_of(kind), "at": site}
            args |= {"from": kind.src, "to": kind.dst} if kind.is_p2p else {}
            text = "".join(
                f', "{k}": {json.dumps(_shown(v))}' for k, v in args.items() if v not in ("", None)
            )
            found = self._parts[index] = json.dumps(_shown(kind.op or "call")), text
        return found

    def _root_slice(self, track: _Track) -> str:
        verdict = self.subject.verdict
        begin = max((int(q.created.max()) for q in self._queues(track)), default=self.begin) or self.begin
        args = {"cause": verdict.cause, "confidence": verdict.confidence, "ranks": compress(track.ranks)}
        name, at, lasts = _shown(verdict.title or verdict.summary), self._at(begin), self._at(self.end)
        return _event("X", track.rank, _VERDICT, at, name, dur=lasts - at, cname="bad", args=args)

    def _instants(self) -> Iterator[str]:
        process = {rank: track.rank for track in self.tracks for rank in track.ranks}
        for time, rank, text, source in self.moments:
            scope = "g" if rank is None else "p"
            at = process.get(rank, self.tracks[0].rank if self.tracks else 0) if rank is not None else 0
            args = {"text": _shown(text), "source": _shown(source)} | ({} if rank is None else {"rank": rank})
            args |= {} if time else {"time": "not known; shown at the end"}
            yield _event("i", at, 0, self._at(time or self.end), _shown(cut(text, 80)), s=scope, args=args)


def _last(queue: Queue) -> int:
    ended = int(queue.completed.max()) if queue.completed is not None else 0
    return max(ended, int(queue.created.max()))


def _event(phase: str, process: int, thread: int, at: float | None, name: str, **more: Any) -> str:
    times = {} if at is None else {"ts": at}
    return json.dumps({"ph": phase, "pid": process, "tid": thread, **times, "name": name, **more})


def _shown(value: Any) -> Any:
    return presentable(value) if isinstance(value, str) else value
