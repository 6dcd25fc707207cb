"""Ranks that lines name in words, in no form of torch or of a launcher: before a program's own lines, in titles, and anywhere in a text.

    [rank 3] step 640 loss 1.25                  a program's own prefix
    05:21:02 r3 item table 7 -> rank 2           what begins most lines of one log and counts from 0 without a gap, in no order
    train batch 40 loss 2.07 lr 0.00001 rank 3   at the end of the lines of all ranks
    Stack of rank 3:                             a title above the stack, the log or the entries of a process
    ranks 1-3 all show                           one stack for several ranks
    ==> dumps/rank3.txt <==                      a file of which the text is a copy
    20:15:02 [rank5] pid 78808 writing           a process that a line names

Only a program's own lines are read by their own prefix: `[Rank 3]` in a line of the watchdog is a number within a group. Parsers read
the forms that they know; `named_processes` finds the others, so that nothing is reported as unknown that the text states.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from hangscope.ingest.files.naming import rank_of_log, says_rank
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.vocabulary import expressions, words
from hangscope.model.dataclass import dataclass

_SENTENCE = 160  # characters of a line that may be a title
_TITLE_LIMIT = 80
_SHORT = 48  # of a title that ends in no colon
_MOST_RANKS = 4096  # of one title
_MOST_LINES = 256


_OF_RANKS = frozenset({"r", "rank", "ranks", "tp", "gpu", "gpus"})


def likewise(text: str) -> tuple[tuple[int, ...], int | None] | None:
    """Return the ranks of which somebody writes that they show the same as another one, and that one where it is named; None of other lines.

    No ranks where the line begins with `same` and names the other one: it replaces the stack below a title.
    """
    match = words("likewise").search(text) if len(text) <= _SENTENCE else None
    if match is None:
        return None
    before = [word.lower() for word in words("word_or_number").findall(text[: match.start()])]
    if not before and (like := words("same_as").search(text, match.end())) is not None:
        return (), int(like[1])
    if not _OF_RANKS & {*before} or not all(map(words("before_same").match, before)):
        return None
    if (whole := words("all_of_ranks").search(text, 0, match.start())) is not None:
        return tuple(range(min(int(whole[1]), _MOST_RANKS))), None
    numbers = [re.sub(r"\s", "", part) for part in words("range_of_ranks").findall(text[: match.start()])]
    ranks = _numbers(", ".join(numbers)) if numbers else ()
    like = words("same_as").search(text, match.end())
    return (ranks, int(like[1]) if like else None) if ranks else None


def states_itself(texts: Iterable[str]) -> tuple[int, int] | None:
    """Return (rank, world size) where a process says of itself `rank 3 of 8` or `rank=3 world_size=8`, and no line another one."""
    found = {(int(rank), int(size)) for text in texts for rank, size in words("rank_of_world").findall(text)}
    return found.pop() if len(found) == 1 else None


def by_itself(line: Line, column: re.Pattern[str] | None = None, *, tails: bool = False) -> Line:
    """Return a program's own line without the rank that it begins with, as a line of that rank; others as they are.

    `column` is how the lines of its file begin with a rank, where that was found; `tails`: they end with one.
    """
    if line.rank is not None or line.source is not None:
        return line
    match = words("own_rank").match(line.text) or (column.match(line.text) if column is not None else None)
    if match is None and tails and (tail := tail_of(line.text)):
        return replace(line, text=line.text[: tail.start()], rank=int(tail[1]))
    if match is None:
        return line
    return replace(
        line,
        text=line.text[match.end() :],
        rank=int(next(filter(None, match.groups()))),
        origin=f"{line.origin}{match[0].strip()}",
    )


def tail_of(text: str) -> re.Match[str] | None:
    """Return the rank at the end of a line; group 1 is its number."""
    return words("rank_tail").search(text, max(0, len(text) - 24))


def have_tails(texts: Iterable[str]) -> bool:
    """Return whether lines of a log end with their ranks: 0 to N-1, each several times."""
    times = Counter(int(tail[1]) for text in texts if (tail := tail_of(text)))
    return len(times) > 1 < min(times.values()) and times.keys() == set(range(len(times)))


def column_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Return how the lines of a log of several ranks begin, where a word or sign with a number begins most of them; None: with no rank.

    The numbers are 0 to N-1, each several times where the word is none for ranks, and neither in the order of a counter nor in that of a loop.
    """
    columns: dict[tuple[str, str], list[int]] = {}
    texts = [text for text in texts if not text.startswith((" ", "Traceback "))]
    clocked = [words("begins_with_time").match(text) is not None for text in texts]
    clocks: dict[tuple[str, str], list[bool]] = {}
    for text, clock in zip(texts, clocked, strict=True):
        if match := words("column_of_ranks").match(text):
            columns.setdefault((match[1], match[3]), []).append(int(match[2]))
            clocks.setdefault((match[1], match[3]), []).append(clock)
    for (head, tail), numbers in columns.items():
        times, steps = Counter(numbers), [*pairwise(numbers)]
        back = sum(b < a for a, b in steps)
        cyclic = sum(b in (a + 1, 0) for a, b in steps)
        named = head.strip(" [(<:#=_.-").lower() in _OF_RANKS  # then once is enough
        often = sorted(times.values())[len(times) > 3 :]  # the rank that is looked for may have printed once
        of_ranks = head.strip(" [(<:#=_.-").lower() in ("r", "rank")  # then a part of them is enough
        counted = of_ranks or times.keys() == set(range(len(times)))
        complete = counted and len(times) > 1 and (named or often[0] > 1)
        of_all = tail.strip("/)]>") == str(len(times))  # `(3/8)`: a counter would come to 8
        in_no_order = back >= (1 if named else (len(times) + 1) // 2) and 4 * cyclic < 3 * len(steps)
        alone = clocked.count(True) if all(clocks[head, tail]) else len(texts)  # beside code and commands
        if complete and ((of_all and back) or (in_no_order and 2 * len(numbers) > alone)):
            before = expressions()["before_a_column"]
            return re.compile(rf"{before}{re.escape(head)}(\d{{1,5}}){re.escape(tail)} ?")
    return None


def ranks_titled(text: str, above_a_stack: bool = False) -> tuple[int, ...]:
    """Return the ranks (global, ascending) whose stack or lines follow a line like this; none where it is no title.

    `above_a_stack`: the caller takes it for one only where a stack follows, so that any words may be around the one rank it names.
    """
    if len(text) > _SENTENCE or "ank" not in text.lower() or words("rank_of_a_node").search(text):
        return ()
    text = words("time_at_end").sub("", text)  # `rank 0, 23:40` is one rank
    if words("ranks_of_pids").match(text):
        return ranks_in(text)
    if len(text) <= _TITLE_LIMIT and (several := words("and_others").match(text)):
        return _numbers(f"{several[1]}, {several[2]}")
    if len(text) <= _TITLE_LIMIT and (match := words("title_of_ranks").match(text)):
        return _numbers(match[1])
    if (file := words("title_of_file").match(text)) and says_rank(file[1].rsplit("/", 1)[-1]):
        rank, _ = rank_of_log(file[1])
        return () if rank is None else (rank,)
    if (
        above_a_stack
        and (bare := words("aside_in_title").sub("", text)) != text
        and (ranks := ranks_titled(bare, True))
    ):
        return ranks
    alone = len(words("mentions_rank").findall(text)) == 1
    if alone and (ruled := words("ruled_title").match(text)):
        return _numbers(ruled[1])
    same = words("likewise").search(text) if above_a_stack and not alone else None
    if same is not None and ranks_in(text[: same.start()]) and ranks_in(text[same.end() :]):
        return ranks_in(text)  # `rank 0 (pid 812), same in rank 2 and rank 3:`
    short = above_a_stack and len(text) <= _SHORT and words("title_ends_with_rank").search(text) is not None
    if not short and not text.rstrip("`* ").endswith((":", "：")):
        return ()
    loosely = (words("rank") if above_a_stack else words("ranks_in_brackets")).search(text) if alone else None
    match = words("ends_with_ranks").search(text) or loosely
    return () if match is None or words("but").search(text[: match.start()]) else _numbers(match[1])


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `3`, `1-3`, `1..3` or `0, 2 and 3`."""
    ranks: set[int] = set()
    for part in re.split(r", ?| ?& ?| and | und | et ", text):
        first, *rest = (int(number) for number in words("sign_of_range").split(part))
        last = rest[-1] if rest else first
        if last - first >= _MOST_RANKS:
            return ()
        ranks |= set(range(first, last + 1))
    return tuple(sorted(ranks))


@dataclass(frozen=True, slots=True)
class Named:
    """What one line names: ranks (global, as far as it shows), local ranks, process ids, PCI buses, and the host before it (pdsh's prefix).

    `titled`: it is above lines of theirs.
    """

    line: int
    ranks: tuple[int, ...]
    locals: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    titled: bool = False
    buses: tuple[int, ...] = ()
    host: str = ""


def ranks_in(text: str) -> tuple[int, ...]:
    """Return the ranks that a line names."""
    return tuple(sorted({int(n) for n in words("rank").findall(text)}))


def named_processes(lines: Iterable[tuple[int, str]]) -> tuple[Named, ...]:
    """Return what each line names that names anything; of many lines the first ones."""
    found: list[Named] = []
    for number, text in lines:
        lowered = text.lower()
        if "rank" not in lowered and "pid" not in lowered and "process " not in lowered:
            continue
        own = sorted({int(a or b) for a, b in words("local_rank").findall(text)})
        ranks = ranks_in(text) if "] Child process" not in text else ()
        if not ranks and (of_world := words("rank_of_world").search(text)) is not None:
            ranks = (int(of_world[1]),)
        pids = sorted({int(a or b) for a, b in words("pid").findall(text)})
        titled = ranks_titled(text)
        if len(pairs := words("rank_and_pid").findall(text)) > 1:
            found += [Named(number, (int(rank),), pids=(int(pid),)) for rank, pid in pairs]
        elif own or ranks or pids or titled:
            buses = tuple(int(bus, 16) for bus in words("bus").findall(text))
            host = words("host_by_pdsh").match(text)
            named = Named(number, titled or ranks, tuple(own), tuple(pids), bool(titled), buses)
            found.append(replace(named, host=host[1]) if host is not None else named)
    return tuple(found[:_MOST_LINES])


def ranks_of_hosts(texts: Iterable[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the global ranks of each host in the order of their local ranks, as DeepSpeed's launcher prints them or mpirun's hosts and slots say."""
    texts = [*texts]
    mapped = (
        match[1]
        for text in texts
        if "global_rank_mapping=" in text and (match := words("rank_mapping").search(text))
    )
    stated = tuple(
        (host, tuple(map(int, ranks.split(","))))
        for host, ranks in words("ranks_of_host").findall(next(mapped, ""))
    )
    if stated or not (
        slots := next((m[1] for text in texts if (m := words("hosts_and_slots").search(text))), "")
    ):
        return stated
    found, first = [], 0
    for host, number in (part.split(":") for part in slots.split(",")):
        found.append((host, tuple(range(first, first + int(number)))))
        first += int(number)
    return tuple(found) if first <= _MOST_RANKS else ()
