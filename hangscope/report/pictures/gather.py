"""All that the page shows of an analysis, gathered: the one place that knows every picture."""

from __future__ import annotations

from hangscope.report.page_data import PageData
from hangscope.report.pictures.behaviour import Folding
from hangscope.report.pictures.calls import call_diff
from hangscope.report.pictures.detail import detail
from hangscope.report.pictures.ranks import rank_map
from hangscope.report.pictures.stacks import sides
from hangscope.report.pictures.strip import strip
from hangscope.report.pictures.topology import topology
from hangscope.report.pictures.waits import steps_to_root, wait_graph, wait_picture
from hangscope.report.sources import SourceFolder, snippets
from hangscope.report.story.tell import tell
from hangscope.report.subject import Subject


<<<<<<< HEAD
def page_data(subject: Subject, source: SourceFolder | None = None) -> PageData:
    """Return the page's data; `source` is where the job's code lies, if the user named it."""
    classes = Folding(subject).classes()
    mesh = topology(subject)
    both = sides(subject)
    edges, roots = wait_graph(subject)
    return PageData(
        calls=call_diff(subject, classes),
        waitfor=wait_picture(subject, edges, roots),
        rankmap=rank_map(subject),
        topology=mesh,
        strip=strip(subject),
        story=tell(subject, classes),
        sides=both,
        snippets=snippets(both, source),
        detail=detail(subject, classes, mesh, steps_to_root(edges, roots)),
    )
=======
def role_of(analysis: Analysis, rank: int) -> str:
    """Return waiting, culprit, idle or unseen."""
    if rank in analysis.culprits:
        return "culprit"
    if analysis.case.graph.open_calls.get(rank) or rank in analysis.waiting:
        return "waiting"
    record = analysis.incident.ranks.get(rank)
    return "idle" if record is not None and record.seen and record.calls_file else "unseen"


def lanes(analysis: Analysis) -> dict[str, Any] | None:
    """Return classes of ranks in equal state over the seqs around the divergence, or None without dumps."""
    finding = analysis.case.finding
    view, seq = finding.view, finding.seq
    if view is None or seq is None or finding.pair is not None:
        return None
    first = min(seq, finding.own_seq or seq) if (finding.own_seq or seq) >= seq - 2 * BEFORE else seq
    reached = max((member.enqueued or 0 for member in view.members.values()), default=seq)
    seqs = list(range(max(1, first - BEFORE), max(seq, min(seq + AFTER, reached)) + 1))
    verdict = analysis.judgement.verdict
    made = finding.form in ("different", "shifted", "extra")  # an odd call, where others left one out
    odd = set(verdict.culprit_ranks) if verdict is not None and made else set()
    classes: dict[Any, list[int]] = defaultdict(list)
    rows: dict[Any, dict[str, Any]] = {}
    for rank in sorted(view.members):
        cells = [_cell(analysis, rank, s, rank in odd and s == first) for s in seqs]
        role = role_of(analysis, rank)
        key = (role, *(tuple(sorted(c.items(), key=str)) for c in cells))
        classes[key].append(rank)
        rows[key] = {"role": role, "cells": cells}
    ordered = sorted(classes, key=lambda k: (rows[k]["role"] != "culprit", -len(classes[k]), classes[k]))
    result = [
        {"ranks": compress(classes[k]), "count": len(classes[k]), "label": rows[k]["role"], **rows[k]}
        for k in ordered[:LANE_ROWS]
    ]
    return {
        "group": {"name": view.group.name, "desc": view.group.desc},
        "seqs": seqs,
        "divergence_seq": first if finding.form in ("different", "shifted") else seq,
        "rows": result,
        "left_out": max(0, len(ordered) - LANE_ROWS),
    }


