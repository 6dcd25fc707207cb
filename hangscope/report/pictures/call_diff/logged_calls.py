"""The collectives of both sides where logs show them and no dump does: a last row of the call diff, or all of it."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import CallRef
from hangscope.model.rankset import compress
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.schema.pictures import CallDiff, DiffCell, DiffClass, DiffGroup, DiffRow
from hangscope.report.subject import Subject
from hangscope.report.words import call_words, sizes_words

_NOTE = "from the logs"


def logged_row(subject: Subject, chosen: Sequence[Behaviour]) -> list[DiffRow]:
    """Return the row of the verdict's two collectives, if they differ and no column shows a pending one of either side."""
    verdict = subject.verdict
    if not _words(verdict.waiting_call) or any(subject.first_open(b.ranks[0]) for b in chosen):
        return []
    culprits, waiting = frozenset(verdict.culprit_ranks), frozenset(verdict.waiting_ranks)
    cells = []
    for behaviour in chosen:
        ranks = set(behaviour.ranks)
        if ranks & culprits:
            cells.append(_cell(subject, verdict.culprit_call, "differs"))
        elif ranks & waiting:
            cells.append(_cell(subject, verdict.waiting_call, "same"))
        else:
            cells.append(DiffCell("no_part", note="not in the logs"))
    differs = 1 if any(cell.mark == "differs" for cell in cells) else None
    return [DiffRow(tuple(cells), differs)]


def logged_diff(subject: Subject) -> CallDiff | None:
    """Return the diff that logs alone give: one row with the collectives of both sides; None where they are not known."""
    verdict = subject.verdict
    if not _words(verdict.waiting_call) or not verdict.waiting_ranks:
        return None
    waiting = _class("waiting", verdict.in_call or verdict.waiting_ranks, verdict.waiting_call)
    classes, cells, differs = [waiting], [_cell(subject, verdict.waiting_call, "same")], None
    if verdict.culprit_ranks:
        call, differs = verdict.culprit_call, 1
        classes.append(_class("culprit", verdict.culprit_ranks, call))
        absent = DiffCell("not_reached", note="not issued")
        cells.append(_cell(subject, call, "differs") if call is not None else absent)
    groups = (DiffGroup(subject.gid, subject.label(subject.gid), 0),) if subject.gid is not None else ()
    return CallDiff(tuple(classes), groups, (DiffRow(tuple(cells), differs),), 0, differs or 0)


def logged_state(subject: Subject, behaviour: Behaviour) -> str:
    """Return where logs show a class without a pending collective in its dumps; empty where they do not."""
    verdict, words = subject.verdict, ""
    if behaviour.role == "waiting" and verdict.cause:
        words = "waited" if subject.over else "waiting"
        if set(behaviour.ranks) <= set(verdict.in_call) and _words(verdict.waiting_call):
            words = f"in {_words(verdict.waiting_call)}"
    call = verdict.culprit_call
    if behaviour.role == "culprit" and call is not None and call.op and not call.completed:
        words = f"in {call_words(call)}" if call.seq == verdict.seq or call.group is not None else ""
    return f"{words}, {_NOTE}" if words else ""


def _class(role: str, ranks: tuple[int, ...], call: CallRef | None) -> DiffClass:
    words = _words(call)
    return DiffClass(
        compress(ranks), len(ranks), role, f"in {words}" if words else "not in this collective", ranks[0]
    )


def _words(call: CallRef | None) -> str:
    return call_words(call) if call is not None and call.op else ""


def _cell(subject: Subject, call: CallRef | None, mark: str) -> DiffCell:
    if call is None:
        return DiffCell("unseen", note="its call is not known")
    site = str(user_frame(call.frames) or "")
    sizes = sizes_words(call.sizes, call.dtypes)
    return DiffCell(mark, "pending", call.op, call.seq, sizes, site, subject.gid, _NOTE)
