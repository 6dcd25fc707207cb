"""Files that a job writes again and again, each about all ranks: only the last one of a series shows where the ranks are now.

    stacks_20261122_084650.txt  stacks_20261122_084658.txt  pyspy_dump_20261122_084658.txt

(torch.distributed.debug.) A rank that no longer answers is in an older page as it was then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.errors import Note
from hangscope.ingest.workers.reading import Reading
from hangscope.model.regex import regex

_PAGE = regex(
    r"^(.*?)((?:stacks|pyspy_dump|fr_trace|torchcomms_fr_trace|c10d_health_check|torchcomms_health_check))_(\d{8}_\d{6})\.txt$"
)


def last_pages(readings: Sequence[Reading], notes: list[Note]) -> list[Reading]:
    """Return the readings, those of older pages set aside without their content.

    Of stacks the last page in which any rank answered counts: after it the job was being terminated.
    """
    series: dict[tuple[str, str], list[tuple[str, Reading]]] = defaultdict(list)
    for reading in readings:
        if match := _PAGE.match(reading.file):
            series[(match[1], match[2])].append((match[3], reading))
    older: set[str] = set()
    for (_, name), pages in sorted(series.items()):
        pages.sort(key=lambda page: page[0])
        answered = [page for page in pages if page[1].threads] if name in ("stacks", "pyspy_dump") else []
        last = (answered or pages)[-1][1]
        older |= {page.file for _, page in pages if page is not last}
    if older:
        what = f"{len(older)} older pages of {len(series)} series were set aside; the last of each shows where the ranks are"
        notes.append(Note("older_pages", what, min(older)))
    return [_without(reading) if reading.file in older else reading for reading in readings]


def _without(reading: Reading) -> Reading:
    return replace(
        reading, status="set aside", reason="an older page", threads=[], events=[],
        log=replace(reading.log, events=[]) if reading.log is not None else None,
    )  # fmt: skip