def _cell(analysis: Analysis, rank: int, seq: int, odd: bool) -> dict[str, Any]:
    view = analysis.case.finding.view
    assert view is not None
    member = view.members[rank]
    kind = view.kind_of(rank, seq)
    cell: dict[str, Any] = {
        "seq": seq,
        "op": kind.op if kind else "",
        "state": "unknown",
        "odd": odd and kind is not None,
        "sizes": "",
        "site": "",
    }
    if kind is not None:
        row = member.row_of(seq)
        assert row is not None and member.queue is not None
        state = State(int(member.queue.state[row]))
        cell["state"] = (
            "pending"
            if state in (State.PENDING, State.STARTED)
            else "done"
            if state == State.DONE
            else "unknown"
        )
        if seq <= (member.completed or 0) and cell["state"] == "pending" and seq not in member.pending:
            cell["state"] = "done"
        if cell["state"] == "unknown" and seq <= (view.completed(rank) or 0):
            cell["state"] = "done"  # its peers prove it
        sizes = ", ".join(str(list(s)) for s in (kind.input_sizes or kind.output_sizes)[:2])
        cell["sizes"] = " ".join(p for p in (sizes, (kind.input_dtypes or ("",))[0]) if p)
        frame = user_frame(kind.stack)
        cell["site"] = str(frame) if frame else "no frame"
    elif member.enqueued is None:
        cell["state"] = "unseen"
    elif member.first_row and seq < member.first_row:
        cell["state"] = "overwritten"
    elif seq > member.enqueued:
        cell["state"] = "absent"
    elif seq <= (member.completed or 0):
        cell["state"] = "done"
    return cell


def rankmap(analysis: Analysis) -> dict[str, Any] | None:
    """Return one state per rank (run-length pairs), with what each state means."""
    incident = analysis.incident
    if not incident.world_size:
        return None
    runs: list[list[int]] = []
    for rank in range(incident.world_size):
        state = ROLES.index(role_of(analysis, rank))
        if runs and runs[-1][0] == state:
            runs[-1][1] += 1
        else:
            runs.append([state, 1])
    words = {
        "waiting": "waiting in a call",
        "culprit": "culprit",
        "idle": "in no call",
        "unseen": "no usable dump",
    }
    present = {state for state, _ in runs}
    hosts = list(dict.fromkeys(r.host for _, r in sorted(incident.ranks.items()) if r.host))
    ranks_on = Counter(r.host for r in incident.ranks.values())
    counts = [ranks_on[h] for h in hosts]
    even = bool(counts) and len(set(counts)) == 1 and sum(counts) == incident.world_size
    verdict = analysis.judgement.verdict
    return {
        "world_size": incident.world_size,
        "per_host": counts[0] if even else min(8, incident.world_size),
        "hosts": hosts if even else [],
        "states": runs,
        "legend": [
            {"state": i, "label": words[role], "role": role} for i, role in enumerate(ROLES) if i in present
        ],
        "culprits": list(verdict.culprit_ranks) if verdict is not None else [],
    }


def waitfor(analysis: Analysis) -> dict[str, Any] | None:
    """Return the wait-for graph condensed to classes: hosts with equal targets, and the instances they lead to."""
    graph = analysis.case.graph
    if not graph.nodes:
        return None
    roots = {n for root in graph.roots for n in root.nodes}
    cycle = {n for root in graph.roots if root.kind == "cycle" for n in root.nodes}
    # Hosts that wait for the same call are one node; so are open calls further down one queue than their first.
    first_calls = {calls[0].node for calls in graph.open_calls.values() if calls}
    keep = [n for n in graph.nodes if n[0] == "H" or n in first_calls or n in roots]
    classes: dict[Any, list[Node]] = defaultdict(list)
    for node in keep:
        targets = tuple(
            sorted((str(t), a) for t, a in graph.targets(node) if t in first_calls or t[0] == "H")
        )
        classes[(node[0], targets, node in roots, node in cycle) if node[0] == "H" else (str(node),)].append(
            node
        )
    ordered = sorted(classes.values(), key=lambda ns: (not any(n in roots for n in ns), -len(ns), str(ns[0])))
    total = len(ordered)
    ordered = ordered[:GRAPH_NODES]
    name = {n: f"n{i}" for i, ns in enumerate(ordered) for n in ns}
    nodes = []
    for i, members in enumerate(ordered):
        ranks = [int(n[1]) for n in members if n[0] == "H"]  # type: ignore[call-overload]
        if not ranks:
            ranks = [r for r, calls in graph.open_calls.items() if any(c.node == members[0] for c in calls)]
        nodes.append(
            {
                "id": f"n{i}",
                "kind": "host" if members[0][0] == "H" else "call",
                "label": ranks_phrase(ranks).capitalize()
                if members[0][0] == "H"
                else _call_name(analysis, members[0]),
                "group": None
                if members[0][0] in ("H", "T")
                else f"group {analysis.incident.groups[int(members[0][1])].name}",  # type: ignore[call-overload]
                "ranks": compress(ranks),
                "count": len(ranks),
                "root": any(n in roots for n in members),
                "cycle": any(n in cycle for n in members),
            }
        )
    edges = sorted(
        {
            (name[n], name[t], assumed)
            for n in name
            for t, assumed in graph.targets(n)
            if t in name and name[t] != name[n]
        }
    )
    return {
        "nodes": nodes,
        "edges": [{"from": a, "to": b, "assumed": c} for a, b, c in edges],
        "text": _chain(analysis),
        "left_out": max(0, total - len(ordered)),
    }


