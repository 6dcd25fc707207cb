"""Rules about ranks of whose end nothing is told: they fell silent, and what others say of them is all there is."""

from __future__ import annotations

from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.incident import Event, Evidence, Source


def vanished(case: Case) -> Match | None:
    """A rank without a record that everybody waits for, and of whose end nothing is told but that its peers lost it."""
    finding = case.finding
    if finding.form != "unseen" or not finding.culprits:
        return None
    culprits = finding.culprits
    bye = [e for r in culprits if (e := _farewell(case, r)) is not None]
    if len(bye) == len(culprits):
        return Match(
            "early_exit",
            culprits,
            f"{ranks_phrase(culprits)} ended without an error, and its last output says that it was done",
            sure=1 if all(e.fields.get("leaving") for e in bye) else 0,
            evidence=[quote(e, f"rank {e.rank}'s last output: {e.text}") for e in bye[-2:]],
            advice=[
                f"Check rank {culprits[0]}'s exit code: with 0 it left early; otherwise look for what killed it.",
                "Leave together: agree on the end over all ranks before any returns.",
            ],
        )
    dumps = any(record.dump_file for record in case.incident.ranks.values())
    logged = [r for r in culprits if case.incident.ranks[r].files]
    lost = [
        *case.facts.all("gloo_closed"),
        *(e for e in case.facts.all("nccl_warn") if e.fields.get("class") == "closed_by_peer"),
        *(e for e in case.facts.all("exception") if e.fields.get("symptom")),
    ]
    cut = [r for r in culprits if any(queue.cut for queue in case.incident.ranks[r].queues.values())]
    evidence = []
    for rank in culprits[:8]:
        record = case.incident.ranks[rank]
        if dumps:
            reason = record.absence.value if record.absence else "none"
            evidence.append(
                Evidence(
                    "dump",
                    f"rank {rank} left no usable dump ({reason}), and every waiting rank leads to it",
                    rank,
                )
            )
        elif rank in cut:
            evidence.append(
                Evidence(
                    "log",
                    f"rank {rank}'s log breaks off before the call that the others wait in; only its last lines may be missing",
                    rank,
                    Source(record.calls_file or ""),
                )
            )
        else:
            evidence.append(
                Evidence(
                    "log",
                    f"rank {rank} {'has a log that ends without an error' if record.files else 'left no line'}, while its peers report that they {'lost a connection' if lost else 'waited'}",
                    rank,
                    Source(record.files[0]) if record.files else None,
                )
            )
    if lost:
        evidence.append(quote(lost[0], f"a peer lost its connection: {lost[0].text}"))
    told = [e for e in finding.events if e.kind == "nccl_ras"]
    if told:
        dead = all(e.fields.get("what") == "dead" for e in told)
        return Match(
            "crashed_rank",
            culprits,
            f"NCCL's RAS {'declares' if dead else 'misses'} {ranks_phrase(culprits)}{' dead' if dead else ''}",
            sure=1 if dead else 0,
            advice=[
                f"Look for the end of {ranks_phrase(culprits)}: its exit code or signal in the launcher's output, and the kernel log of its host.",
                "RAS cannot reach a process whose host is lost or whose network is down either.",
            ],
        )
    what = (
        "left no dump, and every waiting rank leads to"
        if dumps
        else "is behind in a log that breaks off, and every waiting rank leads to"
        if cut
        else "fell silent, and every other rank lost its connection to"
        if lost
        else "printed nothing while all others waited for"
    )
    return Match(
        "crashed_rank",
        culprits,
        f"{ranks_phrase(culprits)} {what} {'them' if len(culprits) > 1 else 'it'}",
        sure=1 if (lost or logged) and not cut else 0,
        evidence=evidence,
        advice=[
            f"Look for the end of {ranks_phrase(culprits)}: its exit code or signal in the launcher's output, and the kernel log of its host.",
            "If it is still alive, dump its stack (py-spy dump --pid PID): a process stuck in teardown writes no dump either.",
        ],
    )


def lost_by_peers(case: Case) -> Match | None:
    """A rank that its log shows behind, and whose host the others name as the one that closed their connections."""
    finding = case.finding
    if (
        finding.form != "absent"
        or len(finding.culprits) != 1
        or case.incident.ranks[finding.culprits[0]].dump_file
    ):
        return None
    rank = finding.culprits[0]
    host = case.incident.ranks[rank].host
    lost = [
        e
        for e in case.facts.all("nccl_warn")
        if e.fields.get("class") == "closed_by_peer"
        and e.rank != rank
        and host is not None
        and host in (e.fields.get("peer_node"), e.fields.get("peer_host"))
    ]
    if not lost or case.facts.of(rank, "nccl_warn") or rank in case.facts.whereabouts:
        return None
    return Match(
        "crashed_rank",
        (rank,),
        f"rank {rank}'s log ends before the call that the others wait in, and they report that its host closed their connections",
        sure=1,
        evidence=[quote(e) for e in lost[:3]],
        advice=[
            f"Look for the end of rank {rank}: its exit code or signal in the launcher's output, and the kernel log of its host.",
            "NCCL prints nothing in a process that is killed; whoever prints 'closed by remote peer' is a victim.",
        ],
    )


def _farewell(case: Case, rank: int) -> Event | None:
    """Return a rank's last line of output, where it says that the rank leaves or that its loop is over."""
    last = max(case.facts.of(rank, "progress"), key=lambda e: (e.line, e.file), default=None)
    return last if last is not None and (last.fields.get("leaving") or last.fields.get("done")) else None


def may_have_died(case: Case) -> Match | None:
    """A rank that its log shows behind may as well have ended: nothing but a dump or a stack would tell."""
    finding = case.finding
    if (
        finding.form != "absent"
        or not finding.culprits
        or any(
            case.incident.ranks[r].dump_file or r in case.facts.whereabouts
            for r in finding.culprits
            if r in case.incident.ranks
        )
    ):
        return None
    return Match(
        "crashed_rank",
        finding.culprits,
        f"the logs do not tell whether {ranks_phrase(finding.culprits)} is still alive",
        sure=0,
    )
