"""The only rank that the lines of a text point at, where nothing establishes a cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.causes.case import Case
from hangscope.explain.statements.statements import WAITED
from hangscope.explain.text.stop import find_stop
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrierWitness
from hangscope.model.conclusion import Verdict
from hangscope.model.rankset import ranks_phrase
from hangscope.verdict.answer.observation import Observation, pasted
from hangscope.verdict.phrasing import SUMMARY, TITLE, as_sentence, fitting, sentence_case

DEFAULT = " of group 0 (default_pg)"  # is meant where a title names no group
_OPEN = ("unknown", "init_hang")  # causes that leave open who is to blame


def only_suspect(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> Observation | None:
    """Return what names the one rank that lines point at, where a job stopped and the verdict names nobody.

    What a rank prints of itself does not show that the others wait for it, and no line that others print as well may set it apart.
    """
    died = verdict.cause == "crashed_rank"  # a process of which no line says which rank it is
    if verdict.culprit_ranks or not (died or (verdict.cause in _OPEN and find_stop(case.statements))):
        return None
    named = [s for s in seen if s.suspects and (s.blamed if died else s.proves or pasted(case))]
    # Rank 0 gathers who came to a monitored barrier, and knows who did not.
    named = [s for s in named if not all(isinstance(e, MonitoredBarrierWitness) for e in s.events)]
    ranks = {rank for s in named for rank in s.suspects}
    if len(ranks) != 1 or not (died or ranks <= case.incident.ranks.keys()):
        return None
    if any(line.telling and ranks < {*line.ranks} for line in case.statements.outlier_lines):
        return None
    return next((s for s in named if any(e.rank not in ranks for e in s.events)), None)


def naming(case: Case, verdict: Verdict, only: Observation) -> Verdict:
    """Return a verdict that names the only suspect: if others gave up waiting for it, as stuck."""
    # Who issued something else is not stuck.
    other = any(isinstance(e, AnalyzerReport | HorovodStall) for e in only.events)
    stop = find_stop(case.statements)
    waited = {*only.suspects} & {*case.statements.ranks(*WAITED), *(stop.ranks if stop is not None else ())}
    if verdict.cause == "unknown" and stop is not None and not (other or waited):
        verdict = replace(verdict, cause="stuck_rank")
    if verdict.cause in (*_OPEN, "stuck_rank"):
        verdict = claiming(verdict, only)
        suspects, shows = ranks_phrase(only.suspects), only.shows.replace(DEFAULT, "")
        if verdict.cause == "stuck_rank" and suspects not in verdict.title.lower():
            verdict = replace(verdict, title=fitting([f"Others wait for {suspects}: {shows}"], TITLE))
    named = only.suspects
    found = replace(
        verdict, culprit_ranks=named, suspect_ranks=named, confidence="low", rank_confidence="low"
    )
    waiting = tuple(rank for rank in verdict.waiting_ranks if rank not in named)
    return replace(found, waiting_ranks=waiting, in_call=tuple(r for r in verdict.in_call if r not in named))


def claiming(verdict: Verdict, seen: Observation) -> Verdict:
    """Return a verdict whose title and summary are what lines show."""
    title = sentence_case(fitting([seen.shows.replace(DEFAULT, "")], TITLE))
    return replace(verdict, title=title, summary=as_sentence(fitting([seen.shows], SUMMARY - 1)))
