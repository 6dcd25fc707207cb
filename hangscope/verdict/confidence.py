"""How sure a verdict may be: what lowers its confidence, each doubt by its name.

The ranks and the cause have their own. Confidence starts from what the rule itself can establish, or from a proof (`proof.py`), and
falls with everything that is missing or assumed. A doubt is a function that yields the levels that a case leaves its match at most
(0 low, 1 medium), each with its reason. They are asked in the order of `DOUBTS`, and only those that lower a level are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hangscope.causes.case import Case, Match
from hangscope.causes.ends.process import shows_a_wait
from hangscope.explain.finding import Absent, Different, Lagging, Nothing, Unseen
from hangscope.explain.predict import MOST_REPLAYED, Replay
from hangscope.explain.statements.bounds import idle
from hangscope.explain.statements.deaths import doubt
from hangscope.explain.text.excerpt import beyond_the_text, not_collected, without_a_log
from hangscope.ingest.job_logs.activity import Computing
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooSizeMismatch
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.verdict.damage import BY_TEXT, damage
from hangscope.verdict.proof import OF_THE_LOOP, prove
from hangscope.verdict.status import trouble

LOW, MEDIUM, HIGH = 0, 1, 2
LEVELS = ("low", "medium", "high")
LEFT = 0.1  # of the waiting ranks, that still wait once the named ranks are imagined to behave
#: What a rule says of itself whose facts leave other readings open.
USUAL = "the most likely reading of this evidence"
_BY_STRENGTH = ("unconfirmed", USUAL, "the evidence identifies the cause")
#: Causes that say how a rank's program differs, and not only that its call does.
_OF_PROGRAMS = frozenset(
    {
        "shape_mismatch", "gradient_sync_mismatch", "rank_conditional_collective", "uneven_loader", "collective_order_mismatch",
        "collective_mismatch",
    }
)  # fmt: skip

#: Causes that lie with some of the ranks, of which the text that shows them usually tells more.
_OF_ONE_RANK = frozenset({"rank_conditional_collective", "p2p_mismatch"})

Doubts = Iterator[tuple[int, str]]


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
    rank = HIGH if proof.of_rank else match.strength
    likely = proof.lines and proof.of_rank and not case.from_text and match.cause != OF_THE_LOOP
    cause = HIGH if proof.of_cause else max(match.strength, MEDIUM if likely else LOW)
    reasons = [*filter(None, [proof.of_rank])]
    for doubts in DOUBTS:
        if (doubts is text_alone and proof.sources) or (
            doubts is no_history and (proof.lines or proof.sources)
        ):
            continue
        for most, why in doubts(case, match) if max(rank, cause) > LOW else ():
            if most < (cause if doubts in _OF_CAUSE else rank) or (doubts not in _OF_RANK and most < cause):
                reasons.append(why)
            rank = rank if doubts in _OF_CAUSE else min(rank, most)
            cause = cause if doubts in _OF_RANK else min(cause, most)
    return Confidence(rank, cause, [_BY_STRENGTH[min(rank, cause)], *reasons])


def _by_calls(case: Case, match: Match) -> bool:
    """Return whether a match depends on what the finding says of calls."""
    return not isinstance(case.finding, Nothing) and match.cause not in BY_TEXT


def _unseen(case: Case, match: Match) -> set[int]:
    """Return the ranks without a usable dump that others wait for, except the named ones."""
    ranks = {r for root in case.graph.roots if root.kind == "unseen" for r in root.ranks}
    return ranks - set(match.culprits)


def damaged(case: Case, match: Match) -> Doubts:
    """Files are damaged or lines torn, or an error is one that a peer's end brings about as well."""
    if why := damage(case, match):
        yield MEDIUM, why
    for death in case.statements.first_deaths if match.cause == "crashed_rank" else ():
        if death.rank in match.culprits and (why := doubt(death, case.statements)):
            yield MEDIUM, why


def went_on(case: Case, match: Match) -> Doubts:
    """Doubt a hang whose blocked rank logs further steps after its timeout, or that reports the end of its loop while no line reports an error."""
    gave_up = {(e.file, e.rank): e.line for e in case.statements.all(WatchdogTimeout)}
    for e in case.statements.all(Progress) if _by_calls(case, match) and match.cause != "slow_rank" else ():
        if e.step is not None and gave_up.get((e.file, e.rank), e.line) < e.line:
            yield LOW, f"{e.file} logs further steps after a timeout"
        if e.done and match.cause == "stuck_rank" and e.rank not in match.culprits and not trouble(case):
            yield LOW, "a line says that the loop ended, and no line reports an error"


