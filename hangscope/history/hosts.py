"""Which hosts and GPUs were at fault more often than their use explains.

Each incident counts as one use of each of its hosts. Some uses had the culprit of a hardware or network cause. If all hosts were equally reliable, the number of these faults on one host would be hypergeometric. `by_chance` is the probability of at least as many; `of_any` is that of any host in the store having so unlikely a record, which is
what to look at where the store holds many hosts. Repeated runs of one job on one bad node are not independent draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import comb, expm1, log1p
from typing import Any

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import spans


@dataclass(frozen=True, slots=True)
class Record:
    """A host, or a GPU of it: in how many incidents it was used and at fault, and how likely that is by chance."""

    host: str
    gpu: int | None
    used: int
    faults: int
    by_chance: float
    of_any: float


def ranked(counts: Sequence[Sequence[Any]], *, gpus: bool = False) -> list[Record]:
    """Return the hosts (or GPUs) that were at fault, those first that are least likely to be a coincidence. `Store.use_counts` has the counts."""
    used, faults = Counter[tuple[str, int | None]](), Counter[tuple[str, int | None]]()
    for host, all_gpus, fault, fault_gpus, number in counts:
        for found, units in ((used, all_gpus), (faults, fault_gpus))[: 2 if fault else 1]:
            for unit in _numbers(units) if gpus else (None,):
                found[host, unit] += number
    uses, wrong = sum(used.values()), sum(faults.values())
    records = []
    for (host, unit), times in faults.items():
        chance = tail(times, used[host, unit], wrong, uses)
        of_any = 1.0 if chance >= 1.0 else -expm1(len(used) * log1p(-chance))  # 1 - (1 - chance) ** units
        records.append(Record(host, unit, used[host, unit], times, chance, of_any))
    return sorted(records, key=lambda r: (r.by_chance, -r.faults, r.host, -1 if r.gpu is None else r.gpu))


def tail(times: int, drawn: int, marked: int, total: int) -> float:
    """Return the probability that of `drawn` out of `total`, `marked` of which are marked, `times` or more are marked."""
    most = min(drawn, marked)
    likely = (comb(marked, k) * comb(total - marked, drawn - k) for k in range(max(0, times), most + 1))
    return sum(likely) / comb(total, drawn)


@lru_cache(maxsize=4096)
def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of `0-3,6` as `rankset.compress` writes them."""
    return tuple(number for span in spans(text) for number in span) if text else ()
