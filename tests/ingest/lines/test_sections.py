"""Logs of several ranks under titles in one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.lines.sections import Sections
from tests.text_lines import raised, short, timeout, told

ERROR = [line.partition("]: ")[2] for line in raised(2, "ValueError: malformed record at offset 8812")]
WAITS = timeout(9, local=9).partition(":")[2]  # without the rank that torch puts in front


def _text(title: str) -> str:
    """Return what four ranks left, of which rank 2 raised an error, one below the other."""
    parts = []
    for rank in range(4):
        body = ERROR if rank == 2 else [WAITS.replace("Rank 9", f"Rank {rank}")]
        parts += [title.format(rank), *body, ""]
    return "\n".join(parts)


@pytest.mark.parametrize(
    "title",
    [
        "==> logs/rank_{0}.log <==",
        "==> attempt_0/{0}/stderr.log <==",
        "===== rank {0} =====",
        "--- rank_{0}.log ---",
        "### Rank {0} (node a)",
        "last lines of rank {0}:",
        "$ cat out/rank{0}.err",
    ],
)
def test_lines_under_a_title_are_of_its_rank(tmp_path: Path, title: str) -> None:
    assert short(told(tmp_path, {"paste.txt": _text(title)})) == ("crashed_rank", (2,), "high")


@pytest.mark.parametrize(
    "text",
    [
        b"=== rank 0 ===\n=== rank 1 ===\nlost\n",  # what ranks print of themselves, nothing below the first
        b"=== rank 0 ===\nlost\n=== rank 0 ===\nlost\n",  # a banner of each epoch
        b"=== rank 0 ===\n[rank1]: lost\n=== rank 1 ===\nlost\n",
        b"rank 0\nlost\nrank 1\nlost\n",  # no title
        b"=== rank 0 ===\nlost\n",
        b"=== ranks 0-3 ===\nlost\n=== rank 4 ===\nlost\n",
    ],
)
def test_what_only_looks_like_titles_changes_nothing(text: bytes) -> None:
    assert Sections().block(text) == text


def test_a_launchers_lines_and_those_of_a_file_of_no_rank_stay_as_they_are() -> None:
    text = b"==> rank1.log <==\nlost\n[rank7]: told\nE1120 torch/distributed/elastic/api.py] failed\nlost\n==> a.log <==\nlost\n"
    assert Sections().block(text) == text.replace(b"<==\nlost\n[", b"<==\n[rank1]: lost\n[")


def test_a_section_goes_on_in_the_next_block() -> None:
    sections = Sections()
    assert sections.block(b"==> rank1.log <==\nlost\n") == b"==> rank1.log <==\n[rank1]: lost\n"
    assert sections.block(b"more\n") == b"[rank1]: more\n"


def test_a_traceback_s_first_line_is_no_title() -> None:
    lines = [
        line
        for rank in (0, 2)
        for line in (f"[rank{rank}]: Traceback (most recent call last):", f"[rank{rank}]: KeyError: 1")
    ]
    data = "\n".join([*lines, "terminate called after throwing an instance of 'x'"]).encode()
    assert Sections().block(data) == data