def even_sides(case: Case, match: Match) -> Doubts:
    """Nobody is named because the ranks are evenly divided, and logs of ranks that may be on either side are missing."""
    unread = beyond_the_text(case.incident, case.statements) | without_a_log(case.incident, case.statements)
    if case.finding.tie and case.from_text and unread:
        yield LOW, f"the ranks are evenly divided, and logs are missing ({ranks_phrase(unread)})"
    if case.finding.tie and not match.culprits:
        yield MEDIUM, "the ranks are evenly divided, and earlier collectives do not show which are wrong"


def unnamed(case: Case, match: Match) -> Doubts:
    """Text shows a fault of some rank's program, and not whose: that narrows nothing down."""
    if case.from_text and not match.culprits and match.cause in _OF_ONE_RANK:
        yield LOW, "the logs do not show which rank did it"


def stay_blocked(case: Case, match: Match) -> set[int]:
    """Return who would still wait if the named ranks, and those that were not seen, did what is expected of them: too many to ignore."""
    if not _by_calls(case, match) or not 0 < len(match.culprits) <= MOST_REPLAYED:
        return set()
    freed = {*match.culprits, *_unseen(case, match)}
    left = Replay(case.graph).stuck(freed) - freed
    return set(left) if len(left) > LEFT * len(case.graph.waiting) else set()


def leaves_waiting(case: Case, match: Match) -> Doubts:
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


def guessed(case: Case, match: Match) -> Doubts:
    """Doubt evidence that is only what ranks printed last, or a single moment; or who waits for whom is assumed."""
    end, firm = case.statements.external, case.solid or match.cause in BY_TEXT
    signalled = end is not None and end.signal is not None and not firm and shows_a_wait(case)
    if signalled or (_by_calls(case, match) and case.finding.guess):
        yield LOW, "it rests on what the ranks printed last, or on counts or stacks of one moment"
    if _by_calls(case, match) and case.finding.assumed:
        yield (
            MEDIUM,
            "it rests on an assumption about which rank waits for which, or about which group a log line means",
        )


def of_one_moment(case: Case, match: Match) -> Doubts:
    """Ranks are in no call by dumps alone: so are several of a job that moves, and those whose dumps are older than others'."""
    if not isinstance(case.finding, Absent) or case.from_text:
        return
    waited = case.frame_of(case.finding.stuck.kind)
    seen_at = map(case.statements.whereabouts.get, match.culprits)
    raised = [where.stack for where in seen_at if where is not None and where.kind == "log" and where.op]
    if waited is not None and any(waited not in stack for stack in raised):
        yield LOW, "a traceback shows another collective, so the dump of its rank may be older than the hang"
    if case.graph.early and not trouble(case):
        yield (
            LOW,
            "another dump is older than those of its peers, and so may be the one that shows no pending collective",
        )
    if len(match.culprits) > 1 and not trouble(case):
        yield MEDIUM, "only dumps show several ranks without a pending collective, which may be momentary"


def died_beside(case: Case, match: Match) -> Doubts:
    """Another rank died independently: its peers wait for it, or abort their communicators, which completes collectives unevenly. Or the rank that seems to lag had nothing overdue when the others timed out, so its dump is older."""
    died = {death.rank for death in case.statements.deaths} - set(match.culprits)
    if match.cause == "stuck_rank" and isinstance(case.finding, Absent) and died:
        yield LOW, f"{ranks_phrase(died)} died independently"
    aborted = {e.rank for e in case.statements.all(GlooSizeMismatch) if e.rank is not None}
    if case.from_text and isinstance(case.finding, Different) and aborted - set(match.culprits):
        yield (
            LOW,
            f"{ranks_phrase(sorted(aborted))} got a message of another size, and may be what its peers wait for",
        )
    if match.cause != "gpu_stall" or not isinstance(case.finding, Lagging):
        return
    if gone := _unseen(case, match) | died:
        why = "may have died; the communicators of their peers then complete collectives unevenly"
        yield LOW, f"{ranks_phrase(gone)} {why}"
    if early := idle(case.statements).intersection(match.culprits):
        yield LOW, f"the log of {ranks_phrase(early)} shows nothing overdue, so its dump may be older"


def others_unseen(case: Case, match: Match) -> Doubts:
    """Other awaited ranks left no usable dump, or half of the group's members did not, or its members are not recorded. If a device seems to lag, one such member is enough, because it may have broken the collective."""
    finding, view, ranks = case.finding, case.finding.stuck.view, case.incident.ranks
    if not _by_calls(case, match):
        return
    if (gone := _unseen(case, match)) and not isinstance(finding, Different):
        yield MEDIUM, f"collectives are also missing {ranks_phrase(gone)}, of which there is no usable dump"
    if view is None:
        return
    # Of a group with sends and receives a frontier is not always known, although the rank was seen.
    others = [r for r in view.unseen if not (ranks[r].seen and view.group.gid in ranks[r].p2p)]
    if 2 * len(others) >= len(view.members) or (others and isinstance(finding, Lagging)):
        few = f"{len(others)} of {len(view.members)} members of the group were not seen"
        yield MEDIUM, f"{few} ({ranks_phrase(others)})"
    if isinstance(finding, Absent | Unseen) and not view.group.members_known and not match.frame:
        why = "the members of the group are not recorded, so no rank is certain to be missing from it"
        yield MEDIUM, why


