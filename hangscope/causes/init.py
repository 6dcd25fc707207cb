"""Rules about beginnings: groups that never formed, and models that were not built alike."""

from __future__ import annotations

from collections import Counter, defaultdict

from hangscope.align.callsite import in_constructor
from hangscope.align.rankset import compress, ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.explain.excerpt import beyond_the_text
from hangscope.explain.stop import find_stop
from hangscope.incident import Event, Evidence


def different_models(case: Case) -> Match | None:
    """DDP's own comparison of the ranks' parameters, or its first broadcasts with different sizes."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    events = case.facts.all("ddp_params")
    for event in events:
        for rank, count in (event.fields.get("counts") or {}).items():
            counts[int(rank)][int(count)] += 1
    own = {rank: c.most_common(1)[0][0] for rank, c in counts.items()}
    for event in events:  # a rank's word about itself counts more than its peers'
        told = event.fields.get("counts") or {}
        if event.rank in told:
            own[event.rank] = int(told[event.rank])  # type: ignore[index]
    if own and len(set(own.values())) > 1:
        groups = Counter(own.values())
        common, times = groups.most_common(1)[0]
        tie = list(groups.values()).count(times) > 1
        odd = () if tie else tuple(sorted(r for r, n in own.items() if n != common))
        numbers = ", ".join(f"rank {r}: {own[r]}" for r in sorted(own)[:6])
        return _models(
            odd,
            f"the ranks have different numbers of parameters ({numbers})",
            [quote(e) for e in events[:4]],
            case,
            1 if tie else 2,
        )
    shapes = case.facts.all("ddp_shape")
    if shapes:
        tellers = sorted({e.rank for e in shapes if e.rank is not None})
        # The check compares with process 0; where everybody else differs from it, process 0 is the odd one.
        odd = (
            (0,)
            if len(tellers) * 2 > len(case.incident.ranks) - 1 and len(case.incident.ranks) > 2
            else tuple(tellers)
        )
        return _models(
            odd,
            f"parameters of {ranks_phrase(odd)} have other sizes than those of their peers",
            [quote(e) for e in shapes[:4]],
            case,
            2,
        )
    finding = case.finding
    if (
        finding.form == "different"
        and finding.own_kind
        and finding.waiting_kind
        and in_constructor(finding.own_kind)
        and in_constructor(finding.waiting_kind)
    ):
        return _models(
            finding.culprits,
            f"{ranks_phrase(finding.culprits) if finding.culprits else 'the ranks'} synchronise other parameters while DDP wraps the model",
            [],
            case,
            1,
        )
    return None


def _models(odd: tuple[int, ...], why: str, evidence: list[Evidence], case: Case, sure: int) -> Match:
    return Match(
        "model_mismatch",
        odd,
        why,
        sure=sure,
        evidence=evidence,
        frame=case.frame_of(case.finding.own_kind),
        frame_rank=odd[0] if odd else None,
        advice=[
            f"Compare the config, vocabulary size and seed that {ranks_phrase(odd) if odd else 'the two sides'} built the model from with those of the others.",
            "Build from one config broadcast by rank 0, and compare a hash of (name, shape) over ranks before wrapping.",
        ],
    )


def never_formed(case: Case) -> Match | None:
    """A store, rendezvous or communicator that never became whole."""
    if case.finding.form != "none" and case.solid and not case.from_text:
        return None
    for rule in (_port, _duplicate, _communicator, _store):
        match = rule(case)
        if match is not None:
            return match
    return None


def _port(case: Case) -> Match | None:
    events = case.facts.all("port_in_use")
    if not events:
        return None
    ranks = _ranks(events)
    port = events[0].fields.get("port")
    return Match(
        "init_hang",
        ranks,
        f"port {port or ''} was already in use on the host of the store".replace("  ", " "),
        sure=2,
        evidence=[quote(e) for e in events[:3]],
        advice=[
            f"Something else holds port {port or 'MASTER_PORT'}: end the stale process or choose a free port per job (--rdzv-endpoint host:0, or MASTER_PORT by job id)."
        ],
    )


def _duplicate(case: Case) -> Match | None:
    events = [e for e in case.facts.all("nccl_warn") if e.fields.get("class") == "duplicate_gpu"]
    by_device: dict[tuple[object, object], set[int]] = defaultdict(set)
    for event in case.facts.all("nccl_init"):
        if event.fields.get("bus_id") and event.rank is not None:
            by_device[(event.host, event.fields["bus_id"])].add(event.rank)
    shared = sorted(r for ranks in by_device.values() if len(ranks) > 1 for r in ranks)
    told = [e.fields.get(key) for e in events for key in ("rank_a", "peer_rank")]
    named = sorted({rank for rank in told if isinstance(rank, int)})
    # Hosts may share a name; a job whose communicators came to work had a GPU for each rank.
    ran = case.facts.all("watchdog_timeout", "progress") or case.graph.open_calls
    if not events and (not shared or ran):
        return None
    return Match(
        "init_hang",
        tuple(named or shared),
        "two ranks use one GPU",
        sure=2 if events else 1,
        evidence=[quote(e) for e in events[:3]],
        advice=[
            "Call torch.cuda.set_device(LOCAL_RANK) (not RANK) before the first collective, and check CUDA_VISIBLE_DEVICES per process."
        ],
    )


def _communicator(case: Case) -> Match | None:
    """An NCCL communicator that some members began and not all completed."""
    for event in case.facts.all("nccl_init"):
        phase, size = event.fields.get("phase"), event.fields.get("nranks")
        absent = _numbers(event, "absent")
        if phase == "incomplete":
            unproved = beyond_the_text(case.incident, case.facts) & set(absent)
            if unproved and find_stop(case.facts) is None:
                continue  # the text may end, or begin, in the middle of a start that went well
            return _incomplete(event, absent, bool(unproved))
        if phase == "fewer":
            return Match(
                "init_hang",
                (),
                f"{ranks_phrase(absent)} did not complete a communicator of {size} ranks as the others did; which of them never came is not told",
                sure=0,
                evidence=[quote(event)],
                advice=[
                    "NCCL up to 2.22 prints nothing of those who wait in bootstrap: take a stack of each of these ranks (py-spy dump), the one outside ncclCommInit is the one that is missing."
                ],
            )
    return None


def _incomplete(event: Event, absent: tuple[int, ...], unproved: bool) -> Match:
    """Return the answer for a communicator whose members began it: the absent are to blame, or those who cannot connect.

    `unproved`: of some of the absent nothing shows that their lines should be here, so nobody is named.
    """
    size = event.fields.get("nranks")
    starting, connecting, complete = (_numbers(event, key) for key in ("starting", "connecting", "complete"))
    unknown = int(event.fields.get("absent_unknown") or 0)
    if absent or unknown:
        who = ranks_phrase(absent) if absent and not unknown else f"{unknown + len(absent)} of its members"
        return Match(
            "init_hang",
            () if unknown or unproved else absent,
            f"a communicator of {size} ranks never became whole: {who} never began it, and {ranks_phrase(starting + connecting)} wait",
            sure=1 if unknown or unproved else 2,
            evidence=[quote(event)],
            advice=[
                f"Find where {who} stood when the others began: not started, crashed before, or in another call."
            ],
        )
    stuck = starting + connecting
    culprits = stuck if complete and len(stuck) * 2 <= len(stuck) + len(complete) else ()
    return Match(
        "init_hang",
        culprits,
        f"a communicator of {size} ranks never became whole: all began it, and {ranks_phrase(stuck)} did not complete it",
        sure=1,
        evidence=[quote(event)],
        advice=[
            "All members began and some cannot connect: check NCCL_SOCKET_IFNAME, firewalls between the hosts and NCCL_DEBUG=INFO of those that did not complete."
        ],
    )


def _numbers(event: Event, key: str) -> tuple[int, ...]:
    return tuple(int(n) for n in event.fields.get(key) or ())


def _store(case: Case) -> Match | None:
    waits = case.facts.all("store_timeout", "store_barrier", "rendezvous_timeout", "store_unreachable")
    running = case.facts.all(
        "fingerprint", "gloo_timeout", "watchdog_timeout", "monitored_barrier", "progress"
    )
    if not waits or running or (case.finding.culprits and not case.from_text):
        return None
    world = len(case.incident.ranks)
    unreachable = case.facts.all("store_unreachable")
    logged = {r for r, record in case.incident.ranks.items() if record.files or record.events}
    missing: tuple[int, ...] = ()
    joined = next((e for e in waits if isinstance(e.fields.get("joined"), int)), None)
    if joined is not None and isinstance(
        joined.fields.get("expected") or joined.fields.get("world_size"), int
    ):
        lacking = int(joined.fields.get("expected") or joined.fields["world_size"]) - int(
            joined.fields["joined"]
        )
        silent = tuple(r for r in range(world) if r not in logged)
        missing = silent if len(silent) == lacking else ()
        why = f"{joined.fields['joined']} of {joined.fields.get('expected') or joined.fields['world_size']} ranks joined"
    elif unreachable:
        tellers = _ranks(unreachable)
        missing = (0,) if tellers and 0 not in tellers else ()
        host, port = unreachable[0].fields.get("host"), unreachable[0].fields.get("port")
        why = f"nobody answered at the store's address {host or '?'}:{port or '?'}"
    else:
        waited = sorted(
            {int(e.fields["waited_rank"]) for e in waits if isinstance(e.fields.get("waited_rank"), int)}
        )
        missing = tuple(r for r in waited if r not in logged)
        why = (
            f"a store key of {ranks_phrase(missing)} was never written"
            if missing
            else "the rendezvous did not complete"
        )
    return Match(
        "init_hang",
        missing,
        why,
        sure=2 if missing else 1,
        evidence=[quote(e) for e in waits[:4]],
        advice=[
            f"Check that {ranks_phrase(missing)} was started and reaches MASTER_ADDR:MASTER_PORT."
            if missing
            else f"Check which of the {world} ranks was not started: its log is the one that is missing (logs seen of {compress(logged)}).",
            "Use one rendezvous id and one free port per job; a firewall or a wrong interface looks the same.",
        ],
    )


def _ranks(events: list[Event]) -> tuple[int, ...]:
    return tuple(sorted({e.rank for e in events if e.rank is not None}))
