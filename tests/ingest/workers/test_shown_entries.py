"""Entries of dumps that somebody printed into a text."""

from __future__ import annotations

import json
import pprint
from pathlib import Path
from typing import Any

import pytest

from hangscope.ingest.workers.shown_entries import shown_recordings
from tests.text_lines import short, told


def _entries(last: tuple[int, str]) -> list[dict[str, Any]]:
    """Return a whole call and a pending one: of so many elements, from so named a function."""
    rows = [(30, 4096, "step", "completed"), (31, last[0], last[1], "scheduled")]
    return [
        {
            "frames": [{"name": name, "filename": f"/workspace/{name}.py", "line": 9}], "record_id": seq, "pg_id": 0,
            "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
            "profiling_name": "nccl:all_reduce", "time_created_ns": 1786021200000000000 + seq, "input_sizes": [[size]],
            "output_sizes": [[size]], "state": state, "time_discovered_started_ns": None, "retired": state == "completed",
            "timeout_ms": 600000, "is_p2p": False,
        }
        for seq, size, name, state in rows
    ]  # fmt: skip


ODD = [(4096, "step"), (1, "report"), (4096, "step")]
CONFIG = "pg_config of all three: {'0': {'name': '0', 'desc': 'default_pg', 'ranks': '[0, 1, 2]'}}"


def _shown(kind: str, titles: bool) -> str:
    lists = [_entries(last) for last in ODD]
    texts = [json.dumps(one, indent=1) if kind == "json" else pprint.pformat(one, width=100) for one in lists]
    return "\n".join(f"rank {rank}:\n```\n{text}\n```" if titles else text for rank, text in enumerate(texts))


@pytest.mark.parametrize("kind", ["python", "json"])
@pytest.mark.parametrize("titles", [True, False])
def test_printed_lists_are_dumps_of_the_ranks_that_titles_or_their_order_tell(
    tmp_path: Path, kind: str, titles: bool
) -> None:
    text = f"I can't see it, it's odd:\n{_shown(kind, titles)}\n{CONFIG}\n"
    assert [recording.rank for recording in shown_recordings(text.encode())] == [0, 1, 2]
    assert short(told(tmp_path, text.splitlines()))[1] == (1,)


def test_the_loop_that_printed_them_tells_how_many_there_are() -> None:
    text = f">>> for r in range(3): pprint(load(r))\n{_shown('python', False)}\n"
    assert [recording.rank for recording in shown_recordings(text.encode())] == [0, 1, 2]


@pytest.mark.parametrize("lost", ["{'0': {'name'", "range(2)"])
def test_lists_of_ranks_that_nothing_tells_are_left_out(lost: str) -> None:
    assert shown_recordings(f"{lost}\n{_shown('python', False)}\n".encode()) == []


def test_what_is_cut_or_hostile_costs_no_more_than_itself() -> None:
    shown = _shown("python", True)
    for cut in (len(shown) // 3, len(shown) - 40):
        assert len(shown_recordings(shown[:cut].encode())) >= 1
    assert shown_recordings(b"'profiling_name'" + b'{"a":[' * 100_000) == []
    assert shown_recordings(b"'profiling_name'" + b"'" * 1_000_000) == []
