"""The evidence for and against a verdict, which of it decides, what is missing, and the verdict as one hypothesis.

A line that occurs in any hang, such as the timeout of a blocked rank, decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from hangscope.causes.case import Case, Match, of_outlier, quote
from hangscope.causes.ends.process import how_ended
from hangscope.causes.mismatch import describe, received
from hangscope.explain.statements.statements import WAITED
from hangscope.explain.text.steps import is_last, last_output
from hangscope.ingest.evidence.stack_owners import OF_NO_RANK
from hangscope.ingest.torch_logs.c10d import DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.callsite import user_frames
from hangscope.model.conclusion import Collect, Evidence, Hypothesis, Source, Verdict
from hangscope.model.events import Event
from hangscope.model.incident import Absence, CallKind, on_group
from hangscope.model.rankset import agree, counted, ranks_phrase
from hangscope.verdict.rivals import blocked_without

MOST = 40  # facts that are listed
MOST_DECIDING = 3
_MOST_LINES = 8
_ENDS = frozenset({"crashed_rank", "early_exit"})
_NOT_WAITING = frozenset({"crashed_rank", "stuck_rank", "early_exit"})
#: What ranks that wait print in any hang.
_ANYWAY = (WatchdogTimeout, GlooTimeout, GlooClosed, WatchdogStatus, DumpSignal)


def collect(case: Case, match: Match, missing: list[str]) -> list[Evidence]:
    """Return the evidence for a match, against it, and what is missing, without repeats."""
    found = (
        *_calls(case),
        *_edits(case),
        *match.evidence,
        *map(quote, case.finding.events[:8]),
        *_corroboration(case, match),
        *islice(_against(case, match), 7),
        *(Evidence("method", text, stance="missing") for text in missing),
    )
    return unique(found)[:MOST]


def unique(found: Iterable[Evidence]) -> list[Evidence]:
    """Return evidence without repeats: of one text about one rank the first."""
    kept: dict[tuple[str, int | None], Evidence] = {}
    for item in found:
        kept.setdefault((item.text, item.rank), item)
    return list(kept.values())


def _calls(case: Case) -> Iterator[Evidence]:
    """Yield what the members issued at the seq where ranks are stuck, and how far the culprits are that have not reached it."""
    stuck = case.finding.telling
    view, seq = stuck.view, stuck.seq
    if view is None or seq is None or stuck.pair is not None:
        return
    alike: dict[CallKind | None, list[int]] = defaultdict(list)
    reached = {rank: view.members[rank].enqueued or 0 for rank in view.seen}
    for rank, enqueued in reached.items():
        kind = view.kind_of(rank, seq)
        if kind is not None or enqueued >= seq:
            alike[kind].append(rank)
    for kind in [k for k in alike if k is not None and not k.stack]:
        # Where the recorder kept no frames, the call is not known to be another one.
        placed = [k for k in alike if k is not None and k.stack and replace(k, stack=()) == kind]
        if len(placed) == 1:
            alike[placed[0]] = sorted(alike[placed[0]] + alike.pop(kind))
    for kind, ranks in sorted(alike.items(), key=lambda item: (-len(item[1]), item[1]))[:6]:
        place = f" at {frame}" if (frame := case.frame_of(kind)) is not None else ""
        yield case.recorded(ranks[0], f"{ranks_phrase(ranks)} issued {describe(kind)} seq {seq}{place}")
    for rank in [r for r in case.finding.culprits if reached.get(r, seq) < seq][:4]:
        member, completed = view.members[rank], view.completed(rank) or 0
        done = f"last completed seq {completed}" if completed else "it completed none"
        if not member.queue.tells_completion or (member.unknown and completed < reached[rank]):
            done = "completions were not recorded"
        far = f"last enqueued seq {reached[rank]}" if reached[rank] else "has enqueued nothing"
        yield case.recorded(rank, f"rank {rank} {far} {on_group(view.group.label)}; {done}")


def _edits(case: Case) -> Iterator[Evidence]:
    """Yield what the culprits issued in addition or skipped, and whether several dumps show them at one collective."""
    finding, change = case.finding, case.finding.change
    if change.realigned and not change.postponed:
        number = counted(abs(change.shift), "more collective" if change.shift > 0 else "fewer collective")
        where = f"{'at' if change.skipped or change.added else 'before'} seq {finding.own.seq}"
        if finding.own.gid is not None:
            where += f" of group {case.incident.groups[finding.own.gid].label}"
        text = f"{ranks_phrase(finding.culprits)} issued {number} {where}; {agree(finding.culprits, 'its', 'their')} next {change.matched} match those of the others, shifted by {abs(change.shift)}"
        yield case.recorded(finding.culprits[0], text)
    for rank in finding.culprits:
        record = case.incident.ranks.get(rank)
        if record is not None and (same := record.unchanged_snapshots):
            yield Evidence("dump", f"rank {rank} is at the same collective in {same + 1} dumps", rank)


def _corroboration(case: Case, match: Match) -> list[Evidence]:
    """Return quotes of log lines with their stance to a verdict, those of the culprits first."""
    culprits = set(match.culprits)
    lines = case.statements.outlier_lines
    found = [of_outlier(line) for line in lines if not culprits or culprits.issuperset(line.ranks)]
    if not case.from_text:  # else the finding names its lines itself
        found += [*_of_culprits(case, match), *_of_waiting(case, match)]
    known = {item.source for item in match.evidence}
    by_source: dict[Source | None, Evidence] = {}
    for item in found:
        by_source.setdefault(item.source, item)
    return [item for source, item in by_source.items() if source not in known][:_MOST_LINES]


def _of_culprits(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the culprits themselves printed."""
    for rank in match.culprits[:4]:
        words = last_output(case.statements, rank)
        if words is not None and (words.done or words.leaving) and is_last(case.statements, words):
            yield quote(words, f"rank {rank} printed last: {words.text}")
        for raised in case.statements.of(rank, RankException)[:1]:
            if raised.symptom and match.frame is not None and match.frame in user_frames(raised.frames):
                text = f"rank {rank}'s traceback shows {match.frame}: {raised.text}"
                yield quote(raised, text)
        for waited in case.statements.of(rank, *WAITED)[:1] if match.cause in _NOT_WAITING else ():
            text = f"rank {rank} was still alive when it {_end_of(waited)}: {waited.text}"
            yield quote(waited, text, stance="against")


