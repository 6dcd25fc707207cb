"""Ranks by numbers that count them, where no word says `rank`: names that are alike but for one number, 0 to N-1, each of another process.

    stacks/py-spy.0.txt  stacks/py-spy.1.txt         files of stacks
    site0/fed.log        site1/fed.log               files in numbered folders, whose own names have no number
    logs/stage_0.jsonl  logs/stage_1.jsonl           logs, each with the lines of one process
    == worker 0 (pid 812)    == worker 1 (pid 813)   the line above the stacks of each process

Nodes, restarts and parts of one log are numbered as well, and are no ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex

_NUMBER = regex(r"\d{1,7}")
_NO_IDS: Mapping[str, int | None] = {}
#: the name of a file above a copy of it, as head and tail print it
FILE_TITLE = regex(r"^(?:==+>?|#{1,6}|-{2,6}) ?([\w./-]{1,200}) ?(?:<?==+|#{0,6}|-{0,6})$")
_COUNTED = regex(r"([A-Za-z]{0,20})[ _.#:-]{0,2}(\d{1,7})(?!\d)")  # in a title, with the word before it
_NODE = regex(r"(?i)(?<![a-z])(?:node|host|pod)[ _.#:-]{0,2}$")
_POD = regex(r"(?<![\w-])([a-z0-9][a-z0-9-]{0,60})-(master|worker)-(\d{1,5})(?![\w-])")
_LOGS = regex(r"\bkubectl (?:\S{1,80} ){0,6}?logs ")
_WORLD = regex(r"\bWORLD_SIZE['\"]?(?::|=) {0,12}['\"]?(\d{1,5})\b")


def of_files(
    files: Mapping[str, int | None],
    processes: Mapping[str, int | None] = _NO_IDS,
    single: Collection[str] = (),
) -> dict[str, int]:
    """Return the rank of each of these files where their names differ in one number alone that counts ranks: `py-spy.2.txt`.

    Numbers from 0 on count ranks, and so do those of which two at least are the ranks (values; None: not known) that process ids or
    lines state. Process ids do not count from 0, and the number of a single file need not count; a number that occurs twice counts
    within its node, unless both are of the same of the `processes` (ids; None: not known) at another time. The number of a node counts
    where its file is one of `single`, which hold the stack of one process each.
    """
    series: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file in files:
        if (found := number_in(file, file in single)) is not None:
            name = file.replace("\\", "/").rsplit("/", 1)[-1]
            inside = "" if found.string == name else name
            series[(found.string[: found.start()], found.string[found.end() :] + inside)].append(
                (int(found[0]), file)
            )
    counted: dict[str, int] = {}
    for of_names in series.values():
        numbers = sorted(number for number, _ in {(n, processes.get(file) or file) for n, file in of_names})
        known = [files[file] == number for number, file in of_names if files[file] is not None]
        from_0 = len(numbers) > 1 and numbers == [*range(len(numbers))] and all(known)
        if from_0 or (len(known) > 1 and all(known) and len(set(numbers)) == len(numbers)):
            counted |= {file: number for number, file in of_names}
    return counted


def number_in(file: str, single: bool = False) -> re.Match[str] | None:
    """Return the only number in a file's name, or in its folder's where its own has none; None where it numbers something else than processes."""
    parts = file.replace("\\", "/").split("/")[-2:]
    name = next((part for part in reversed(parts) if _NUMBER.search(part)), "")
    found = list(_NUMBER.finditer(name))
    if len(found) != 1:
        return None
    before = name[: found[0].start()]
    return found[0] if (single and _NODE.search(before)) or not words("no_processes").search(before) else None


def of_file_titles(texts: Iterable[str]) -> dict[str, int]:
    """Return the rank of each line that is the name of a file, such as `==> err.0 <==`, where their names count ranks."""
    files = {text: title[1] for text in texts if (title := FILE_TITLE.match(text)) is not None}
    counted = of_files(dict.fromkeys(files.values()))
    return {text: counted[file] for text, file in files.items() if file in counted}


def of_pods(texts: Sequence[str]) -> dict[str, int]:
    """Return the rank of each command that shows the log of a pod of a PyTorchJob: the master is rank 0, and worker N is rank N + 1.

    So Kubeflow's training operator numbers them (pkg/controller.v1/pytorch/envvar.go), each as one process where WORLD_SIZE says so.
    """
    pods = {pod.groups() for text in texts for pod in _POD.finditer(text)}
    sizes = {int(size) for text in texts for size in _WORLD.findall(text)}
    one_job = len({job for job, _, _ in pods}) == 1 and ("master", "0") in {pod[1:] for pod in pods}
    if sizes != {len(pods)} or not one_job:
        return {}
    shown = {t: _POD.search(t, logs.end()) for t in texts if (logs := _LOGS.search(t)) is not None}
    return {text: int(pod[3]) + (pod[2] == "worker") for text, pod in shown.items() if pod is not None}


def of_titles(titles: Mapping[int, str]) -> dict[int, int]:
    """Return the rank of each process (by its id) where the lines above their stacks have a word in common whose numbers count from 0."""
    found = {pid: dict(_COUNTED.findall(text)) for pid, text in titles.items()}
    for word in next(iter(found.values()), {}) if len(found) > 1 else ():
        numbers = {pid: int(words[word]) for pid, words in found.items() if word in words}
        if sorted(numbers.values()) == [*range(len(found))] and not words("no_processes").search(word):
            return numbers
    return {}
