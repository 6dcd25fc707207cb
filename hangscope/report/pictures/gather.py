"""All that the page shows of an analysis, gathered: every picture, and what the side panel shows of each rank."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.waitgraph import Host
from hangscope.model.rankset import compress
from hangscope.report import quotes
from hangscope.report.pictures.call_diff.behaviour import Behaviour, Folding
from hangscope.report.pictures.call_diff.diff import call_diff
from hangscope.report.pictures.rank_map import Mesh, folds, mesh_of, rank_map, steps_from_root, topology
from hangscope.report.pictures.stacks import SourceFolder, sides, snippets
from hangscope.report.pictures.strip import strip
from hangscope.report.pictures.wait_edges import Drawn, steps_to_root, wait_graph
from hangscope.report.pictures.waits import wait_picture
from hangscope.report.schema.document import FOLD_ABOVE
from hangscope.report.schema.page import DetailData, Frames, PageData, RankDetail
from hangscope.report.schema.pictures import RankMapData
from hangscope.report.story import tell
from hangscope.report.subject import Subject
from hangscope.report.words import at_line, first_of

QUEUES = 24
RANKS = FOLD_ABOVE  # or classes
_FRAMES, _STEPS, _FILES, _LOGS = 40, 6, 12, 2


def page_data(subject: Subject, source: SourceFolder | None = None) -> PageData:
    """Return the page's data; `source` is the folder of the job's code, if the user named it."""
    folding = Folding(subject)
    classes = folding.classes()
    mesh = mesh_of(subject)
    both = sides(subject)
    edges, roots = wait_graph(subject)
    after = steps_to_root(edges, roots)
    steps = steps_from_root(subject, after)
    story = tell(subject, classes)
    # A story with a traceback already shows the line that it quotes.
    stacks = [part.frames for part in story.parts if isinstance(part, Frames)] if story is not None else []
    quoted = {frame.code for frames in stacks for frame in frames}
    found = snippets(both, source)
    ranks = rank_map(subject, folds(subject, mesh, steps))
    return PageData(
        calls=call_diff(subject, classes),
        # Where nothing is stuck any more, nobody waits; and a graph in which nothing leads to the root shows nothing.
        waitfor=wait_picture(subject, edges, roots) if not subject.over and (after or not roots) else None,
        rankmap=ranks,
        topology=topology(subject, mesh, steps),
        strip=strip(subject),
        story=story,
        sides=both,
        snippets=tuple(s for s in found if len(s.lines) > 1 or s.lines[0][1] not in quoted),
        detail=_detail(subject, folding, classes, mesh, after, ranks),
    )


def _detail(
    subject: Subject,
    folding: Folding,
    classes: list[Behaviour],
    mesh: Mesh | None,
    steps: dict[Drawn, Drawn],
    map_of: RankMapData | None,
) -> DetailData:
    """Return the detail of every rank, or of every class of ranks in a large job; `steps` lead from node to node to the root."""
    queues = []
    for b in classes[:QUEUES]:  # a group is its number among the purposes of the class
        purposes, calls = sorted(b.purposes), b.program.last(len(b.program))
        number_of = {purpose: str(number) for number, purpose in enumerate(purposes)}
        queues.append(
            tuple((c.kind.op, c.sizes, str(c.seq), number_of[c.purpose], c.state, c.site) for c in calls)
        )
    parts = [(b.ranks, number) for number, b in enumerate(classes)]
    if subject.incident.world_size <= FOLD_ABOVE:
        parts = sorted(([rank], number) for ranks, number in parts for rank in ranks)
    rows = []
    for ranks, number in parts[:RANKS]:
        known = number < len(queues)
        groups = folding.own_groups(classes[number], ranks) if known else ()
        rows.append(_rank(subject, steps, mesh, ranks, number if known else None, groups))
    hosts = map_of.hosts if map_of is not None else ()
    per_host = map_of.per_host if map_of is not None and hosts else 0
    return DetailData(tuple(rows), tuple(queues), hosts, per_host)


def _rank(
    subject: Subject,
    steps: dict[Drawn, Drawn],
    mesh: Mesh | None,
    ranks: Sequence[int],
    queue: int | None,
    groups: tuple[str, ...],
) -> RankDetail:
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
                ended = subject.verdict.wait_ends.clause([at.rank])
                lines.append(f"{f'rank {at.rank} waited' if subject.over else ended}, by its log")
        at = after
    return tuple(first_of(lines, _STEPS, "and {} more steps"))
