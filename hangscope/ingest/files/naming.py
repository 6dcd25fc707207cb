"""What a file's path says of who wrote it: a rank, a launcher's local rank, a restart attempt.

A dump does not say which rank wrote it; torch appends the global rank to a prefix that users choose
(`TORCH_FR_DUMP_TEMP_FILE`), so the name is all there is: `nccl_trace_rank_3`, `_dump_3`, `rank3.json`,
`nccl_trace_rank_container-node07_40`, `node2/rank_17.pkl.gz`. A log may lie in torchrun's folders
(`none_x1/attempt_0/2/stderr.log`, numbered by *local* rank) or carry a number of its own (`rank0.err`, `stderr-12.txt`).
"""

from __future__ import annotations

import re

from hangscope.model.regex import regex

_SUFFIXES = regex(r"(?:\.[A-Za-z]{1,12}){1,8}$")  # `.pt`, `.json.gz`
_RANK = regex(r"(?<![a-z])rank[_\-.= ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL = regex(r"local[_-]?rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ATTEMPT = regex(r"(?:^|/)(?:attempt|restart)[_-]?(\d{1,9})(?:/(?:(\d{1,6})/)?|$)")
_TRAILING = regex(r"(?<!\d)(\d{1,7})$")  # eight digits are a date
_LEADING = regex(r"(\d{1,7})[._-][^\d/]*$")  # and no other number: `4.pipe_dump`
#: `stack_traces/3.log`, as Ray Train's first hang detector names them
_OF_A_RANK = regex(r"(?:^|/)(?:stack_traces|flight_recorder)/(\d{1,7})\.(?:log|txt|json)(?:\.gz|\.zst)?$")
# not `train.log.1`, which is an older part of the same log
_NUMBERED = regex(
    r"(?:^|[._-])(?:(?:task|proc|process|worker|stderr|stdout|err|out|log(?!\.))[_.-]|(?:task|proc|process|worker|stage|w|p|r))(\d{1,7})(?=\.|$)",
    re.IGNORECASE,
)
_STREAM = regex(r"(?:std)?(?:out|err|log|output)(?:\.(?:log|txt|out|err))?$", re.IGNORECASE)


def rank_of_dump(path: str) -> int | None:
    """Return the global rank that a dump's path names, or None.

    The word `rank` before a number wins, else the number that ends the stem, or the only one, which begins it; else the same in
    the folder's name.
    """
    parts = _plain(path).split("/")
    alone = _LEADING.match(parts[-1])
    for part in [_SUFFIXES.sub("", parts[-1]), *reversed(parts[:-1])]:
        named = _RANK.findall(part)
        if named:
            return int(named[-1])
        numbered = alone or (_TRAILING.search(part) if part is not parts[0] or len(parts) == 1 else None)
        if numbered:
            return int(numbered.group(1))
    return None


def rank_of_log(path: str) -> tuple[int | None, int | None]:
    """Return (global rank, local rank) as far as a log's path states them. The file's own name is asked before its folder's."""
    path = _plain(path)
    if alone := _OF_A_RANK.search(path):
        return int(alone.group(1)), None
    attempt, named = _ATTEMPT.search(path), _RANK.search(path.rsplit("/", 1)[-1])
    if attempt and not (named and attempt.group(2) is None and not _LOCAL.search(path)):
        return None, int(attempt.group(2)) if attempt.group(2) else None
    parts = path.split("/")
    for part in (parts[-1], *reversed(parts[-3:-1])):
        if local := _LOCAL.search(part):
            return None, int(local.group(1))
        if rank := _RANK.search(part):
            return int(rank.group(1)), None
        of_process = part is parts[-1] or (part is parts[-2] and _STREAM.match(parts[-1]))
        if of_process and (numbered := _NUMBERED.search(part)):
            return int(numbered.group(1)), None
    return None, None


def attempt_of(path: str) -> int | None:
    """Return the restart attempt that a path names (`attempt_1/`), or None."""
    named = _ATTEMPT.search(_plain(path))
    return int(named.group(1)) if named else None


def says_rank(path: str) -> bool:
    """Return whether a path has the word `rank` before a number, and not a bare number only."""
    return bool(_RANK.search(path))


def bare_number(path: str) -> int | None:
    """Return the number in a log's name that is taken for a rank though no word says so (`err.12`), or None.

    Schedulers put a job's number into the same place.
    """
    name = _plain(path).rsplit("/", 1)[-1]
    if _STREAM.match(name):
        name = "/".join(_plain(path).rsplit("/", 2)[-2:-1])
    if attempt_of(path) is not None or _LOCAL.search(name) or _RANK.search(name):
        return None
    numbered = _NUMBERED.search(name)
    return int(numbered.group(1)) if numbered else None


def _plain(path: str) -> str:
    return path.replace("\\", "/")
