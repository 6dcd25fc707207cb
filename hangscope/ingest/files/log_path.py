"""What a log's path says of who wrote it: `log_dir/none_x1/attempt_0/2/stderr.log`, `rank0.err`, `stderr-12.txt`."""

from __future__ import annotations

import re

_ATTEMPT = re.compile(r"(?:^|/)attempt_(\d{1,4})/(?:(\d{1,6})/)?")
_LOCAL = re.compile(r"local[_-]?rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z])rank[_\-.=]?(\d{1,7})(?!\d)", re.IGNORECASE)
# not `train.log.1`, which is an older part of the same log
_NUMBERED = re.compile(
    r"(?:^|[._-])(?:task|proc|process|worker|stderr|stdout|err|out|log(?!\.))[_.-](\d{1,7})(?=\.|$)",
    re.IGNORECASE,
)


def rank_from_path(path: str) -> tuple[int | None, int | None, int | None]:
    """Return (global rank, local rank, attempt) as far as the path tells.

    The folders of torchrun's `--log-dir` are numbered by *local* rank, so they give no global one. The file's
    own name is asked before its folder's.
    """
    path = path.replace("\\", "/")
    attempt = _ATTEMPT.search(path)
    if attempt:
        return None, int(attempt.group(2)) if attempt.group(2) else None, int(attempt.group(1))
    parts = path.split("/")
    for part in (parts[-1], *reversed(parts[-3:-1])):
        if local := _LOCAL.search(part):
            return None, int(local.group(1)), None
        if rank := _RANK.search(part):
            return int(rank.group(1)), None, None
        if part is parts[-1] and (numbered := _NUMBERED.search(part)):
            return int(numbered.group(1)), None, None
    return None, None, None


def bare_number(path: str) -> int | None:
    """Return the number in a log's name that is taken for a rank though no word says so (`err.12`), or None.

    Schedulers put a job's number into the same place.
    """
    path = path.replace("\\", "/")
    name = path.rsplit("/", 1)[-1]
    if _ATTEMPT.search(path) or _LOCAL.search(name) or _RANK.search(name):
        return None
    numbered = _NUMBERED.search(name)
    return int(numbered.group(1)) if numbered else None
