"""All that the page shows of an analysis, gathered: the one place that knows every picture."""

from __future__ import annotations

from hangscope.report.pictures.call_diff.behaviour import Folding
from hangscope.report.pictures.call_diff.diff import call_diff
from hangscope.report.pictures.detail import detail
from hangscope.report.pictures.rank_map import folds, mesh_of, rank_map, steps_from_root, topology
from hangscope.report.pictures.stacks import sides
from hangscope.report.pictures.strip import strip
from hangscope.report.pictures.wait_edges import steps_to_root, wait_graph
from hangscope.report.pictures.waits import wait_picture
from hangscope.report.schema.page import Frames, PageData
from hangscope.report.sources import SourceFolder, snippets
from hangscope.report.story.tell import tell
from hangscope.report.subject import Subject


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
    code = tuple(
        s for s in snippets(both, source) if not (len(s.lines) == 1 and quoted & {x.text for x in s.lines})
    )
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
        snippets=code,
        detail=detail(subject, folding, classes, mesh, after, ranks),
    )
