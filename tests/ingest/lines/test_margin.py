"""Texts that were quoted or indented as a whole are what they are without that."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.lines.pasted import LIMIT, without_margin
from hangscope.ingest.workers.reader import read_file

SPY = """Process 81: python fit.py
Python v3.12.1 (/usr/bin/python3.12)

Thread 81 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    step (fit.py:20)
"""
RAS = """Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

#0-0 (17aa00bc5d6e7f01) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 41
  Rank 2 has launched up to operation 40 -- GPU 2 managed by process 4242 on node 10.0.0.7
"""


def shifted(text: str, margin: str) -> str:
    return "\n".join((margin + line).rstrip() for line in text.splitlines()) + "\n"


def stripped(text: str) -> str:
    data = text.encode()
    return without_margin(io.BytesIO(data), data[:8192]).read().decode()


@pytest.mark.parametrize("margin", ["> ", ">", "> > ", "    ", "\t", "| ", "# ", "│ ", "* ", ">     "])
@pytest.mark.parametrize(("text", "kind"), [(SPY, "stacks"), (RAS, "ras")])
def test_a_margin_of_all_lines_hides_nothing(tmp_path: Path, margin: str, text: str, kind: str) -> None:
    (tmp_path / "plain.txt").write_text(text)
    (tmp_path / "shifted.txt").write_text(shifted(text, margin))
    plain, other = (read_file(str(tmp_path / name), "x") for name in ("plain.txt", "shifted.txt"))
    assert plain["kind"] == other["kind"] == kind
    assert (plain["stacks"], plain["events"]) == (other["stacks"], other["events"])
    assert plain["stacks"] or plain["events"]


@pytest.mark.parametrize("text", [SPY, RAS])
def test_words_around_a_quotation_stay(text: str) -> None:
    quoted = "On Monday Kim wrote:\n" + shifted(text, "> ") + "No idea.\n"
    assert stripped(quoted) == "On Monday Kim wrote:\n" + text + "No idea.\n"
    barred = shifted(text, "| ") + "No idea.\n"
    assert stripped(barred) == text + "No idea.\n"


@pytest.mark.parametrize(
    "text",
    [
        SPY,
        RAS,
        "| rank | op |\n| ---- | -- |\n| 0 | send |\n",
        "#0  0x00007f2c in poll () from /lib/libc.so.6\n#1  0x00007f2d in main ()\n",
        "step 1\n> step 2\nstep 3\n",
        "> a single line\n",
    ],
)
def test_what_belongs_to_a_text_is_no_margin(text: str) -> None:
    assert stripped(text) == text


def test_a_long_text_is_left_as_it_is() -> None:
    text = shifted(SPY, "> ") * (LIMIT // 100)
    assert stripped(text) == text
