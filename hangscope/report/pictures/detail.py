"""What the side panel shows of each rank: its queue, its stack, the events of its log, its files, its way to the root."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.waitgraph import Host
from hangscope.model.conclusion import WaitEnds
from hangscope.model.rankset import compress
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Folding
from hangscope.report.pictures.rank_map import Mesh
from hangscope.report.pictures.wait_edges import Drawn
from hangscope.report.schema.document import FOLD_ABOVE
from hangscope.report.schema.page import DetailData, RankDetail
from hangscope.report.schema.pictures import RankMapData
from hangscope.report.subject import Subject
from hangscope.report.words import at_line, first_of

QUEUES = 24
RANKS = FOLD_ABOVE  # or classes
_FRAMES, _STEPS, _FILES, _LOGS = 40, 6, 12, 2


def detail(
    subject: Subject,
    folding: Folding,
    classes: list[Behaviour],
    mesh: Mesh | None,
    steps: dict[Drawn, Drawn],
    map_of: RankMapData | None,
) -> DetailData:
    """Return the detail of every rank, or of every class of ranks in a large job; `steps` lead from node to node to the root."""
    queues = tuple(_queue(b) for b in classes[:QUEUES])
    parts = [(b.ranks, number, b) for number, b in enumerate(classes)]
    if subject.incident.world_size <= FOLD_ABOVE:
        parts = sorted((([r], number, b) for ranks, number, b in parts for r in ranks), key=lambda p: p[0])
    rows = []
    for ranks, number, behaviour in parts[:RANKS]:
        known = number < len(queues)
        groups = folding.own_groups(behaviour, ranks) if known else ()
        rows.append(_rank(subject, steps, mesh, ranks, number if known else None, groups))
    hosts = map_of.hosts if map_of is not None else ()
    return DetailData(tuple(rows), queues, hosts, map_of.per_host if map_of is not None and hosts else 0)


def _rank(
    subject: Subject,
    steps: dict[Drawn, Drawn],
    mesh: Mesh | None,
    ranks: Sequence[int],
    queue: int | None,
    groups: tuple[str, ...],
) -> RankDetail:
    """Return what is known of one rank, or what all ranks of a class have in common."""
    rank, alone = ranks[0], len(ranks) == 1
    example = () if alone else (f"for example rank {rank}, one of {len(ranks):,}:",)
    record = subject.incident.ranks[rank]
    return RankDetail(
        ranks=compress(ranks),
        host=record.host if alone else None,
        label=mesh.label(rank) if mesh is not None and alone else "",
        state=subject.role(rank),
        standing=subject.standing(rank),
        absence=record.absence.value if record.absence is not None else None,
        waits=(*example, *_way(subject, steps, rank)),
        queue=queue,
        stack=tuple(f"{at_line(f.file, f.line)} in {f.name}" for f in subject.stack(rank)[:_FRAMES]),
        events=tuple(f"{t.text}  [{t.source}]" for t in quotes.last_words(subject, rank)),
        files=subject.files_of(rank)[:_FILES] if alone else (),
        log=tuple(line for file, lines in record.log_tails[-_LOGS:] for line in (f"[{file}]", *lines)),
        groups=groups,
    )


def _way(subject: Subject, steps: dict[Drawn, Drawn], rank: int) -> tuple[str, ...]:
    """Return the shortest way from a rank to the root, as sentences."""
    lines: list[str] = []
    at: Drawn | None = Host(rank)
    while at is not None:
        after = steps.get(at)
        if isinstance(at, Host):
            call = subject.first_open(at.rank)
            if after is None and at.rank in subject.culprits:
                lines.append(f"rank {at.rank}: the root cause")
            elif call is not None:
                name = subject.call_name(call.node, at.rank)
                lines.append(f"rank {at.rank} is in {name}{subject.on_group(call.gid)}")
            elif after is not None:
                ended = subject.verdict.wait_ends if subject.verdict is not None else WaitEnds()
                became = f"rank {at.rank} waited" if subject.over else ended.clause([at.rank])
                lines.append(f"{became}, by its log")
        at = after
    return tuple(first_of(lines, _STEPS, "and {} more steps"))


def _queue(behaviour: Behaviour) -> tuple[tuple[str, ...], ...]:
    """Return the calls of a class: op, sizes, seq, the number of the group among the class's purposes, state and site."""
    purposes = sorted(behaviour.purposes)
    calls = behaviour.program.last(len(behaviour.program))
    return tuple(
        (call.kind.op, call.sizes, str(call.seq), str(purposes.index(call.purpose)), call.state, call.site)
        for call in calls
    )
