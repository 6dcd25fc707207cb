"""The text that is kept of a log, read once: the progress of each writer, a good end, and what the ranks' own program printed.

What a program printed is kept as templates of lines with how often and where, so that ranks can be compared:

    epoch # auc nan                     1 time, line 812
    step # loss #                     640 times, last in line 811

Numbers, paths, quoted names and the rank are masked, `nan` and `inf` are not. What the communication layer, launchers and
tracebacks print is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hangscope.ingest.excerpts.prose import written_by_people
from hangscope.ingest.files.numbering import number_in
from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs.progress import (
    WorkersEnded,
    good_end_of,
    is_complaint,
    paced,
    progress_of,
    sort_of,
)
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.vocabulary import of_people, words
from hangscope.model.events import Event
from hangscope.model.regex import regex

KEPT = 64  # templates of one writer
_WIDTH = 200  # characters of a line
_LONGEST = 120
_ASKS = b"echo $?"  # what a shell prints then is an exit code
_SHORT = 400  # lines of a text around which people may have written
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


def printed_by(places_of: Mapping[str, list[int]], line_at: Callable[[int], Line], complete: bool) -> Printed:
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
    """Return a line with all that varies masked, empty where it is not the program's own, or only a title."""
    text = line.text
    if (
        line.source is not None
        or words("not_its_own").search(text)
        or not words("says_something").search(text)
    ):
        return ""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text[:_LONGEST].strip()


_MOST = 1024  # wordings whose lines are compared between ranks
_LEAST_SPEAKERS = 3  # ranks
_LEAST = 4  # lines of the one rank that prints in a file, which are then compared with those of other files


def last_lines(kept: KeptText) -> list[Event]:
    """Return what the last lines of a log say."""
    progress: dict[tuple[str, str], Event] = {}
    ends: dict[str, Event] = {}
    printed = _Writers(kept)
    groups = kept.by_writer()
    short = not kept.own and len(kept.raw) <= _SHORT
    people = written_by_people(kept.texts) if short else {}
    # Ranks begin lines with `[rank 2] `; where one alone does, a person may name it so.
    own = (kept.own_line(places[-1]) for places in groups) if short else ()
    several = len({line.rank for line in own if line.rank is not None and line.raw.startswith("[")}) > 1
    for number, places in enumerate(groups):
        line = kept.line(places[-1])
        asked = places[-1] > 0 and kept.raw[places[-1] - 1].rstrip().endswith(_ASKS)
        if places[-1] >= kept.end and (end := good_end_of(line, asked=asked)) is not None:
            ends.setdefault(end.kind, end)
        whole, line = line, kept.own_line(places[-1])
        said = whole.number in people and not whole.origin and not words("figures").search(whole.text)
        about = words("about_a_rank").match(whole.text) or said
        tagged = several and whole.text.startswith("[")
        if line is not whole and about and not tagged and of_people(whole.text):
            continue
        step = progress_of(line)
        key = (f"{line.origin}|{line.host}", sort_of(step))
        asks = whole.number in people and "?" in whole.text
        if step is not None and key not in progress and not asks:
            before = kept.own_line(places[-2]) if len(places) > 1 else None
            progress[key] = paced(step, before)
        if number < _MOST:
            printed.add(line, places, whole.origin if line is not whole else "")
    last = (kept.line(places[-1]) for places in groups if places[-1] >= kept.end)
    if WorkersEnded.kind in ends and any(map(is_complaint, last)):
        del ends[WorkersEnded.kind]
    in_order = sorted(progress.values(), key=lambda event: (event.line, event.text))
    compared = [] if is_of_the_watcher(kept.file) else printed.events(len(groups) <= _MOST)
    return [*in_order, *(ends[kind] for kind in sorted(ends)), *compared]


class _Writers:
    """The places of the lines of each writer by their template. Of a log of several only lines with a rank or a prefix count.

    A log in which nobody has either may be that of one process: its name says so, or those of its siblings.
    """

    def __init__(self, kept: KeptText) -> None:
        self._kept, self._own = kept, kept.own
        self._heard: set[object] = set()  # who has any line here
        self._places: dict[object, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._said: dict[str, set[int | None]] = defaultdict(set)  # ranks by the prefix before them

    def add(self, line: Line, places: Sequence[int], prefix: str = "") -> None:
        """Add lines of one wording and one writer, the last of which is given; `prefix` is what precedes the rank that it says of itself."""
        who = None if self._own else line.rank if line.rank is not None else line.origin
        if prefix:
            self._said[prefix].add(line.rank)
        self._heard.add(who)
        if template := template_of(line):
            self._places[who][template] += places

    def _divide(self) -> None:
        """Give lines of one wording to the ranks that they name in their middle, where these are 0 to N-1: each speaks of itself.

        So do lines of another wording that begin alike and name most of these ranks: whom they do not name has not printed them.
        """
        speakers: dict[str, set[int]] = {}
        found = []
        for template, places in self._places.get("", {}).items():
            named = words("speaker_masked").search(template)
            if named is None or len(places) < _LEAST_SPEAKERS:
                continue
            by_rank: dict[int, list[int]] = defaultdict(list)
            for place in sorted(places):
                if (own := words("speaker").search(self._kept.line(place).text)) is not None:
                    by_rank[int(own[1])].append(place)
            before = template[: named.start()]
            if len(by_rank) >= _LEAST_SPEAKERS and sum(map(len, by_rank.values())) == len(places):
                found.append((template, before, by_rank))
                if by_rank.keys() == set(range(len(by_rank))):
                    speakers.setdefault(before, set()).update(by_rank)
        for template, before, by_rank in found:
            every = speakers.get(before, set())
            if by_rank.keys() <= every and 2 * len(by_rank) > len(every):
                del self._places[""][template]
                for rank, places in by_rank.items():
                    self._places[rank][template] += places
                    self._heard.add(rank)

    def events(self, complete: bool) -> list[Printed]:
        """Return what each writer printed; nothing where there is no other to compare it with."""
        self._divide()
        for prefix, ranks in self._said.items():  # a process that said once which rank it is
            if len(ranks) == 1 and prefix in self._places:
                for template, their in self._places.pop(prefix).items():
                    self._places[next(iter(ranks))][template] += their
        own, named = self._places.pop("", {}), self._heard - {""}
        lines = sum(map(len, (places for of in self._places.values() for places in of.values())))
        of_one_rank = not own and lines >= _LEAST and any(isinstance(who, int) for who in named)
        if len(named) < 2 and not self._own and not of_one_rank:
            if number_in(self._kept.file) is None:
                return []
            for places in self._places.values():  # of the one rank that prints here
                for template, found in places.items():
                    own.setdefault(template, []).extend(found)
            self._places = {"": own} if own else {}
        line_at = self._kept.line if self._own else self._kept.own_line
        every = []
        for who, of in self._places.items():
            printed = printed_by(of, line_at, complete and self._kept.complete)
            every.append(
                replace(printed, rank=who) if isinstance(who, int) and printed.rank is None else printed
            )
        return every
