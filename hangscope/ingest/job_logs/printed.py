"""What a rank's own program printed, as templates of lines with how often and where, so that ranks can be compared.

    epoch # auc nan                     1 time, line 812
    step # loss #                     640 times, last in line 811

Numbers, paths, quoted names and the rank are masked, `nan` and `inf` are not. What the communication layer, launchers and
tracebacks print is left out. Of a large log only the text before its first error and at its end is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping

from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs.vocabulary import words
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rank_words import by_itself
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

KEPT = 64  # templates of one writer
_WORDINGS = 1024  # lines that differ in more than digits
_WIDTH = 200  # characters of a line
_LONGEST = 120
#: what does not depend on the line's words: quoted names, paths, addresses, and numbers with their signs and units
_MASKS = (
    (regex(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "<s>"),
    (regex(r"(?:[\w.~-]{0,80}/)+[\w.@-]+"), "<path>"),
    (regex(r"0x[0-9a-f]+|\b(?=[a-f]*0)[0a-f]{12,}\b"), "#"),
    (regex(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?"), "#"),
    (regex(r"[\w-]{0,40}#[\w#.-]*"), "#"),
    (regex(r"(?:# ?[,x|/:-]? ?)+"), "# "),
    (regex(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed(Event, kind="printed", calm=True):
    """The templates of the lines that one writer's own program printed into one log, in the order in which each was last printed.

    Parallel to `templates`: how often (`counts`), the number and the text of the last such line (`numbers`, `texts`), the text of
    the one before it (`earlier`, empty where there is none), and how many lines the writer printed after it (`behind`). `complete`: the log was kept from its first line to its last.
    """

    templates: tuple[str, ...]
    counts: tuple[int, ...]
    numbers: tuple[int, ...]
    texts: tuple[str, ...]
    earlier: tuple[str, ...]
    behind: tuple[int, ...]
    complete: bool = False


def printed(kept: KeptText, own: bool) -> list[Printed]:
    """Return what each writer of a log printed; `own`: it is one rank's log. Of a shared log only lines with a rank or a prefix count."""
    if is_of_the_watcher(kept.file):
        return []
    writers: dict[object, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    heard: set[object] = set()  # who has any line here
    latest = sorted(kept.wordings.values(), key=lambda places: places[-1])[-_WORDINGS:]
    for places in latest:
        for of_one in [places] if own else kept.by_writer(places):
            line = by_itself(kept.line(of_one[-1]))
            who = None if own else line.rank if line.rank is not None else line.origin
            if own or line.rank is not None or line.origin:
                heard.add(who)
                if template := template_of(line):
                    writers[who][template] += of_one
    if not own and len(heard) < 2:
        return []  # nothing to compare with
    complete = kept.complete and len(latest) == len(kept.wordings)
    line_at = kept.line if own else lambda place: by_itself(kept.line(place))
    return [_of_writer(places, line_at, complete) for places in writers.values()]


def _of_writer(places_of: Mapping[str, list[int]], line_at: Callable[[int], Line], complete: bool) -> Printed:
    """Return what one writer printed, of many templates the rarest; `places_of` are the places of its lines by template."""
    of_template = [(template, sorted(places)) for template, places in places_of.items()]
    rare = sorted(of_template, key=lambda item: (len(item[1]), -item[1][-1]))[:KEPT]
    templates, places = zip(*sorted(rare, key=lambda item: item[1][-1]), strict=True)
    every = sorted(place for _, of_one in of_template for place in of_one)
    lines = [line_at(of_one[-1]) for of_one in places]
    before = [line_at(of_one[-2]).text if len(of_one) > 1 else "" for of_one in places]
    return lines[-1].event(
        Printed,
        templates=templates,
        counts=tuple(map(len, places)),
        numbers=tuple(line.number for line in lines),
        texts=tuple(line.text[:_WIDTH].strip() for line in lines),
        earlier=tuple(text[:_WIDTH].strip() for text in before),
        behind=tuple(len(every) - bisect_right(every, of_one[-1]) for of_one in places),
        complete=complete and len(rare) == len(of_template),
    )


def template_of(line: Line) -> str:
    """Return a line with all that varies masked, empty where it is not the program's own."""
    text = line.text
    if line.source is not None or words("not_its_own").search(text):
        return ""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text[:_LONGEST].strip()
