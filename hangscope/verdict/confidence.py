"""How sure a verdict may be: what lowers its confidence, each doubt by its name.

The ranks and the cause have their own. Confidence starts from what the rule itself can establish, or from a proof (`proof.py`), and
falls with everything that is missing or assumed. A doubt is a function that yields the levels that a case leaves its match at most
(0 low, 1 medium), each with its reason. They are asked in the order of `DOUBTS`, and only those that lower a level are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hangscope.causes.case import Case, Match
from hangscope.explain.finding import (
    Absent,
    Different,
    Extra,
    Lagging,
    Miscounted,
    Nothing,
    OtherRoot,
    Source,
)
from hangscope.explain.predict import MOST_REPLAYED
from hangscope.explain.statements.bounds import idle
from hangscope.explain.statements.deaths import doubt, endings, raised_by_victims
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import WAITED
from hangscope.explain.text.stop import stopped
from hangscope.ingest.job_logs.activity import Computing
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.damage import cut, damage
from hangscope.verdict.proof import OF_THE_LOOP, Proof, prove
from hangscope.verdict.status import trouble

LOW, MEDIUM, HIGH = 0, 1, 2
LEVELS = ("low", "medium", "high")
Doubts = Iterator[tuple[int, str]]
LEFT = 0.1  # of the waiting ranks, that still wait once the named ranks are imagined to behave
#: What a rule says of itself whose facts leave other readings open.
USUAL = "the most likely reading of this evidence"
_BY_STRENGTH = ("unconfirmed", USUAL, "the evidence identifies the cause")
#: Causes that are the fault of some of the ranks, on which the text that shows them usually says more.
_OF_ONE_RANK = frozenset({"rank_conditional_collective", "p2p_mismatch"})
#: Causes that are the end, or the device, of one process.
_OF_A_PROCESS = frozenset({"crashed_rank", "gpu_stall"})
#: Causes that a dump of an earlier moment shows as well.
_OF_A_MOMENT = frozenset({"stuck_rank", "gpu_stall"})


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure a verdict is of its ranks and of its cause (2 high, 1 medium, 0 low), and the reasons of each step."""

    rank: int
    cause: int
    reasons: list[str]

    @property
    def level(self) -> int:
        """Return the lower of the two."""
        return min(self.rank, self.cause)


def confidence(case: Case, match: Match) -> Confidence:
    """Return how sure a match is: what its rule establishes, or a proof, less every doubt."""
    proof = prove(case, match)
    likely = proof.of_rank and proof.lines and match.cause != OF_THE_LOOP
    rank = HIGH if proof.of_rank else match.strength
    cause = HIGH if proof.of_cause else max(match.strength, MEDIUM if likely else LOW)
    reasons = [proof.of_rank] if proof.of_rank else []
    for doubts, of_rank, of_cause in DOUBTS:
        for most, why in doubts(case, match, proof):
            if (of_rank and most < rank) or (of_cause and most < cause):
                reasons.append(why)
            rank = min(rank, most) if of_rank else rank
            cause = min(cause, most) if of_cause else cause
    return Confidence(rank, cause, [_BY_STRENGTH[min(rank, cause)], *reasons])


def _by_calls(case: Case, match: Match) -> bool:
    """Return whether a match depends on what the finding says of collectives."""
    return not isinstance(case.finding, Nothing) and not CATALOG[match.cause].by_text


