"""What the side panel shows of each rank: its queue, its stack, what its log told, its files, its way to the root."""

from __future__ import annotations

from hangscope.align.waitgraph import Host
from hangscope.rankset import compress
from hangscope.report import told
from hangscope.report.pictures.call_diff.behaviour import Behaviour
from hangscope.report.pictures.topology import Mesh
from hangscope.report.pictures.wait_edges import Drawn
from hangscope.report.schema.document import FOLD_ABOVE
from hangscope.report.schema.page import DetailData, RankDetail
from hangscope.report.schema.pictures import RankMapData
from hangscope.report.subject import Subject, site_of, sizes_of, state_word

QUEUES = 24
RANKS = 1024  # above it, classes
_FRAMES, _STEPS, _FILES, _LOGS = 40, 6, 12, 2


def detail(
    subject: Subject,
    classes: list[Behaviour],
    mesh: Mesh | None,
    steps: dict[Drawn, Drawn],
    map_of: RankMapData | None,
) -> DetailData:
    """Return the detail of every rank, or of every class of ranks in a large job; `steps` lead from node to node to the root."""
    queues = tuple(_queue(subject, b) for b in classes[:QUEUES])
    queue_of = {rank: i for i, b in enumerate(classes[:QUEUES]) for rank in b.ranks}
    if subject.incident.world_size <= FOLD_ABOVE:
        rows = [
            _rank(
                subject,
                steps,
                rank,
                str(rank),
                queue_of.get(rank),
                mesh.label(rank) if mesh is not None else "",
            )
            for rank in sorted(subject.incident.ranks)
        ]
    else:
        rows = [
            _rank(subject, steps, b.ranks[0], compress(b.ranks), queue_of.get(b.ranks[0]), "")
            for b in classes[:RANKS]
        ]
    hosts = map_of.hosts if map_of is not None else ()
    return DetailData(tuple(rows), queues, hosts, map_of.per_host if map_of is not None and hosts else 0)


def _rank(
    subject: Subject, steps: dict[Drawn, Drawn], rank: int, ranks: str, queue: int | None, label: str
) -> RankDetail:
    record = subject.incident.ranks[rank]
    stack = record.threads[0][1] if record.threads else ()
    return RankDetail(
        ranks=ranks,
        host=record.host if ranks == str(rank) else None,
        label=label,
        state=subject.role(rank),
        absence=record.absence.value if record.absence is not None else None,
        waits=_way(subject, steps, rank),
        queue=queue,
        stack=tuple(f"{f.file}:{f.line} in {f.name}" for f in stack[:_FRAMES]),
        told=tuple(f"{t.text}  [{t.source}]" for t in told.last_words(subject, rank)),
        log=tuple(line for file, lines in record.log_tails[-_LOGS:] for line in (f"[{file}]", *lines)),
        files=tuple(record.files[:_FILES]) if ranks == str(rank) else (),
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
                lines.append(f"rank {at.rank}: the root")
            elif call is not None:
                name = subject.call_name(call.node, at.rank)
                lines.append(f"rank {at.rank} is in {name}{subject.on_group(call.gid)}")
            elif after is not None:
                lines.append(f"rank {at.rank} waits, as text tells")
        at = after
    return (*lines[:_STEPS], f"and {len(lines) - _STEPS} more steps") if len(lines) > _STEPS else tuple(lines)


def _queue(subject: Subject, behaviour: Behaviour) -> tuple[str, ...]:
    program = behaviour.program
    lines = []
    for row in range(len(program)):
        kind = subject.incident.kinds[int(program.kind[row])]
        group = subject.label(int(program.gid[row]))
        parts = (
            kind.op,
            sizes_of(kind),
            f"seq {int(program.seq[row])}",
            f"group {group}",
            state_word(int(program.state[row])),
            site_of(kind),
        )
        lines.append(" · ".join(part for part in parts if part))
    return tuple(lines)
