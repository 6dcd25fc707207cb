"""A short text read as a whole, as a person reads a paste: which stage it shows, the sizes it states, its most telling last line.

    torchrun --nnodes=2 --nproc_per_node=8 train.py
    initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8
    2026-01-14 09:01:53,683 - INFO - workflow: [('train', 1)], max: 12 epochs

The words of the stages are data, in knowledge/stages/stages.toml. Longer texts are represented by their events only.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.ingest.excerpts import pace
from hangscope.ingest.excerpts.code import Guarded, guarded_call, numbered
from hangscope.ingest.excerpts.commands import (
    Output,
    Unlike,
    commands,
    helpful_setting,
    local_ranks_gone,
    unlike_settings,
)
from hangscope.ingest.excerpts.line_groups import LineGroup, line_groups, tells_of_trouble
from hangscope.ingest.excerpts.prose import devices, has_fences, prose, written_by_people
from hangscope.ingest.excerpts.sections import Side, sides
from hangscope.ingest.job_logs.last_lines import template_of
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line, quote, strip_prefix
from hangscope.ingest.lines.rank_values import odd_cells, outlier
from hangscope.ingest.lines.rank_words import Named, named_processes, ranks_of_hosts
from hangscope.ingest.lines.vocabulary import Stage, complains, stage_of_line, words
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.stacks.headers import begins_dump
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

MOST = 1 << 15  # bytes of a text that is read so
_CUT = 600  # characters of a line that are read
_SHOWN = 160
_PAST = 3  # wordings of lines
_TIMEOUT, _LATE = 300, 2  # s
_ALIKE = str.maketrans("12345678", "99999999")
_STEPS, _BETWEEN = "training", ("validation", "saving")  # of stages.toml
#: What was pasted in addition to the log and need not be collected.
_EXHIBITS = {
    "kernel log": regex(r"^\[ {0,6}\d{1,9}\.\d{6}\] |\bNVRM: |\bkernel: |\bdmesg\b"),
    "pip list": regex(r"^[\w.-]{2,60} {2,40}\d{1,4}\.\d[\w.+]{0,30}$"),
}


class Excerpt(Event, by_launcher=True, calm=True):
    """A short text as a whole; the event's line is its most telling last one.

    `stage` is the last one that it shows, `stage_line` the line that shows it, unless it is an error. `sizes` are the numbers of ranks that it states for
    the whole job, or else that a reporter counts. `complaint`: what a reporter writes of the hang, `prose`: all that people write. `logged`: some lines are a program's, or report a failure.
    `broken`: of lines that took turns, numbers apart, which one did not come any more at the end. `moves`: the first and the last count of
    lines that are alike but for their numbers, where the last of them is the end of the text.
    `pace`: since which count steps take twice as long or longer, or which timer differs most between ranks; `slow`: where steps were slow before they continued at their pace; `went_on`: from where to where they count, wherever in the text; `silence`: the longest pause between lines, `gave_up`: its seconds, where it has the length of a usual timeout and the first errors follow it; `outlier`: a rank whose number or word is unlike those of all others in a list by rank, a sentence about it, and whether it is a word, `odd_cells`: ranks that alone differ in a column of a table by rank, and how. `gone`: local ranks that a list of processes lacks. `exhibits`: what else was pasted, such as a
    kernel log. `groups`: its lines, those that are alike together;
    `sides`: its labelled parts, those that show the same together; `named`: which processes its lines name. `steady`: lines alike but
    for numbers that grow, printed at even intervals, up to the line `steady_to`.
    `lasted`: the seconds of the longest work that a line reports (`lasted_line`). `guarded`: a collective in the program's code that rank 0
    alone calls or does not reach; `code`: the lines of the program, by number, at which stacks are. `helped`: the setting of NCCL with which it runs. `before`: the last line (number, text) of the program's own before the first that reports an error. `commands` are those
    that prompts show, `outputs` what they printed, `unlike` the lines in which that differs between two hosts, and `settings` what two
    writers print with two values although they agree otherwise.
    """

    stage: str = ""
    stage_line: str = ""
    sizes: tuple[int, ...] = ()
    one_node: bool = False  # a launcher was started for the processes of one node
    several_nodes: bool = False
    complaint: str = ""
    prose: str = ""
    logged: bool = False
    broken: str = ""
    moves: str = ""
    pace: str = ""
    slow: str = ""
    went_on: str = ""
    silence: str = ""
    gave_up: int = 0
    outlier: tuple[int, str, bool] | None = None
    odd_cells: tuple[tuple[int, str], ...] = ()
    exhibits: tuple[str, ...] = ()
    groups: tuple[LineGroup, ...] = ()
    sides: tuple[Side, ...] = ()
    named: tuple[Named, ...] = ()
    ranks_of_hosts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    gone: tuple[int, ...] = ()
    steady: str = ""
    steady_to: int = 0
    lasted: float = 0.0
    lasted_line: str = ""
    guarded: Guarded | None = None
    code: tuple[tuple[int, str], ...] = ()
    helped: str = ""
    before: tuple[int, str] | None = None
    written: tuple[int, ...] = ()  # numbers of the lines that people wrote
    commands: tuple[str, ...] = ()
    unlike: tuple[Unlike, ...] = ()
    settings: tuple[Unlike, ...] = ()
    outputs: tuple[Output, ...] = ()


# its source is the next line
_FRAME = regex(r'^\W{0,8}(?:\[rank\d{1,7}\]:)?\s{0,12}File "[^"]{1,400}", line \d')


def excerpt(kept: KeptText, size: int) -> Excerpt | None:
    """Return what a text of `size` bytes is as a whole; None of one that is empty or long."""
    if not 0 < size <= MOST:
        return None
    lines = [(number, text[:_CUT]) for number, text in kept.texts]
    if not lines:
        return None
    texts = [text for _, text in lines]
    shapes = _shapes(texts)
    people = written_by_people(lines)
    written = [(line, shape) for line, shape in zip(lines, shapes, strict=True) if not shape.noise]
    ours = [line for line, shape in written if not shape.reported]
    printed = [line for line in ours if line[0] not in people]
    fenced, frames = has_fences(texts), {number for number, text in lines if _FRAME.search(text)}
    telling = [
        line
        for line, shape in written
        if shape.trouble and not shape.reported and not (fenced and line[0] in people)
    ]
    stage, stage_line = _stage(
        [(t, s) for (n, t), s in zip(lines, shapes, strict=True) if n not in people and not s.reported]
    )
    candidates = telling or printed or ours
    number, text = (candidates or [line for line, _ in written] or lines)[-1]
    said, named = prose(people), named_processes(lines)
    counts, even = pace.counted(printed), pace.steady(printed)
    quiet, pause, before = pace.silence(printed)
    run, unlike, outputs = commands(texts)
    lasted, lasted_line = pace.longest(printed)
    stated, one_node = _launched(texts)
    sizes = tuple(sorted({n for n in stated if 1 < n <= MAX_RANKS}))
    if not sizes and (count := devices(said)) is not None:  # each rank has one of those that people count
        most = max((rank for one in named for rank in one.ranks), default=0)
        sizes = (count,) if most < count <= MAX_RANKS else ()
    # Timeouts of collectives are whole multiples of five minutes, up to three hours.
    is_timeout = _TIMEOUT - _LATE <= pause <= 36 * _TIMEOUT and (pause + _LATE) % _TIMEOUT <= 2 * _LATE
    return Line(kept.file, number, text, text).event(
        Excerpt,
        stage=stage,
        stage_line=stage_line,
        sizes=sizes,
        one_node=one_node,
        several_nodes=any(words("several_nodes").search(text) for text in texts),
        complaint=quote(
            " ".join(t for t, shape in zip(texts, shapes, strict=True) if shape.reported), _SHOWN
        ),
        prose=said,
        written=tuple(people),
        logged=bool(telling) or any(words("logged").search(t) or words("examines").match(t) for _, t in ours),
        broken=pace.broken([text for _, text in ours]),
        moves=pace.moves(counts, printed),
        pace=pace.pace(counts) or pace.spread(ours),
        slow=pace.slow_stretch(counts) or pace.slow_steps(counts),
        went_on=pace.went_on(counts),
        silence=quiet,
        gave_up=pause if is_timeout and telling and telling[0][0] > before else 0,
        outlier=outlier(printed),
        odd_cells=odd_cells(lines),
        exhibits=tuple(n for n, form in _EXHIBITS.items() if sum(bool(form.search(t)) for t in texts) > 1),
        before=_before_the_errors(printed),
        groups=line_groups((number, text) for number, text in printed if number - 1 not in frames),
        sides=sides(texts),
        named=named,
        ranks_of_hosts=ranks_of_hosts(texts),
        gone=local_ranks_gone(texts),
        steady=even[0],
        steady_to=even[1],
        lasted=lasted,
        lasted_line=quote(lasted_line, _SHOWN),
        guarded=guarded_call(lines),
        code=numbered(lines),
        helped=helpful_setting(texts, said),
        commands=run,
        unlike=unlike,
        settings=unlike_settings(texts),
        outputs=outputs,
    )


def _before_the_errors(printed: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the last line (number, text) of the program's own before the first error; None where there is none of either.

    What a command that lists something printed is not the program's, and neither is a title of a part of the text.
    """
    before, shown = None, False
    for number, text in printed:
        line = strip_prefix(text, number)
        shown = bool(text.strip()) and (shown or words("prompt_that_lists").match(text) is not None)
        if line.level in ("E", "F") or tells_of_trouble(text):
            return before
        own = line.text != line.raw or not words("no_line_of_a_program").match(text)
        if own and not shown and template_of(line) and not words("launchers_line").match(text.lstrip()):
            before = (number, quote(text, _SHOWN)) if not begins_dump(text) else before
    return None