def _unseen(case: Case, match: Match) -> set[int]:
    """Return the ranks without a usable dump that others wait for, except the named ones."""
    ranks = {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
    return ranks - set(match.culprits)


def stay_blocked(case: Case, match: Match) -> set[int]:
    """Return who would still wait if the named ranks, and those that were not seen, did what is expected of them: too many to ignore."""
    if not _by_calls(case, match) or not 0 < len(match.culprits) <= MOST_REPLAYED:
        return set()
    if isinstance(case.finding, Miscounted):
        return set()  # who has not come waits in a send or receive that no recorder keeps
    freed = {*match.culprits, *_unseen(case, match)}
    left = case.replay.stuck(freed) - freed
    return set(left) if len(left) > LEFT * len(case.graph.waiting) else set()


def damaged(case: Case, match: Match, proof: Proof) -> Doubts:
    """Files are damaged or lines torn, or an error is one that the end of a peer causes as well."""
    if why := damage(case, match):
        yield MEDIUM, why
    if match.cause != "crashed_rank":
        return
    printed, victims = endings(case.statements), raised_by_victims(case.statements)
    ends = [death.event for death in case.statements.first_deaths]
    aborted = bool(ends) and all(isinstance(end, Exit) and end.signal == "SIGABRT" for end in ends)
    others = case.statements.ranks(*WAITED) - set(match.culprits)
    if aborted and match.culprits and not (case.solid or others):
        yield LOW, "who loses a peer is aborted, too, and no other rank is known to have waited"
    for death in case.statements.first_deaths:
        if why := doubt(death, case.statements, printed, victims) or cut(case.incident, death.event):
            yield MEDIUM, why


def went_on(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt a hang whose blocked rank logs further steps after its timeout, or where another one reports the end of its loop or job, and no line an error."""
    steps = case.statements.all(Progress) if _by_calls(case, match) and match.cause != "slow_rank" else []
    gave_up = {(e.file, e.rank): e.line for e in case.statements.all(WatchdogTimeout)}
    if after := [e for e in steps if e.step is not None and gave_up.get((e.file, e.rank), e.line) < e.line]:
        yield LOW, f"{after[0].file} logs further steps after a timeout"
    done = any((e.done or e.over) and e.rank not in match.culprits for e in steps)
    if done and match.cause == "stuck_rank" and not trouble(case):
        yield LOW, "a line says that the loop or the job ended, and no line reports an error"


def unnamed(case: Case, match: Match, proof: Proof) -> Doubts:
    """Nobody is named: the ranks are evenly divided, or text shows a fault of some rank's program and not which."""
    if case.from_text and not match.culprits and match.cause in _OF_ONE_RANK:
        yield LOW, "the logs do not show which rank did it"
    reported = {item.rank for item in match.evidence if item.rank is not None}
    of_one = match.cause in _OF_A_PROCESS and match.category != "external" and len(reported) < 2
    if of_one and not match.culprits:
        yield LOW, "the text does not show which rank the process is"
    if case.finding.tie and not match.culprits:
        yield MEDIUM, "the ranks are evenly divided, and earlier collectives do not show which are wrong"


def leaves_waiting(case: Case, match: Match, proof: Proof) -> Doubts:
    """Ranks would still wait, whatever the named ones did."""
    if not (left := stay_blocked(case, match)):
        return
    freed = {*match.culprits, *_unseen(case, match)}
    for root in case.graph.roots:
        if root.ranks and freed.isdisjoint(root.ranks) and left <= root.explains:
            others = left - set(root.ranks)
            why = f"{ranks_phrase(root.ranks)} would keep {ranks_phrase(others)} blocked in any case"
            yield LOW, why if others else f"{ranks_phrase(left)} would stay blocked in any case"
    yield MEDIUM, f"it does not account for {ranks_phrase(left)}, which would stay blocked"


def guessed(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt evidence that is only what ranks printed last, or a single moment; or it is assumed which rank waits for which."""
    end, finding = case.statements.external, case.finding
    firm = case.solid or CATALOG[match.cause].by_text
    busy = [rank for rank in match.culprits if case.statements.of(rank, Computing)]
    if match.cause in ("stuck_rank", "slow_rank") and busy:
        were = agree(busy, "was", "were")
        yield MEDIUM, f"{ranks_phrase(busy)} {were} computing between two captures, and may still arrive"
    late = match.cause in ("stuck_rank", "slow_rank") and not stopped(case.statements)
    if late and end is not None and stood_still(case.incident, case.statements, end) is not True:
        yield MEDIUM if firm else LOW, "the job was ended from outside, perhaps while it made progress"
    if _by_calls(case, match) and finding.guess:
        yield LOW, "it rests on what the ranks printed last, or on counts or stacks of one moment"
    if _by_calls(case, match) and finding.assumed:
        what = "which rank waits for which, or about which group a log line means"
        yield MEDIUM, f"it rests on an assumption about {what}"
    if isinstance(finding, Absent) and not (case.from_text or case.stacks or trouble(case)):
        why = "only dumps of one moment show ranks without a pending collective"
        yield LOW if case.graph.early else MEDIUM, why


def others_may_be(case: Case, match: Match, proof: Proof) -> Doubts:
    """Other awaited ranks left no usable dump, or half of the group's members did not; or gloo aborted a rank that is not named."""
    finding, view, ranks = case.finding, case.finding.telling.view, case.incident.ranks
    aborted = case.statements.ranks(GlooSizeMismatch) - set(match.culprits)
    source = next((w.source for w in case.explanation.weighed if w.finding is finding), None)
    by_place = isinstance(finding, Different) and source is Source.SILENCE
    if len(match.culprits) > 1 and (by_place or (isinstance(finding, Extra) and source is Source.REPORT)):
        yield LOW, "nothing shows which of these ranks parted from the others first"
    if case.from_text and isinstance(finding, Different) and aborted:
        why = "got a message of another size, and may be what its peers wait for"
        yield LOW, f"{ranks_phrase(aborted)} {why}"
    if not _by_calls(case, match):
        return
    telling = {line.ranks for line in case.statements.outlier_lines if line.telling and line.how == "only"}
    if match.culprits and telling and all(match.culprits != own for own in telling):
        odd = sorted(rank for own in telling for rank in own)
        why = f"alone printed something right before, and {ranks_phrase(match.culprits)} did not"
        yield MEDIUM, f"{ranks_phrase(odd)} {why}"
    if (gone := _unseen(case, match)) and not isinstance(finding, Different):
        yield MEDIUM, f"collectives are also missing {ranks_phrase(gone)}, of which there is no usable dump"
    # Of a group with sends and receives it is not always known how far a rank is, although the rank was seen.
    members = view.members if view is not None else ()
    unknown = view.unseen if view is not None else ()
    unseen = [r for r in unknown if not (ranks[r].seen and view and view.group.gid in ranks[r].p2p)]
    if 2 * len(unseen) >= max(1, len(members)) or (unseen and isinstance(finding, Lagging)):
        few = f"{len(unseen)} of {len(members)} members of the group were not seen"
        # What one of two even sides shows may be what those do that were not seen.
        even = isinstance(finding, Different) and 2 * len(match.culprits) >= len(members) - len(unseen)
        certain = bool(finding.change.votes or proof.of_rank)
        yield LOW if even and not certain else MEDIUM, f"{few} ({ranks_phrase(unseen)})"


def older_dumps(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that a rank is absent or lags: its dump may be older than the hang."""
    finding = case.finding
    if case.from_text or not isinstance(finding, Absent | Lagging) or match.cause not in _OF_A_MOMENT:
        return
    died = {death.rank for death in case.statements.deaths} - set(match.culprits)
    if gone := died | (_unseen(case, match) if isinstance(finding, Lagging) else set()):
        why = "may have died; the communicators of their peers then complete collectives unevenly"
        yield LOW, f"{ranks_phrase(gone)} {why}"
    early = idle(case.statements).intersection(match.culprits) if isinstance(finding, Lagging) else ()
    if early:
        yield LOW, f"the log of {ranks_phrase(early)} shows nothing overdue, so its dump may be older"
    waited, places = case.frame_of(finding.stuck.kind), case.statements.whereabouts
    seen_at = [places[rank] for rank in match.culprits if rank in places]
    if any(w.kind == "log" and w.op and waited is not None and waited not in w.stack for w in seen_at):
        yield LOW, "a traceback shows another collective, so the dump of its rank may be older than the hang"


def text_alone(case: Case, match: Match, proof: Proof) -> Doubts:
    """No dump recorded a collective, and no two sources agree."""
    by_itself = CATALOG[match.cause].by_text or match.cause == "slow_rank"
    if case.from_text and not case.solid and not by_itself and not (proof.sources or proof.lines):
        yield MEDIUM, "there is no recorder dump"


def no_history(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt a cause where logs show the outlier's collective but not the ones before it; or no frames distinguish collectives of one op."""
    finding, ranks = case.finding, case.incident.ranks
    proven = proof.lines or proof.sources or proof.counts or isinstance(finding, OtherRoot)
    if not CATALOG[match.cause].of_programs or finding.stuck.view is None or proven:
        return
    own, peer = finding.own.kind, finding.stuck.kind
    other_op = own is not None and peer is not None and own.op != peer.op
    by_logs = match.culprits and all(ranks[r].absence is Absence.TOLD for r in match.culprits if r in ranks)
    if by_logs and (not other_op or finding.change.elsewhere or finding.assumed):
        why = "the logs show op and size of the outlier's collective, but not the ones before it, so other causes remain possible"
        yield MEDIUM, why
    if not case.frames_recorded and not case.from_text:
        shown = finding.change.realigned or match.cause == "collective_order_mismatch"
        why = "no Python frames were recorded, so collectives of one op from different lines look the same"
        yield MEDIUM if shown else LOW, why


def may_wait_unrecorded(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that several ranks without a stack are busy, if their recorders count operations that they do not keep: they may wait for each other."""
    named = match.culprits if match.cause == "stuck_rank" and len(match.culprits) > 1 else ()
    queues = (queue for rank in named for queue in case.incident.ranks[rank].queues.values())
    if case.stacks.keys().isdisjoint(named) and any(queue.issued is not None for queue in queues):
        yield LOW, "they may wait in sends or receives, which gloo's recorder counts and does not keep"


#: Each with whether it is about the ranks, and about the cause.
DOUBTS: tuple[tuple[Callable[[Case, Match, Proof], Doubts], bool, bool], ...] = (
    (damaged, True, True),
    (went_on, True, True),
    (unnamed, True, False),
    (leaves_waiting, True, True),
    (guessed, True, True),
    (others_may_be, True, True),
    (older_dumps, True, True),
    (text_alone, True, True),
    (no_history, False, True),
    (may_wait_unrecorded, True, True),
)
