"""What checks of the libraries themselves report: DETAIL's comparison of collectives, NCCL's warnings, RAS and torch's analyzer."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.known_messages import listed
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, who
from hangscope.verdict.answer.telling import topic_of

_SAID = regex(r"NCCL WARN (.{5,160})|Last error:\s{0,4}(.{5,160})")
_OF_ONE_HOST = ("127.", "172.17.", "192.168.122.")
_LOCAL = regex(r":\d{1,10}:\d{1,10} \[\d{1,3}\] ")
_LOCAL_DEVICE = "A number in brackets on such a line is a local device and not a rank."
_STATUS = {
    5: "flushed, which follows from an earlier error",
    12: "retries exceeded: the peer stopped acknowledging",
    13: "receiver not ready",
}


def mismatch(case: Case) -> Observation | None:
    """Read the two sides of DETAIL's comparison, or of several the side that most ranks are on."""
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
    differ = f"; they differ in {' and '.join(e.aspects)}" if e.aspects else ""
    sides = _sides(told)
    ranks = tuple(sorted({r for r in (own, e.peer_group_rank) if r is not None}))
    few, many = min(sides.values(), key=len, default=[]), max(sides.values(), key=len, default=[])
    if len(sides) == 2 and len(few) < len(many):
        odd, usual = (next(form for form, those in sides.items() if those is side) for side in (few, many))
        shows = f"DETAIL's check{at}: {ranks_phrase(few)} ran {odd}, {ranks_phrase(many)} ran {usual}{differ}"
        means = f"{ranks_phrase(few).capitalize()} {agree(few, 'is', 'are')} the minority, and the one{agree(few, '', 's')} to look at."
        text = f"the branch that makes {ranks_phrase(few)} call {odd.split(' ')[0]} there: what {agree(few, 'it does', 'they do')} and the others do not"
        if odd.split(" ")[0] == usual.split(" ")[0]:
            text = f"where that tensor comes from on {ranks_phrase(few)} and on one other rank: its batch, configuration or dtype"
        return Observation(
            shows, means, Collect(tuple(few), "log", text), tuple(few), True, True, tuple(told)
        )
    mine, other = _own_form(e), _peer_form(e)
    shows = f"DETAIL's check{at}: rank {own} was about to run {mine}, rank {e.peer_group_rank} was running {other}{differ}"
    means = f"A comparison of two ranks does not prove which one is the outlier; {who(ranks)} are the ones to compare."
    text = f"this error of every rank, which shows the majority, and what {who(ranks)} did differently in that step (a branch, a batch, other trainable parameters)"
    return Observation(shows, means, Collect(ranks, "log", text), ranks, True, False, tuple(told))


def _sides(told: Sequence[CallFingerprint]) -> dict[str, list[int]]:
    """Return which ranks ran which call, by all comparisons; a line that garbles the peer's call tells of its own rank alone."""
    form: dict[int, str] = {}
    for e in told:
        own = e.rank if e.rank is not None else e.group_rank
        if own is not None:
            form[own] = _own_form(e)
        if e.peer_group_rank is not None and not e.garbled:
            form.setdefault(e.peer_group_rank, _peer_form(e))
    sides: dict[str, list[int]] = {}
    for rank in sorted(form):
        sides.setdefault(form[rank], []).append(rank)
    return sides


def _own_form(event: CallFingerprint) -> str:
    return f"{event.op}{_shape(event.shape)}{f' {event.dtype}' if event.dtype else ''}"


def _peer_form(event: CallFingerprint) -> str:
    other = event.peer_op or "another collective"
    if event.garbled:
        return f"{other}, by the length of what it sent (the line garbles its name)"
    return f"{other}{_shape(event.peer_shape)}{f' {event.peer_dtype}' if event.peer_dtype else ''}"


def _shape(shape: tuple[int, ...] | None) -> str:
    return f" {list(shape)}" if shape is not None else ""


