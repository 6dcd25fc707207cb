"""Entries of dumps that somebody printed into a text: `pprint` of a pickle, or JSON, of one rank below the other.

    rank 0:
    [{'collective_seq_id': 501, 'profiling_name': 'nccl:all_reduce', 'state': 'completed', ...},
     {'collective_seq_id': 502, ...}]

Whose a list is says a line above it; else lists that are as many as a loop or as a group's members stand in the order of ranks. Python's
literals are rewritten as JSON, and nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hangscope.ingest.lines.titles import ranks_titled
from hangscope.ingest.recorder.flight_recorder import is_entry, reduce_dump
from hangscope.ingest.recorder.recording import Recording
from hangscope.regex import regex

BYTES_READ = 1 << 22
_SIGNS = (b"'profiling_name'", b'"profiling_name"')
_MOST_DICTS = 20_000
_MOST_BROKEN = 64  # dicts that are not whole, or none at all
_TOKEN = regex(
    r"'((?:[^'\\\n]|\\.){0,4000})'|\"(?:[^\"\\\n]|\\.){0,4000}\"|\b(None|True|False)\b|[()]|,(?=\s{0,80}[\])}])"
)
_WORDS = {"None": "null", "True": "true", "False": "false", "(": "[", ")": "]"}
_DICT = regex(r"\{(?=\s{0,200}\"\w{1,60}\":)")
_LOOP = regex(r"\bin range\[(\d{1,5})\]")
_TITLE_LINES = 4


def shown_recordings(data: bytes) -> list[Recording]:
    """Return a recording of each rank whose entries stand in a text, where it is told whose they are."""
    if not any(sign in data for sign in _SIGNS):
        return []
    text = _TOKEN.sub(_as_json, data.decode("utf-8", "replace"))
    config: dict[str, Any] = {}
    lists: list[tuple[tuple[int, ...], list[Any]]] = []
    loops = {int(number) for number in _LOOP.findall(text)}
    for gap, value in _dicts(text):
        if is_entry(value):
            title = _title(gap)
            if not lists or title or "[" in gap:
                lists.append((title, []))
            lists[-1][1].append(value)
        else:
            config |= {key: row for key, row in value.items() if isinstance(row, dict) and "ranks" in row}
    ranks = [title[0] for title, _ in lists if len(title) == 1]
    members = reduce_dump({"pg_config": config}).config.values()
    sizes = loops | {len(of) for _, of in members if of and list(of) == list(range(len(of)))}
    if not any(title for title, _ in lists) and len(lists) > 1 and len(lists) in sizes:
        ranks = list(range(len(lists)))
    if len(ranks) != len(lists) or len(set(ranks)) < len(ranks):
        return []
    dumps = (
        {"entries": entries, "pg_config": config, "rank": rank}
        for rank, (_, entries) in zip(ranks, lists, strict=True)
    )
    return [reduce_dump(dump) for dump in dumps]


def _as_json(match: re.Match[str]) -> str:
    """Return a token of a Python literal as JSON writes it; a comma before a bracket's end is left out."""
    if match[1] is not None:
        return json.dumps(match[1].replace("\\'", "'"))
    return "" if match[0] == "," else _WORDS.get(match[0], match[0])


def _dicts(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (what stands between it and the one before, dict) of each dict that is whole."""
    decoder, end, tried, broken = json.JSONDecoder(), 0, 0, 0
    found = _DICT.search(text)
    while found is not None and (tried := tried + 1) <= _MOST_DICTS and broken < _MOST_BROKEN:
        try:
            value, after = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            after, broken = found.start() + 1, broken + 1
        else:
            yield text[end : found.start()], value
            end = after
        found = _DICT.search(text, after)


def _title(gap: str) -> tuple[int, ...]:
    """Return the ranks that the last lines before a list name."""
    lines = [line.strip() for line in gap.splitlines() if line.strip("[]`, \t>")]
    return next((ranks for line in reversed(lines[-_TITLE_LINES:]) if (ranks := ranks_titled(line))), ())