def _call_label(analysis: Analysis, node: Node, rank: int | None = None) -> str:
    """Return an instance for a person, with its group."""
    if node[0] == "T":
        return _call_name(analysis, node, rank)
    return f"{_call_name(analysis, node, rank)} on group {analysis.incident.groups[int(node[1])].label}"  # type: ignore[call-overload]


def _call_name(analysis: Analysis, node: Node, rank: int | None = None) -> str:
    """Return an instance as `rank` called it, or with every op that its members made of it."""
    if node[0] == "T":
        return "a call whose peers no line tells"
    if node[0] == "P":
        _, _, source, destination, index = node
        return f"send {source} -> {destination} number {int(index) + 1}"  # type: ignore[call-overload]
    gid, seq = int(node[1]), int(node[2])  # type: ignore[call-overload]
    view = analysis.views[gid]
    members = view.members if rank is None or view.kind_index(rank, seq) is None else [rank]
    made = {kind for r in members if (kind := view.kind_index(r, seq)) is not None}
    ops = sorted({view.kinds.without_sizes(kind).op for kind in made})
    return f"{' / '.join(ops) or 'call'} seq {seq}"


def _chain(analysis: Analysis) -> list[str]:
    """Return the graph as sentences, from the victims to the root."""
    graph = analysis.case.graph
    by_call: dict[Node, list[int]] = defaultdict(list)
    for rank, calls in graph.open_calls.items():
        if calls:
            by_call[calls[0].node].append(rank)
    lines = []
    for node, ranks in sorted(by_call.items(), key=lambda kv: (-len(kv[1]), str(kv[0])))[:16]:
        missing = [int(t[1]) for t, _ in graph.targets(node) if t[0] == "H"]  # type: ignore[call-overload]
        tail = (
            f"which {ranks_phrase(missing)} {'has' if len(missing) == 1 else 'have'} not made"
            if missing
            else "which all its members made"
        )
        lines.append(
            f"{ranks_phrase(ranks).capitalize()} {'is' if len(ranks) == 1 else 'are'} in {_call_label(analysis, node)}, {tail}."
        )
    verdict = analysis.judgement.verdict
    if verdict is not None and verdict.culprit_ranks:
        explained = f"{verdict.explained} of {len(verdict.waiting_ranks)} waiting ranks"
        lines.append(f"Root: {ranks_phrase(verdict.culprit_ranks)}, which explains {explained}.")
    return lines


def timeline(analysis: Analysis) -> dict[str, Any] | None:
    """Return when ranks entered what they are stuck in, in ms after the first of them, or None without times."""
    graph = analysis.case.graph
    entries: list[tuple[int, int, str]] = []
    for rank, calls in graph.open_calls.items():
        if calls and calls[0].created:
            entries.append((calls[0].created, rank, f"enqueued {_call_label(analysis, calls[0].node, rank)}"))
    verdict = analysis.judgement.verdict
    for rank in verdict.culprit_ranks if verdict is not None else ():
        record = analysis.incident.ranks.get(rank)
        if record is None or graph.open_calls.get(rank):
            continue
        last = max(
            ((int(q.created[-1]), q) for q in record.queues.values() if len(q)),
            key=lambda p: p[0],
            default=None,
        )
        if last is not None and last[0]:
            kind = analysis.incident.kinds[int(last[1].kind[-1])]
            entries.append((last[0], rank, f"last call: {describe(kind)} seq {int(last[1].seq[-1])}"))
    if not entries:
        return None
    zero = (
        min(t for t, _, label in entries if label.startswith("enqueued"))
        if any(label.startswith("enqueued") for _, _, label in entries)
        else min(t for t, _, _ in entries)
    )
    merged: dict[tuple[int, str], list[int]] = defaultdict(list)
    for time, rank, label in entries:
        merged[(round((time - zero) / 1e6), label)].append(rank)
    events = [
        {"t_ms": float(t), "ranks": compress(ranks), "label": label, "kind": "enqueue"}
        for (t, label), ranks in sorted(merged.items())
    ]
    hosts = {r.host for r in analysis.incident.ranks.values()}
    known = len(hosts) == 1 and None not in hosts
    return {"offset_known": known, "events": events[:60]}
>>>>>>> main