def _of_waiting(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the blocked ranks printed, one line of each kind: that they waited, in which collective, and what they lost."""
    yield from received(case)
    ranks = [rank for rank in case.finding.waiting if rank not in match.culprits]
    events = [e for rank in ranks for e in case.statements.of(rank, *WAITED)[:1]]
    first: dict[type[Event], Event] = {}
    for event in events:
        first.setdefault(type(event), event)
    for event in first.values():
        yield quote(event, f"rank {event.rank} was blocked until it {_end_of(event)}: {event.text}")


def _end_of(wait: Event) -> str:
    """Return how a wait ended, in words."""
    if isinstance(wait, GlooClosed):
        return "lost a peer"
    return "timed out" if isinstance(wait, WatchdogTimeout | GlooTimeout) else "timed out or lost a peer"


def _against(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield who terminated a job that had another cause to stop, and the evidence against the verdict: the launcher's own root cause, other deaths."""
    if (end := case.statements.external) is not None and match.category != "external":
        yield quote(end, f"in the end {how_ended(end)}: {end.text}", kind="exit")
    for rank, event in sorted(case.statements.exits.items()):
        if event.first and match.culprits and rank not in match.culprits:
            text = f"the launcher reports rank {rank} as its first observed failure: the first that it polled, often a victim"
            stance = "against" if match.cause in _ENDS else "for"
            yield quote(event, text, kind="exit", stance=stance)
    for death in case.statements.deaths:
        if death.rank not in match.culprits:
            text = f"rank {death.rank} {death.how} as well, later or as a consequence: {death.event.text}"
            yield quote(death.event, text, stance="against")


def deciding(case: Case, match: Match, evidence: Sequence[Evidence]) -> tuple[int, ...]:
    """Return the indexes of the evidence that distinguishes this cause from its rivals, the most decisive first."""
    culprits = set(match.culprits)
    anyway = {(e.file, e.line) for e in case.statements.all(*_ANYWAY) if e.rank not in culprits}
    own = {(item.text, item.rank) for item in match.evidence}
    ranked = []
    for index, item in enumerate(evidence):
        source = item.source and (item.source.file, item.source.line)
        weight = (item.rank in culprits, (item.text, item.rank) in own, item.kind == "dump")
        counts = item.stance == "for" and item.kind != "method" and source not in anyway
        if counts and (any(weight) or not culprits):
            ranked.append((*(not part for part in weight), index))
    return tuple(index for *_, index in sorted(ranked)[:MOST_DECIDING])


def hypothesis(case: Case, match: Match, verdict: Verdict) -> Hypothesis:
    """Return the verdict's own explanation, with what fits it and what contradicts it."""
    against = tuple(item.text for item in verdict.evidence if item.stance == "against")[:3]
    fits = tuple(verdict.evidence[i].text for i in verdict.deciding) or (match.why,)
    # A wait that only text shows is no graph that could be replayed.
    explains_all = case.finding.explained >= len(case.finding.waiting)
    left = () if explains_all else blocked_without(case, verdict.culprit_ranks)
    return Hypothesis(match.cause, verdict.culprit_ranks, fits, (*left, *against))


def missing_inputs(case: Case) -> list[Collect]:
    """Return what was not collected, with the setting that brings it next time."""
    records, result = case.incident.ranks.values(), list[Collect]()
    everybody = tuple(sorted(case.incident.ranks))
    unusable = (Absence.STALE, Absence.UNREADABLE)
    left = case.statements.left_quietly  # and so wrote none
    gone = [r.rank for r in records if (r.dump_file is None and r.rank not in left) or r.absence in unusable]
    if all(r.dump_file is None for r in records):
        how = "set TORCH_FR_BUFFER_SIZE to 2000 or more; with gloo, call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread"
        result.append(Collect(everybody, "dump", f"Collect the Flight Recorder dump of each rank: {how}"))
    elif gone:
        spoilt = [rank for rank in gone if case.incident.ranks[rank].absence in unusable]
        text = f"Collect the Flight Recorder {agree(gone, 'dump', 'dumps')} of {ranks_phrase(gone)}"
        those, are = agree(spoilt, "that", "those"), agree(spoilt, "is", "are")
        text += f"; {those} of {ranks_phrase(spoilt)} {are} not usable" if spoilt else ""
        result.append(Collect(tuple(gone), "dump", text))
    if case.incident.momentary:
        why = "these were written within a second of the last collective, or at different moments"
        result.append(Collect(everybody, "dump", f"Take the dumps again a minute later: {why}"))
    if not case.statements.whereabouts:
        text = "Take a stack of each rank: py-spy dump --pid PID, or faulthandler.dump_traceback_later"
        if any(note.code == OF_NO_RANK for note in case.incident.notes):
            text = "Say which ranks the stacks are of: write `=== rank 3 ===` above each, or name the files stack_rank_3.txt"
        result.append(Collect(everybody, "stack", text))
    logged = any(r.events or set(r.files) - {r.dump_file} for r in records)
    if not logged and not case.statements.kinds:
        text = "Collect one log per rank: torchrun --log-dir DIR --tee 3"
        result.append(Collect(everybody, "log", text))
    return result


def next_files(case: Case, missing: Sequence[Collect]) -> list[Collect]:
    """Return what to fetch next, what is missing of the suspects first."""
    records, ended = case.incident.ranks, {death.rank for death in case.statements.deaths}
    ended.update(case.statements.left_quietly, case.statements.exits)
    recent = {r for r, record in records.items() if record.dump_file is not None} - case.graph.early
    unseen = tuple(r for r in case.explanation.suspects if r not in recent and r not in ended)
    if not unseen:
        return [*missing]
    what = "dump or a stack" if len(unseen) == 1 else "dumps or stacks"
    if case.stacks.keys() >= set(unseen):
        what = agree(unseen, "dump", "dumps")
    where = f", to see where {agree(unseen, 'it is', 'they are')}"
    first = Collect(unseen, "dump", f"Fetch the {what} of {ranks_phrase(unseen)} first{where}")
    return [first, *missing]
