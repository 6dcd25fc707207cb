"""Which local ranks a pasted list of processes lacks, where the command of the launcher states how many there are.

ml  50048      1  0.0  S   python -m torch.distributed.launch --nproc_per_node 4 train.py       (ps -ef, ps aux, top -c)
ml  50051  50048 99.1  Rl  python -u train.py --local_rank=1
ml  50731  50051  0.6  Sl  python -u train.py --local_rank=1                                    a worker of its loader
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.regex import regex

_MOST = 64  # local ranks
_STARTS = regex(r"^\s{0,8}[\w.+-]{1,40} {1,12}(\d{2,9}) .{0,160}--nproc[_-]per[_-]node[= ](\d{1,4})\b")
_PROCESS = regex(
    r"^\s{0,8}[\w.+-]{1,40} {1,12}\d{2,9} {1,12}(\d{1,9}) .{0,160}python.{0,200} --local[_-]rank[= ](\d{1,4})\b"
)


def local_ranks_gone(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the local ranks that a list of a launcher's processes lacks; none where it lists none, or no launcher."""
    launchers = {match[1]: int(match[2]) for text in texts if (match := _STARTS.match(text))}
    if len(launchers) != 1:
        return ()
    ((launcher, count),) = launchers.items()
    listed = {int(match[2]) for text in texts if (match := _PROCESS.match(text)) and match[1] == launcher}
    return tuple(sorted(set(range(count)) - listed)) if listed and count <= _MOST else ()
