"""What a rule sees, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from hangscope.align.waitgraph import WaitGraph
from hangscope.explain.finding import Explanation, Finding, Nothing
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.explain.statements.statements import Statements, Whereabouts
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.knowledge.callsite import is_user, user_frame, user_frames
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Event, Frame, Incident, Stack
from hangscope.model.rankset import ranks_phrase


@dataclass(slots=True)
class Case:
    """One incident with what explains it best."""

    incident: Incident
    explanation: Explanation
    statements: Statements
    graph: WaitGraph
    knowledge: Knowledge = field(default_factory=own_knowledge)

    @property
    def finding(self) -> Finding:
        """Return the finding that explains best."""
        return self.explanation.best

    @property
    def from_text(self) -> bool:
        """Return whether the finding rests on text alone."""
        return self.explanation.from_text

    @property
    def frames_recorded(self) -> bool:
        """Return whether the recorder kept Python frames for any call."""
        return any(kind.stack for kind in self.incident.kinds)

    @property
    def on_gloo(self) -> bool:
        """Return whether all recorded calls are gloo's."""
        return {kind.backend for kind in self.incident.kinds} == {"gloo"}

    @property
    def solid(self) -> bool:
        """Return whether the finding names calls that differ or are missing, and not only lines or step counts."""
        return not isinstance(self.finding, Nothing) and (
            not self.from_text or self.finding.stuck.seq is not None
        )

    @property
    def whole_group(self) -> bool:
        """Return whether some input states who or how many the members of the stuck group are; else nothing is said of all of them."""
        group = self.finding.stuck.group
        if group is None or group.gid < 0 or self.from_text:
            return self.incident.size_stated
        return group.members_known and not group.partial

    @property
    def stacks(self) -> dict[int, Whereabouts]:
        """Return where a stack shows a rank's main thread, by rank."""
        return {r: w for r, w in sorted(self.statements.whereabouts.items()) if w.kind == "stack"}

    def elsewhere(self, ranks: Sequence[int]) -> list[int]:
        """Return those of `ranks` whose stack shows them at work outside the call that they left open.

        Hosts blocked in a call stand where their peers stand, as those that merely run ahead do: only a place of its own tells.
        """
        top = {rank: (w.stack[0].name, w.stack[0].file) for rank, w in self.stacks.items() if w.stack}
        places, rare = Counter(top.values()), max(1, len(top) // 8)
        away = [r for r in ranks if r in top and not self.stacks[r].inside and places[top[r]] <= rare]
        return [r for r in away if not self._at_its_call(r)]

    def _at_its_call(self, rank: int) -> bool:
        """Return whether a rank's stack ends at the line from which its last recorded call was issued: the host waits there for its result."""
        record, stack = self.incident.ranks[rank], self.stacks[rank].stack
        lines = user_frames(stack) if is_user(stack[0]) else ()
        queues = [q for q in (*record.queues.values(), *record.p2p.values()) if len(q)]
        last = max(queues, key=lambda queue: int(queue.order[-1]), default=None)
        made = user_frames(self.incident.kinds[int(last.kind[-1])].stack) if last is not None else ()
        return bool(made) and made == lines

    def stack_of(self, kind: CallKind | None, ranks: Iterable[int]) -> Stack:
        """Return where a call was made: its frames, or the stack or traceback of the first of `ranks` that stands in a call."""
        if kind is not None and (kind.stack or (self.frames_recorded and not self.from_text)):
            return kind.stack
        stood = (self.statements.whereabouts.get(rank) for rank in ranks)
        return next((where.stack for where in stood if where is not None and where.inside), ())

    def recorded(self, rank: int, text: str) -> Evidence:
        """Return a fact that the record of a rank's calls shows."""
        record = self.incident.ranks.get(rank)
        source = Source(record.calls_file or "") if record is not None else None
        return Evidence(record.recorder if record is not None else "dump", text, rank, source)

    def stands(self, rank: int, thread: tuple[str, Stack] | None = None) -> Evidence:
        """Return where the stack or traceback of a rank shows it, or one of its threads."""
        where = self.statements.whereabouts[rank]
        name, stack = (f"thread {thread[0]}", thread[1]) if thread is not None else ("stack", where.stack)
        text = f"rank {rank}'s {name}: " + " <- ".join(str(frame) for frame in stack[:4])
        return Evidence(where.kind, text, rank, Source(where.source))

    def warned(self, *faults: str) -> list[NcclWarn]:
        """Return NCCL's warnings of these faults."""
        return [e for e in self.statements.all(NcclWarn) if e.fault in faults]

    def frame_of(self, kind: CallKind | None) -> Frame | None:
        """Return the user frame of a call."""
        return user_frame(kind.stack) if kind is not None else None


@dataclass(slots=True)
class Match:
    """A rule's answer: the cause, whom it names, why, and how sure the rule can be at most.

    `strength` is 2 (the facts leave no other reading), 1 (the usual reading) or 0 (a guess that the report marks as such).
    `api` is the library call that the user wrote; `stack` where the
    culprits made their odd call, where the finding does not hold it; `rivals` are (cause, why) that the same evidence allows;
    `suspects` must contain the culprit where nobody is named.
    """

    cause: str
    culprits: tuple[int, ...]
    why: str
    strength: int = 1
    category: str | None = None
    evidence: list[Evidence] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    frame: Frame | None = None
    frame_rank: int | None = None
    stack: Stack = ()
    rivals: list[tuple[str, str]] = field(default_factory=list)
    api: str | None = None
    suspects: tuple[int, ...] = ()


Rule = Callable[[Case], "Match | None"]


def answer(
    cause: str,
    culprits: Iterable[int],
    why: str,
    *advice: str,
    strength: int = 1,
    category: str | None = None,
    evidence: Iterable[Evidence | Event] = (),
    frame: Frame | None = None,
    frame_rank: int | None = None,
    stack: Stack = (),
    rivals: Iterable[tuple[str, str]] = (),
    suspects: Iterable[int] = (),
) -> Match:
    """Return a match, with what to do behind its reason, and with lines among its evidence quoted."""
    facts = [quote(item) if isinstance(item, Event) else item for item in evidence]
    given = (tuple(culprits), why, strength, category, facts, [*advice], frame, frame_rank, stack)
    return Match(cause, *given, [*rivals], suspects=tuple(suspects))


def who(ranks: Iterable[int], nobody: str = "some ranks") -> str:
    """Return ranks for a sentence, or `nobody` where none is named."""
    named = tuple(ranks)
    return ranks_phrase(named) if named else nobody


def at(frame: Frame | None) -> str:
    """Return a line of the user's for a sentence: ` (train.py:31)`, empty where it is not known."""
    return f" ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" if frame is not None else ""


def quote(event: Event, text: str | None = None, *, kind: str = "log", stance: str = "for") -> Evidence:
    """Return a text event as evidence, with where it stands."""
    source = Source(event.file, event.line)
    return Evidence(kind, text or event.text, event.rank, source, stance=stance, quoted=text is None or None)


def of_odd_line(odd: OutlierLine) -> Evidence:
    """Return a line that a minority of the ranks printed as evidence."""
    return Evidence("log", odd.says(), odd.ranks[0], Source(odd.file, odd.line))
