"""What checks of the libraries themselves report: DETAIL's comparison of collectives, NCCL's warnings, RAS and torch's analyzer."""

from __future__ import annotations

from collections import Counter

from hangscope.causes.case import Case
from hangscope.conclusion import Collect
from hangscope.explain.text.known_messages import listed
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.rankset import ranks_phrase
from hangscope.regex import regex
from hangscope.verdict.answer.observation import Observation, who

_SAID = regex(r"NCCL WARN (.{5,160})")
_STATUS = {
    5: "flushed, which follows from an earlier error",
    12: "retries exceeded: the peer stopped acknowledging",
    13: "receiver not ready",
}


def mismatch(case: Case) -> Observation | None:
    """Read the two sides of DETAIL's comparison."""
    told = [
        e
        for e in case.statements.all(CallFingerprint)
        if e.context == "mismatch" and e.peer_group_rank is not None
    ]
    if not told:
        return None
    e = told[0]
    own = e.rank if e.rank is not None else e.group_rank
    number = e.sequence_number if e.sequence_number is not None else e.seq
    at = f" at sequence number {number}" if number is not None else ""
    mine = f"{e.op}{_shape(e.shape)}{f' {e.dtype}' if e.dtype else ''}"
    other = f"{e.peer_op or 'another collective'}{_shape(e.peer_shape)}{f' {e.peer_dtype}' if e.peer_dtype else ''}"
    if e.garbled:
        other = "a collective of another form (the line garbles which)"
    differ = f"; they differ in {' and '.join(e.aspects)}" if e.aspects else ""
    shows = f"DETAIL's check{at}: rank {own} was about to run {mine}, rank {e.peer_group_rank} was running {other}{differ}"
    ranks = tuple(sorted({r for r in (own, e.peer_group_rank) if r is not None}))
    means = f"A comparison of two ranks does not prove which one is the outlier; {who(ranks)} are the ones to compare."
    text = f"this error of every rank, which shows the majority, and what {who(ranks)} did differently in that step (a branch, a batch, other trainable parameters)"
    return Observation(shows, means, Collect(ranks, "log", text), ranks, True)


def _shape(shape: tuple[int, ...] | None) -> str:
    return f" {list(shape)}" if shape is not None else ""


def warnings(case: Case) -> Observation | None:
    """Read NCCL's warnings, those of a fault itself first."""
    told = [e for e in case.statements.all(NcclWarn) if e.fault != "other"]
    if not told:
        return None
    tier = min(e.tier for e in told)
    first = [e for e in told if e.tier == tier]
    e = first[0]
    said = _SAID.search(e.text)
    where = f" on host {e.host}" if e.host else ""
    rank = f" (rank {e.rank})" if e.rank is not None else ""
    times = f" {len(first)} times" if len(first) > 1 else ""
    shows = f"NCCL{where}{rank} reports{times}: {said[1] if said else e.text[:160]}"
    peers = listed(filter(None, (w.peer_node or w.peer_host for w in first)))
    means = (
        "" if e.rank is not None else "A number in brackets on such a line is a local device and not a rank."
    )
    if e.status is not None and e.status in _STATUS:
        means = f"Status {e.status} means {_STATUS[e.status]}; the link or switch is bad, or the peer's process ended. {means}"
    elif tier == 3:
        means = f"Who prints this is a victim: the process at {peers or 'the other end'} ended or was aborted first. {means}"
    text = f"whether the process on {peers or 'the peer host'} failed first (its log and kernel log); if not, the port counters and a bandwidth test between the two hosts"
    return Observation(shows, means.strip(), Collect((), "log", text), (), not e.retrying)


def analyzer(case: Case) -> Observation | None:
    """Read what torch's analyzer of dumps says of who is missing, with RAS's counts beside it."""
    told = [e for e in case.statements.all(AnalyzerReport) if e.named]
    counts = [
        e for e in case.statements.all(NcclRas) if e.count is not None and e.what in ("behind", "ahead")
    ]
    if not told and not counts:
        return None
    parts, named, other = [], [], []
    if told:
        e = told[0]
        named, other = sorted(e.named), sorted(set(e.expected) - set(e.named))
        what = "did not join" if e.what == "absent" else "differs in"
        rest = f", which {ranks_phrase(other)} scheduled" if other else ""
        parts.append(
            f"torch's analyzer: {ranks_phrase(named)} {what} {e.op or 'the collective'} number {e.seq}{rest}"
        )
    if counts:
        by_count = Counter(e.count for e in counts)
        numbers = listed(str(count) for count in by_count)
        parts.append(f"RAS counts different numbers of launched operations ({numbers})")
    means = "A rank that is behind is alive but stuck before the call, or on another path."
    text = f"a stack with native frames of {who(named, 'the rank with the smaller count')} (py-spy dump --native)"
    return Observation(
        "; ".join(parts), means, Collect(tuple(named), "stack", text), tuple(named), True, bool(named)
    )
