"""What a rule sees, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field

from hangscope.align.waitgraph import WaitGraph
from hangscope.conclusion import Evidence, Source
from hangscope.dataclass import dataclass
from hangscope.explain.finding import Explanation, Finding, Nothing
from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind, Event, Frame, Incident, Stack
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.library import Knowledge, own_knowledge


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
    def solid(self) -> bool:
        """Return whether the finding names calls that differ or are missing, and not only lines or step counts."""
        return not isinstance(self.finding, Nothing) and (
            not self.from_text or self.finding.stuck.seq is not None
        )

    def elsewhere(self, ranks: Sequence[int]) -> list[int]:
        """Return those of `ranks` whose stack shows them at work outside the call that they left open.

        A host that is blocked in its call, or waits for its result, stands where its peers stand; hosts that merely run
        ahead of their devices stand together, too. Only a place of its own tells.
        """
        places: Counter[tuple[str, str]] = Counter()
        for rank in self.graph.open_calls:
            where = self.statements.whereabouts.get(rank)
            if where is not None and where.kind == "stack" and where.stack:
                places[(where.stack[0].name, where.stack[0].file)] += 1
        rare = max(1, sum(places.values()) // 8)
        result = []
        for rank in ranks:
            where = self.statements.whereabouts.get(rank)
            if where is None or where.kind != "stack" or where.inside or not where.stack:
                continue
            place = (where.stack[0].name, where.stack[0].file)
            if places[place] <= rare < sum(places.values()) and not self._made_its_call_at(rank, place):
                result.append(rank)
        return result

    def _made_its_call_at(self, rank: int, place: tuple[str, str]) -> bool:
        """Return whether a rank's first open call was made by the function that its stack stands in."""
        calls = self.graph.open_calls.get(rank, [])
        record = self.incident.ranks[rank]
        for queue in (*record.queues.values(), *record.p2p.values()) if calls else ():
            for order, kind in zip(queue.order[-256:], queue.kind[-256:], strict=True):
                if int(order) == calls[0].order:
                    made = user_frame(self.incident.kinds[int(kind)].stack)
                    return made is not None and (made.name, made.file) == place
        return False

    def frame_of(self, kind: CallKind | None) -> Frame | None:
        """Return the user frame of a call."""
        return user_frame(kind.stack) if kind is not None else None


@dataclass(slots=True)
class Match:
    """A rule's answer: the cause, whom it names, why, and how sure the rule can be at most.

    `strength` is 2 (the facts leave no other reading), 1 (the usual reading) or 0 (a guess that the report marks as such).
    `api` is the library call that the user wrote; `stack` where the
    culprits made their odd call, where the finding does not hold it; `rivals` are (cause, why) that the same evidence allows.
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
    api: str | None = None
    stack: Stack = ()
    rivals: list[tuple[str, str]] = field(default_factory=list)


Rule = Callable[[Case], "Match | None"]


def quote(event: Event, text: str | None = None, *, kind: str = "log", stance: str = "for") -> Evidence:
    """Return a text event as evidence, with where it stands."""
    return Evidence(kind, text or event.text, event.rank, Source(event.file, event.line), stance=stance)
