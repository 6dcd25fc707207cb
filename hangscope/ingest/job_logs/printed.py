"""What a rank's own program printed, as templates of lines with how often and where, so that ranks can be compared.

    epoch # auc nan                     1 time, line 812
    step # loss #                     640 times, last in line 811

Numbers, paths, quoted names and the rank are masked, `nan` and `inf` are not. What the communication layer, launchers and
tracebacks print is left out. Of a large log only the text before its first error and at its end is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs.own_rank import by_itself
from hangscope.ingest.lines.prefixes import Line, clean, strip_prefix
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

KEPT = 64  # templates of one writer
_FORMS = 1024  # lines that differ in more than digits, of one writer
_SHOWN, _WIDTH = 8, 200  # lines of a log's end, and characters of each, that a report shows
_LONGEST = 120
_LOOKED_AT = 1 << 14  # bytes of a log's end that are shown
_OF_SEVERAL = 1 << 16  # bytes of a log that several ranks share, of which each line's writer is looked for
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
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
_NOT_ITS_OWN = regex(
    r"Traceback|Exception\b|\bSIG(?:TERM|INT|KILL)\b|Warning\b|warnings\.warn|^\s|^\W*$|^\^|^[\w.]{1,80}(?:Error|Interrupt|Exit)\b|\[[EWIF]\d{3,4} |NCCL |gloo|c10d|torch\.distributed|elastic|"
    r"Watchdog|watchdog|\.(?:cpp|cc|hpp):\d|^[-=*#]{5,}|^Thread 0x|\(most recent call |\d%\||^terminate called|^Process .{1,80}:$"
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


def last_lines(windows: Sequence[tuple[int, bytes]]) -> tuple[str, ...]:
    """Return the last lines of a log as they stand, but for empty ones and all but the last state of a progress bar."""
    if not windows:
        return ()
    lines = []
    for raw in reversed(windows[-1][1][-_LOOKED_AT:].split(b"\n")):
        shown = clean(
            raw.rstrip(b"\r").rpartition(b"\r")[2][: 4 * _WIDTH].decode("utf-8", "replace")
        ).rstrip()
        if shown:
            lines.append(shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…")
        if len(lines) == _SHOWN:
            break
    return tuple(reversed(lines))


class _Writer:
    """What one writer printed: how often each template, and where the last time."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last: dict[str, tuple[int, int, Line]] = {}  # how many lines came before, number, line
        self.earlier: dict[str, str] = {}
        self.before = 0

    def add(self, template: str, count: int, before: int, line: Line, earlier: Line | None = None) -> None:
        self.counts[template] += count
        last = self.last.pop(template, None)
        if earlier is None and last is not None:
            earlier = last[2]
        if earlier is not None:
            self.earlier[template] = earlier.text
        self.last[template] = (before, line.number, line)

    def event(self, complete: bool) -> Printed | None:
        told = sorted(self.last.items(), key=lambda item: item[1][1])
        rare = sorted(told, key=lambda item: (self.counts[item[0]], -item[1][1]))[:KEPT]
        kept = [item for item in told if item in rare]
        if not kept:
            return None
        return kept[-1][1][2].event(
            Printed,
            templates=tuple(template for template, _ in kept),
            counts=tuple(self.counts[template] for template, _ in kept),
            numbers=tuple(number for _, (_, number, _) in kept),
            texts=tuple(line.text[:_WIDTH].strip() for _, (_, _, line) in kept),
            earlier=tuple(self.earlier.get(template, "")[:_WIDTH].strip() for template, _ in kept),
            behind=tuple(self.before - before - 1 for _, (before, _, _) in kept),
            complete=complete and len(kept) == len(told),
        )


def printed(windows: Sequence[tuple[int, bytes]], file: str, own: bool) -> list[Printed]:
    """Return what each writer of a log printed; `own`: it is one rank's log. Of a shared log only lines with a rank or a prefix tell.

    `windows` are (number of the first line, bytes) as `Scan` keeps them; two may overlap.
    """
    if is_of_the_watcher(file):
        return []
    writers: dict[object, _Writer] = {}
    heard: set[object] = set()  # who has any line here
    parts = _apart(windows)
    complete = [number for number, _ in parts] == [1] and (own or len(parts[0][1]) <= _OF_SEVERAL)
    for number, data in parts:
        if own:
            _of_one(writers.setdefault(None, _Writer()), number, data, file)
            continue
        cut = data[-_OF_SEVERAL:]
        number += data.count(b"\n", 0, len(data) - len(cut))
        for offset, raw in enumerate(cut.split(b"\n")):
            line = by_itself(_line(raw, number + offset, file))
            if line.rank is not None or line.origin:
                heard.add(line.rank if line.rank is not None else line.origin)
            if (template := template_of(line)) and (line.rank is not None or line.origin):
                writer = writers.setdefault(
                    (line.rank, "" if line.rank is not None else line.origin), _Writer()
                )
                writer.add(template, 1, writer.before, line)
                writer.before += 1
    if not own and len(heard) < 2:
        return []  # nothing to compare with
    return [event for writer in writers.values() if (event := writer.event(complete)) is not None]


def _apart(windows: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the windows without the lines that a later one holds as well."""
    found, following = [], None
    for number, data in reversed(windows):
        if following is not None and number + data.count(b"\n") >= following:
            lines = data.split(b"\n")
            data = b"\n".join(lines[: max(0, following - number)])
        following = number
        if data:
            found.append((number, data))
    return found[::-1]


def _of_one(writer: _Writer, number: int, data: bytes, file: str) -> None:
    """Add the lines of a log of one rank: those that differ in digits alone are looked at once, the last of them."""
    lines = data.split(b"\n")
    forms = data.translate(_AS_ZERO).split(b"\n")
    counts, last = Counter(forms), dict(zip(forms, range(len(forms)), strict=True))
    ends = set(last.values())
    before = {form: at for at, form in enumerate(forms) if at not in ends}
    chosen = sorted(last.items(), key=lambda item: item[1])[-_FORMS:]
    found = {form: _line(lines[at], number + at, file) for form, at in chosen}
    templates = {form: template_of(by_itself(line)) for form, line in found.items()}
    its_own = {form for form, template in templates.items() if template}
    places = {at for form, at in chosen if form in its_own}
    for at, form in enumerate(forms):
        if form in its_own:
            if at in places:
                earlier = _line(lines[before[form]], number + before[form], file) if form in before else None
                writer.add(templates[form], counts[form], writer.before, found[form], earlier)
            writer.before += 1


def _line(raw: bytes, number: int, file: str) -> Line:
    return strip_prefix(raw[:1000].partition(b"\r")[0].decode("utf-8", "replace"), number, file)


def template_of(line: Line) -> str:
    """Return a line with all that varies masked, empty where it is not the program's own."""
    text = line.text
    if line.source is not None or _NOT_ITS_OWN.search(text):
        return ""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text[:_LONGEST].strip()
