"""What a rule sees, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

from hangscope.align.waitgraph import WaitGraph
from hangscope.explain.finding import Explanation, Finding, Nothing
from hangscope.explain.predict import Replay
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.explain.statements.pending_calls import is_from, last_calls
from hangscope.explain.statements.statements import Statements, Whereabouts
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.catalog import CATALOG
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind, Event, Frame, Incident, Stack, State
from hangscope.model.rankset import ranks_phrase

_OF_A_HOST = 16  # devices
_FRAMES = 4  # that a fact quotes of a stack


@dataclass(slots=True)
class Case:
    """One incident with the explanation that fits it best."""

    incident: Incident
    explanation: Explanation
    statements: Statements
    graph: WaitGraph
    knowledge: Knowledge = field(default_factory=own_knowledge)
    replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        self.replay = Replay(self.graph)

    @property
    def finding(self) -> Finding:
        """Return the finding that fits best."""
        return self.explanation.best

    @property
    def on_one_host(self) -> bool:
        """Return whether all ranks, which are no more than a host holds, are on one host as far as the files name any."""
        hosts = {record.host for record in self.incident.ranks.values() if record.host}
        hosts |= {e.host for events in self.statements.kinds.values() for e in events if e.host}
        return len(hosts) == 1 and len(self.incident.ranks) <= _OF_A_HOST

    @property
    def from_text(self) -> bool:
        """Return whether the finding rests on text alone."""
        return self.explanation.from_text

    @property
    def frames_recorded(self) -> bool:
        """Return whether the recorder kept Python frames."""
        return any(kind.stack for kind in self.incident.kinds)

    @property
    def on_gloo(self) -> bool:
        """Return whether all recorded collectives are gloo's, whose recorder keeps no send and no receive."""
        return {kind.backend for kind in self.incident.kinds} - {""} == {"gloo"}

    @property
    def solid(self) -> bool:
        """Return whether the finding names collectives that differ or are missing, and not only lines or step counts."""
        return not isinstance(self.finding, Nothing) and (
            not self.from_text or self.finding.stuck.seq is not None
        )

    @property
    def whole_group(self) -> bool:
        """Return whether some input states the members of the stuck group, or how many there are."""
        group = self.finding.stuck.group
        if group is None or group.gid < 0 or self.from_text:
            return self.incident.size_stated
        return group.members_known and not group.partial

    @property
    def stacks(self) -> dict[int, Whereabouts]:
        """Return where a stack shows a rank's main thread, by rank."""
        return {r: w for r, w in sorted(self.statements.whereabouts.items()) if w.kind == "stack"}

    def elsewhere(self, ranks: Sequence[int]) -> list[int]:
        """Return those of `ranks` whose stack shows them at work outside of their pending collective.

        CPU threads that are blocked in a collective are at the same place as their peers, as are those that merely run
        ahead: only a place that few ranks share shows that a rank is elsewhere, unless all others are known to wait.
        """
        top = {rank: (w.stack[0].name, w.stack[0].file) for rank, w in self.stacks.items() if w.stack}
        places, few = Counter(top.values()), max(1, len(top) // 8)
        if self.incident.ranks.keys() - set(ranks) <= self.statements.inside.union(self.graph.waiting):
            few = len(ranks)
        alone = [r for r in ranks if r in top and not self.stacks[r].inside and places[top[r]] <= few]
        return [r for r in alone if not self._at_its_call(r)]

    def _at_its_call(self, rank: int) -> bool:
        """Return whether a stack ends in the line that issued a pending collective of its rank: a wait in C++ has no frame."""
        stack, pending = self.stacks[rank].stack, last_calls(self.incident, rank, State.STARTED)
        return stack[0] == user_frame(stack) and any(is_from(kind.stack, stack) for kind in pending)

    def stack_of(self, kind: CallKind | None, ranks: Iterable[int]) -> Stack:
        """Return where a collective was issued: its frames, or the stack or traceback of the first of `ranks` that shows one."""
        if kind is not None and (kind.stack or (self.frames_recorded and not self.from_text)):
            return kind.stack
        seen_at = (self.statements.whereabouts.get(rank) for rank in ranks)
        return next((where.stack for where in seen_at if where is not None and where.inside), ())

    def recorded(self, rank: int, text: str) -> Evidence:
        """Return a fact that a rank's recorded collectives show."""
        record = self.incident.ranks.get(rank)
        source = Source(record.calls_file or "") if record is not None else None
        return Evidence(record.recorder if record is not None else "dump", text, rank, source)

    def seen_at(self, rank: int) -> Evidence:
        """Return where the stack or traceback of a rank shows it."""
        where = self.statements.whereabouts[rank]
        text = f"rank {rank}'s stack: {frames_shown(where.stack)}"
        return Evidence(where.kind, text, rank, Source(where.source))

    def warned(self, *faults: str) -> list[NcclWarn]:
        """Return NCCL's warnings of these faults."""
        return [e for e in self.statements.all(NcclWarn) if e.fault in faults]

    def frame_of(self, kind: CallKind | None) -> Frame | None:
        """Return the line of the user's that issued a collective."""
        return user_frame(kind.stack) if kind is not None else None


def frames_shown(stack: Stack) -> str:
    """Return the frames of a stack that tell most: the innermost ones, or the innermost and those down to the user's line."""
    user = user_frame(stack)
    place = stack.index(user) if user is not None else 0
    if place < _FRAMES:
        return " <- ".join(map(str, stack[:_FRAMES]))
    return f"{stack[0]} <- ... <- {' <- '.join(map(str, stack[place - 2 : place + 1]))}"


@dataclass(slots=True)
class Match:
    """A rule's answer: the cause, the culprits, why, and how sure the rule can be at most.

    `strength` is 2 (the facts leave no other reading), 1 (the usual reading) or 0 (unconfirmed). `stack` is where the
    culprits issued their collective, where the finding does not have it; `frame_rank` is the rank that `frame` belongs to.
    `rivals` are (cause, why) that the same evidence allows; `suspects` must contain the culprit where nobody is named.
    `api` is the library call that the user wrote.
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
    suspects: tuple[int, ...] = ()
    api: str | None = None


Rule = Callable[[Case], "Match | None"]


def answer(
    cause: str,
    culprits: Iterable[int],
    why: str,
    *advice: str,
    strength: int = 1,
    evidence: Iterable[Evidence | Event] = (),
    frame: Frame | None = None,
    rivals: Iterable[tuple[str, str]] = (),
    suspects: Iterable[int] = (),
) -> Match:
    """Return a match; without advice with what the catalog says of the cause, and with lines among its evidence quoted."""
    named = tuple(culprits)
    steps = advice or (step.format(who=who(named, "the ranks")) for step in CATALOG[cause].fix)
    facts = [quote(item) if isinstance(item, Event) else item for item in evidence]
    match = Match(cause, named, why, strength, evidence=facts, advice=[*steps], frame=frame)
    return replace(match, rivals=[*rivals], suspects=tuple(suspects))


def who(ranks: Iterable[int], nobody: str = "some ranks") -> str:
    """Return ranks for a sentence, or `nobody` where none is named."""
    named = tuple(ranks)
    return ranks_phrase(named) if named else nobody


def at(frame: Frame | None) -> str:
    """Return a line of the user's for a sentence: ` (train.py:31)`, empty where it is not known."""
    return f" ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" if frame is not None else ""


def quote(event: Event, text: str | None = None, *, kind: str = "log", stance: str = "for") -> Evidence:
    """Return a line as evidence, as it was printed or in the words of `text`; one that a launcher or a kernel printed is of an exit."""
    source = Source(event.file, event.line)
    kind = "exit" if kind == "log" and event.by_launcher and event.rank is not None else kind
    return Evidence(kind, text or event.text, event.rank, source, stance=stance, quoted=text is None or None)


def of_outlier(line: OutlierLine) -> Evidence:
    """Return a line that a minority of the ranks printed, as evidence."""
    own = line.ranks[0] if line.how in ("only", "value") else None  # else it may be another rank's
    return Evidence("log", line.says(), own, Source(line.file, line.line))