def warnings(case: Case) -> Observation | None:
    """Read NCCL's warnings, those of a fault itself first."""
    told = [e for e in case.statements.all(NcclWarn) if e.fault != "other"]
    if not told:
        return None
    tier = min(e.tier for e in told)
    first = tuple(e for e in told if e.tier == tier)
    e = first[0]
    said = _SAID.search(e.text)
    where = f" on host {e.host}" if e.host else ""
    rank = f" (rank {e.rank})" if e.rank is not None else ""
    times = f" {len(first)} times" if len(first) > 1 else ""
    shows = f"NCCL{where}{rank} reports{times}: {(said[1] or said[2] if said else e.text[-160:]).partition('. If ')[0].strip()}"
    if e.version and e.peer_version:
        shows += (
            f" (rank {e.rank_a} runs {_version(e.version)}, rank {e.peer_rank} {_version(e.peer_version)})"
        )
    if not e.of_transport:
        return Observation(shows, "", None, (), not e.retrying, False, first)
    peers = listed(filter(None, (w.peer_node or w.peer_host for w in first)))
    means = "" if e.rank is not None or not _LOCAL.search(e.text) else _LOCAL_DEVICE
    if e.status is not None and e.status in _STATUS:
        means = f"Status {e.status} means {_STATUS[e.status]}; the link or switch is bad, or the peer's process ended. {means}"
    elif e.fault == "size_mismatch" and (topic := topic_of(e.text)) is not None:
        return Observation(
            shows,
            f"{topic.means} {means}".strip(),
            Collect((), "other", topic.collect),
            (),
            True,
            False,
            first,
        )
    elif tier == 3:
        means = f"Who prints this is a victim: the process at {peers or 'the other end'} ended or was aborted first. {means}"
    if e.fault == "connect" and (e.peer_host or "").startswith(_OF_ONE_HOST):
        means = f"{e.peer_host} is the address of a bridge (docker0, virbr0) or the loopback of one host, which other hosts cannot reach: NCCL took the wrong interface there."
        text = "the interface that other hosts reach (ip -br addr) as NCCL_SOCKET_IFNAME on every host"
        return Observation(shows, means, Collect((), "other", text), (), not e.retrying, False, first)
    text = f"whether the process on {peers or 'the peer host'} failed first (its log and kernel log); if not, the port counters and a bandwidth test between the two hosts"
    return Observation(shows, means.strip(), Collect((), "log", text), (), not e.retrying, False, first)


def _version(number: int) -> str:
    """Return a version of NCCL as people write it: 22703 is 2.27.3."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def analyzer(case: Case) -> Observation | None:
    """Read what torch's analyzer of dumps says of who is missing, with RAS's counts beside it."""
    told = [e for e in case.statements.all(AnalyzerReport) if e.named]
    counts = [
        e for e in case.statements.all(NcclRas) if e.count is not None and e.what in ("behind", "ahead")
    ]
    lost = [e for e in case.statements.all(NcclRas) if e.what in ("dead", "missing")]
    if not told and not counts and not lost:
        return None
    parts, named, other = [], [], []
    if told:
        e = told[0]
        named, other = sorted(e.named), sorted(set(e.expected) - set(e.named))
        what = (
            "did not join"
            if e.what == "absent"
            else f"{agree(named, 'differs', 'differ')} from the others in"
        )
        rest = f", which {ranks_phrase(other)} scheduled" if other else ""
        own = f": {listed(dict.fromkeys(e.found))} instead of {e.wanted}" if e.found and e.wanted else ""
        by, number = ("torch's analyzer: ", f" number {e.seq}") if e.seq is not None else ("", "")
        parts.append(f"{by}{ranks_phrase(named)} {what} {e.op or 'the collective'}{number}{own or rest}")
    named = named or sorted({r for e in (counts or lost) if (r := _number(e)) is not None})
    parts += [_counted(counts, named)] if counts else []
    means = "A rank that is behind is alive but stuck before the call, or on another path."
    where = _place(counts or lost)
    if told and told[0].found:
        means = f"They made the same call with other arguments, so nobody is late: what {ranks_phrase(named)} put in is not what the others did."
        text = f"where that tensor comes from on {ranks_phrase(named)} and one other rank: its configuration, its batch, its branch"
        return Observation(
            "; ".join(parts),
            means,
            Collect(tuple(named), "log", text),
            tuple(named),
            True,
            True,
            (*told, *counts),
        )
    text = f"a stack with native frames of {who(named, 'the rank with the smaller count')}{where} (py-spy dump --native)"
    if not counts and not told:
        parts = [
            f"RAS does not reach {who(named, 'a process')}{where}; it lists {listed(e.what for e in lost)}"
        ]
        means = "Its process ended, or its host or network went away; the others can only wait for it."
        text = f"the log of {who(named, 'that process')}{where}, its exit code, and whether its host answers"
    return Observation(
        "; ".join(parts),
        means,
        Collect(tuple(named), "stack", text),
        tuple(named),
        True,
        bool(named),
        (*told, *counts, *lost),
    )


def _number(event: NcclRas) -> int | None:
    return event.rank if event.rank is not None else event.comm_rank


def _counted(counts: Sequence[NcclRas], named: Sequence[int]) -> str:
    """Return how many operations RAS counts, of whom it names and of the others."""
    numbers = sorted({n for e in counts for n in (e.count, e.most) if n is not None})
    op = next((f"{e.op} " for e in counts if e.op), "")
    if len(numbers) == 2 and len(counts) == len(named):
        return f"RAS counts {numbers[0]} launched {op}operations of {ranks_phrase(named)} and {numbers[1]} of the others"
    return f"RAS counts different numbers of launched {op}operations ({listed(map(str, numbers))})"


def _place(events: Sequence[NcclRas]) -> str:
    """Return process and host of the one rank that RAS names."""
    if len({(e.pid, e.host) for e in events}) != 1:
        return ""
    e = events[0]
    parts = [f"pid {e.pid}"] if e.pid is not None else []
    parts += [f"host {e.host}"] if e.host else []
    return f" ({', '.join(parts)})" if parts else ""