def text_alone(case: Case, match: Match) -> Doubts:
    """No dump recorded a collective; or most ranks have not even a log, and no line reports a wait or an end, so the job may have continued."""
    records, statements = case.incident.ranks.values(), case.statements
    silent = sum(not record.files and not record.events for record in records)
    if case.from_text and 2 * silent > len(records) and not (statements.exits or statements.witnesses):
        yield MEDIUM, f"most ranks left no log ({silent} of {len(records)})"
    if case.from_text and not case.solid and match.cause not in BY_TEXT | {"slow_rank"}:
        yield MEDIUM, "there is no recorder dump"


def computing(case: Case, match: Match) -> Doubts:
    """Doubt that a rank is stuck if it used the CPU between two captures: it may still arrive."""
    busy = [r for r in match.culprits if case.statements.of(r, Computing)]
    if match.cause in ("stuck_rank", "slow_rank") and busy:
        yield (
            MEDIUM,
            f"{ranks_phrase(busy)} {agree(busy, 'was', 'were')} computing between two looks, and may come yet",
        )


def no_history(case: Case, match: Match) -> Doubts:
    """Doubt a cause where logs show the outlier's collective but not the ones before it; or no frames distinguish collectives of one op."""
    finding, ranks = case.finding, case.incident.ranks
    if match.cause not in _OF_PROGRAMS or finding.stuck.view is None:
        return
    own, peer = finding.own.kind, finding.stuck.kind
    other_op = own is not None and peer is not None and own.op != peer.op
    by_logs = match.culprits and all(ranks[r].absence is Absence.TOLD for r in match.culprits if r in ranks)
    if by_logs and (not other_op or finding.change.elsewhere or finding.assumed):
        why = "the logs show op and size of the outlier's collective, but not the ones before it, so other causes remain possible"
        yield LOW, why
    if not case.frames_recorded and not case.from_text:
        shown = finding.change.realigned or match.cause == "collective_order_mismatch"
        why = "no Python frames were recorded, so collectives of one op from different lines look the same"
        yield MEDIUM if shown else LOW, why
    queues = [ranks[r].queues.get(finding.stuck.view.group.gid) for r in match.culprits if r in ranks]
    if (
        not finding.change.realigned
        and match.strength < HIGH
        and any(q is not None and q.overwritten for q in queues)
    ):
        yield (
            MEDIUM,
            "older collectives were overwritten, so what the named ranks did differently before is not known",
        )


def left_or_died(case: Case, match: Match) -> Doubts:
    """Doubt that a silent rank crashed if the last that it printed is a line of its own: it may say why the rank left."""
    own = [odd for odd in case.statements.outlier_lines if odd.telling and odd.ranks == match.culprits]
    if match.cause == "crashed_rank" and isinstance(case.finding, Unseen) and own:
        yield LOW, "no line shows how it ended, and what it alone printed may say why it left"


def not_here(case: Case, match: Match) -> Doubts:
    """Doubt a named rank that may itself be waiting for ranks of which nothing was collected."""
    gone = not_collected(case.incident, case.statements) - set(match.culprits)
    placed = any(case.statements.of(r, DumpObserved) for r in match.culprits)
    own_words = any(i.rank in match.culprits and i.kind in ("log", "exit", "stack") for i in match.evidence)
    absent = isinstance(case.finding, Absent) and len(gone) > 1 and not placed
    lags = isinstance(case.finding, Lagging) and match.cause == "gpu_stall"
    doubtful = absent or ((lags or isinstance(case.finding, Unseen)) and not own_words)
    if gone and doubtful and not case.from_text:
        yield (
            LOW,
            f"nothing was collected of {ranks_phrase(gone)}, and the named rank may be waiting for {agree(gone, 'it', 'them')}",
        )


DOUBTS: tuple[Callable[[Case, Match], Doubts], ...] = (
    damaged, went_on, even_sides, unnamed, leaves_waiting, guessed, of_one_moment, died_beside, computing, others_unseen, text_alone, no_history,
    left_or_died, not_here,
)  # fmt: skip
_OF_CAUSE = (no_history, left_or_died)  # doubts about why alone, and about who alone
_OF_RANK = (even_sides, unnamed)