@dataclass(frozen=True, slots=True)
class _Shape:
    """What holds for all lines that are alike but for their digits other than 0."""

    stage: Stage | None
    noise: bool
    trouble: bool
    reported: bool


def _shapes(texts: Sequence[str]) -> list[_Shape]:
    """Return the shape of each line; lines that are alike are examined once."""
    found: dict[str, _Shape] = {}
    for text in texts:
        if (alike := text.translate(_ALIKE)) not in found:
            noise = bool(words("noise").search(text))
            found[alike] = _Shape(stage_of_line(text), noise, tells_of_trouble(text), complains(text))
    return [found[text.translate(_ALIKE)] for text in texts]


def _stage(lines: Sequence[tuple[str, _Shape]]) -> tuple[str, str]:
    """Return the last stage that lines show and the line that shows it; nothing where the program printed other lines since then."""
    stage, shown, later = "", "", set[str]()
    for text, shape in lines:
        if shape.noise:
            continue
        if shape.stage is not None and not (shape.stage.name == _STEPS and stage in _BETWEEN):
            stage, shown, later = shape.stage.name, "" if shape.trouble else quote(text, _SHOWN), set()
        elif not shape.trouble:
            later.add(pace.form_of(text))
    return ("", "") if len(later) > _PAST else (stage, shown)


def _launched(texts: Sequence[str]) -> tuple[set[int], bool]:
    """Return the sizes of the whole job that lines state, by name or as nodes times processes of a node, and whether there is one node."""
    found: dict[str, set[int]] = {"sizes": set(), "per_node": set(), "nodes": set()}
    for text in texts:
        for name, numbers in found.items():
            numbers |= {int(next(filter(None, match.groups()))) for match in words(name).finditer(text)}
    sizes, per_node, nodes = found["sizes"], found["per_node"], found["nodes"]
    one_node = not nodes and not any("nnodes" in text for text in texts)  # torchrun's default
    if len(per_node) == 1 and (len(nodes) == 1 or one_node):
        sizes.add(next(iter(per_node)) * (next(iter(nodes)) if nodes else 1))
    return sizes, len(per_node) == 1 and (one_node or nodes == {1})
