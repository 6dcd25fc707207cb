"""Lines that a minority of the ranks printed, printed another number of times, or printed with another value.

No word decides: templates of lines (`ingest/job_logs/last_lines.py`) are counted across the ranks whose output was collected. A line
that all ranks printed implicates nobody. What only one rank printed shortly before the freeze is evidence about that rank; it never
names a rank by itself. Habits (a line printed again and again), the reports of rank 0, and what ranks print after they timed out
or lost a peer are discounted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from math import log2

from hangscope.explain.statements.torn_lines import Originals, Words, is_garbled
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

LEAST = 0.2  # score from which a line is worth showing
TELLING = 0.5  # score of a line that is no habit, at the end of what its rank printed
_SHORTENED = ("...", "…")
_MOST = 8
_REPORT = 0.3  # weight of a line of the reporter that counts or measures nothing and does not name its rank
_FEW = 0.25  # share of the ranks whose value may be the outlier
_MORE = 4  # times what ranks measure differently
_SURE = 3  # ranks that agree about a value which is printed once
_NUMBER = regex(r"\d+(?:\.\d+)?")
_NAME = regex(r"[A-Za-z][\w.-]{0,40} ?[=:] ?$")
_CLOCK = regex(r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?")
_OF_ITSELF = regex(r"(?i)\brank\W{0,3}(\d{1,6})\b|^\W{0,3}(\d{1,6})\]")


@dataclass(frozen=True, slots=True)
class OutlierLine:
    """A line that sets `ranks` (global) apart: `how` is "only", "missing", "count" or "value"; `text`, `file` and `line` are the last such line's.

    `score` decreases with what its rank printed after it. `telling`: only these ranks printed it, and it is no habit and no report.
    `lacks_the_last`: it is the last line of every other rank. Either decides between even sides. `printers`: who printed it, once each.
    """

    ranks: tuple[int, ...]
    how: str
    text: str
    file: str
    line: int
    score: float
    note: str
    telling: bool = False
    lacks_the_last: bool = False
    printers: tuple[int, ...] = ()

    @property
    def decides(self) -> bool:
        """Return whether it shows which of two even sides did something else."""
        return self.telling or self.lacks_the_last

    def says(self) -> str:
        """Return it as evidence: `only rank 2 printed this: epoch 1 auc nan`."""
        return f"{self.note}: {quote(self.text, 160)}"


@dataclass(frozen=True, slots=True)
class _Said:
    """A template in the output of one rank: how often, and its last line with how many lines came after it."""

    count: int
    behind: int
    text: str
    earlier: str
    file: str
    line: int

    def sets_apart(
        self, ranks: tuple[int, ...], how: str, score: float, note: str, telling: bool = False
    ) -> OutlierLine:
        return OutlierLine(ranks, how, self.text, self.file, self.line, score, note, telling)


def outlier_lines(
    printed: list[Printed], heard: set[int], aftermath: dict[tuple[int, str], int]
) -> tuple[OutlierLine, ...]:
    """Return the lines that set a minority of the ranks apart, the most telling first.

    `heard`: the ranks whose output was collected, whether or not they printed anything. `aftermath`: by rank and file the line
    from which on a rank only reports what the freeze did to it.
    """
    said: dict[str, dict[int, _Said]] = defaultdict(dict)
    ranks, cut = set(heard), set[int]()
    after: dict[str, set[int]] = defaultdict(set)
    in_file: dict[tuple[str, int, str], int] = {}
    for event in printed:
        if event.rank is None:
            continue
        ranks.add(event.rank)
        cut |= set() if event.complete else {event.rank}
        last = aftermath.get((event.rank, event.file), 1 << 60)
        columns = event.counts, event.behind, event.texts, event.earlier, event.numbers
        for template, count, behind, text, earlier, line in zip(event.templates, *columns, strict=True):
            before = said[template].get(event.rank)
            if text.startswith(_SHORTENED):
                continue  # a person left out lines, and says so
            in_file[template, event.rank, event.file] = count
            if line >= last:
                after[template].add(event.rank)
            elif before is None or before.count < count:
                said[template][event.rank] = _Said(count, behind, text, earlier, event.file, line)
    for template in after.keys() & said.keys():
        if len(said[template]) > 1 and after[template] - said[template].keys():
            del said[template]  # who printed it in its aftermath does not lack it
    # What ranks alone printed in whose logs there is what no program prints; what they lack may be lost.
    alone = [(template, next(iter(of.items()))) for template, of in said.items() if len(of) == 1]
    common = Words(template for template, of in said.items() if len(of) > 1)
    damaged = {rank for t, (rank, copy) in alone if is_garbled(copy.text) or common.damaged_in(t)}
    cut |= damaged
    for template in [template for template, (rank, _) in alone if rank in damaged]:
        del said[template]
    for template in [copy for printers in (2, 1) for copy in _join_torn(said, in_file, printers)]:
        said.pop(template, None)
    speakers = set[int]().union(*said.values())
    reporters = {0} | (speakers if len(speakers) == 1 else set())  # who prints for all
    found = (_outlier(lines, ranks, cut, reporters) for lines in said.values()) if len(ranks) > 1 else ()
    shown = [line for line in found if line is not None and line.score >= LEAST]
    return tuple(sorted(shown, key=lambda o: (-round(o.score, 3), o.file, o.line))[:_MOST])


def _join_torn(
    said: dict[str, dict[int, _Said]], in_file: dict[tuple[str, int, str], int], printers: int
) -> list[str]:
    """Count damaged copies as the lines that peers (at least `printers`) printed more often; return those that more may be glued to."""
    forms = {t: _NUMBER.sub("#", next(iter(who.values())).text) for t, who in said.items() if who}
    whole = {forms[template]: template for template, who in said.items() if len(who) >= printers}
    originals, copies = Originals(whole), list[str]()
    for template in [template for template, who in said.items() if len(who) == 1]:
        if len(said[template]) > 1:
            continue  # another copy was counted as it
        ((rank, copy),) = said[template].items()
        for form in originals.of(forms[template]):
            who = said.get(whole[form], {})
            # Where a second file holds what a rank printed as well, only those of the copy's own file count.
            own = in_file.get((whole[form], rank, copy.file), who[rank].count if rank in who else 0)
            others = [it.count for r, it in who.items() if r != rank and whole[form] != template]
            has_more = len(form) < len(forms[template])  # but no word of its own
            if any(count > own for count in others):
                known, total = who.get(rank, copy), own + copy.count
                who[rank] = replace(known, count=max(known.count, total))
                in_file[whole[form], rank, copy.file] = total
            elif not (others and has_more):
                continue
            if not has_more:
                del said[template]
                break
            copies.append(template)  # it may be a copy of other lines as well
    return copies


def _outlier(
    lines: dict[int, _Said], ranks: set[int], cut: set[int], reporters: set[int]
) -> OutlierLine | None:
    """Return how a template sets a minority apart, None where it does not."""
    if (one := _one_behind(lines, ranks, reporters)) is not None:
        return one
    counts = {rank: lines[rank].count if rank in lines else 0 for rank in sorted(ranks)}
    usual, times = Counter(counts.values()).most_common(1)[0]
    few = tuple(rank for rank, count in counts.items() if count != usual)
    in_step = len(lines) == len(ranks) and max(counts.values()) - min(counts.values()) < 2
    if usual and in_step and (odd := _other_value(lines, ranks)) and (odd.telling or not few):
        return odd
    if not few or 2 * len(few) > len(ranks) or (usual and (times == 1 or cut)):
        return None  # what a part of a log holds once may have been printed before it as well
    shown = max((rank for rank in lines if rank in few or usual), key=lambda r: (-lines[r].behind, -r))
    line, who = lines[shown], ranks_phrase(few)
    score = (1 - (len(few) - 1) / len(ranks)) / (1 + log2(1 + line.behind))
    if usual:
        if most := max(counts[rank] for rank in few):
            more, fewer = ("once" if n == 1 else f"{n} times" for n in (most, usual))
            note = f"{who} printed such lines {more}, the others {fewer}"
            return line.sets_apart(few, "count", score / 2, note)
        printers = tuple(rank for rank in counts if rank not in few)
        note = f"{ranks_phrase(printers)} printed this, {who} did not"
        missing = line.sets_apart(few, "missing", score / 2, note)
        return replace(missing, printers=printers if usual == 1 else ())
    weight = 1 / max(counts.values()) ** 2
    if len(few) == 1 and few[0] in reporters:
        weight *= _as_reporter(few[0], line.text)
    return line.sets_apart(few, "only", score * weight, f"only {who} printed this", weight >= TELLING)


def _one_behind(lines: dict[int, _Said], ranks: set[int], reporters: set[int]) -> OutlierLine | None:
    """Return the line that ends the output of every rank but one, which lacks it or printed it only with smaller numbers."""
    if len(ranks) < _SURE or len(lines) < 2:
        return None
    most = max(said.count for said in lines.values())
    late = [rank for rank in ranks if rank not in lines or lines[rank].behind]
    late = late or [rank for rank in ranks if lines[rank].count < most]
    steps = {rank: [*map(float, _numbers(said.text)[:1])] for rank, said in lines.items()}
    if len(late) != 1 or (late[0] in reporters and late[0] not in lines):
        return None
    own = steps.pop(late[0], None)
    if own is not None and own >= min(steps.values()):
        return None
    note = f"{ranks_phrase(ranks - {late[0]})} printed this, rank {late[0]} did not"
    found = lines[min(steps)].sets_apart((late[0],), "missing", TELLING, note)
    once = {lines[rank].count for rank in steps} == {1}
    return replace(found, lacks_the_last=True, printers=tuple(sorted(steps)) if once else ())


def _as_reporter(rank: int, text: str) -> float:
    """Return the weight of a line that the reporting rank alone printed: 1 where it names its own rank, 0 where it measures."""
    named = _OF_ITSELF.search(text)
    if named is not None and int(named[1] or named[2]) == rank:
        return 1.0
    return _REPORT if len(_NUMBER.findall(text)) < 2 else 0.0


def _other_value(lines: dict[int, _Said], ranks: set[int]) -> OutlierLine | None:
    """Return the line in which a few ranks print another number than all others, of one that no rank printed twice more than another.

    In a recurring line only a number counts that was about the same on all ranks the time before, or that no rank ever changes: a
    size, a setting. These are telling, as is one of a line that came once and about which several agree. Of several numbers the one that is
    furthest off counts; where other ranks are as far off in another, nobody is set apart.
    """
    order = sorted(ranks)
    last = [*zip(*(_numbers(lines[rank].text) for rank in order), strict=False)]
    before = [*zip(*(_numbers(lines[rank].earlier) for rank in order), strict=False)]
    again = any(lines[rank].earlier for rank in ranks)
    uneven = len({line.count for line in lines.values()}) > 1
    found: list[tuple[float, tuple[int, ...], OutlierLine]] = []
    for place, column in enumerate(last):
        value, times = Counter(column).most_common(1)[0]
        if uneven and (place >= len(before) or set(before[place]) != {value}):
            continue  # the last lines are of different steps
        constant = again and place < len(before) and before[place] == column
        far = max(_apart(float(number), float(value)) for number in column)
        earlier = [*map(float, before[place])] if again and place < len(before) else []
        changed = bool(earlier) and _MORE * _apart(min(earlier), max(earlier)) < far
        if column == tuple(map(str, order)) or (again and not (constant or changed)):
            continue  # each rank's own number, or one that changes
        few = tuple(rank for rank, number in zip(order, column, strict=True) if number != value)
        if 0 < len(few) <= max(1, _FEW * len(ranks)) and len(few) < times:
            its, usual = lines[few[0]], lines[order[column.index(value)]]
            note = f"{ranks_phrase(few)} printed {_named(its.text, place)} where {'the others' if times > 1 else 'the other'} printed {value}"
            same = changed and len(set(before[place])) == 1
            note += "; the time before, all printed the same" if same else ""
            if _NUMBER.sub("", usual.text) != _NUMBER.sub("", its.text):
                note += f" ({quote(usual.text, 160)})"  # the two differ in words as well
            line = its.sets_apart(few, "value", TELLING / 2, note, telling=again or times >= _SURE)
            found.append((far, few, line))
    if not found:
        return None
    most, few, line = max(found, key=lambda one: one[0])
    return None if any(who != few and 2 * far > most for far, who, _ in found) else line


def _apart(one: float, other: float) -> float:
    """Return how far apart two numbers are as a part of the larger one."""
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


def _found(text: str) -> list[re.Match[str]]:
    """Return the numbers of a line, without clock times, measurements and its own rank."""
    return [*_NUMBER.finditer(words("measured").sub("", _CLOCK.sub("", _OF_ITSELF.sub("", text))))]


def _numbers(text: str) -> list[str]:
    return [number[0] for number in _found(text)]


def _named(text: str, place: int) -> str:
    """Return one of a line's numbers with the word that it belongs to: `batches=3`."""
    number = _found(text)[place]
    name = _NAME.search(number.string[: number.start()])
    return f"{name[0] if name else ''}{number[0]}"
