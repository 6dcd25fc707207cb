from __future__ import annotations

import time

import pytest

from hangscope.ingest.nccl.line import LITERALS, banner_version, parse_line
from tests.nccl_writer import NcclWriter, Proc

PROC = Proc("node7", 4242, 3)


def test_info_and_warn_of_each_era() -> None:
    [info] = parse_line("node7:4242:4321 [3] NCCL INFO hello")
    assert (info.level, info.host, info.pid, info.dev, info.message) == ("INFO", "node7", 4242, 3, "hello")
    [warn] = parse_line("node7:4242:4321 [3] misc/socket.cc:57 NCCL WARN gone")
    assert (warn.level, warn.host, warn.message) == ("WARN", "node7", "gone")
    [late] = parse_line("node7:4242:4321 [3] misc/socket.cc:57 (socketProgress) NCCL WARN gone")
    assert (late.host, late.message) == ("node7", "gone")
    [stamped] = parse_line("[2026-03-04 10:00:01.125] node7:4242:4321 [3] NCCL INFO hello")
    assert (stamped.host, stamped.before) == ("node7", "")
    [call] = parse_line("node7:4242:4321 NCCL CALL ncclGroupStart()")
    assert (call.level, call.dev) == ("CALL", None)
    [trace] = parse_line("node7:4242:4321 [3] 17.250000 ncclFn:12 NCCL TRACE step")
    assert (trace.level, trace.host, trace.message) == ("TRACE", "node7", "step")


@pytest.mark.parametrize(
    ("text", "host", "pid"),
    [
        (":5202:5683 [0] NCCL INFO x", "", 5202),  # no host
        ("64:218:639 [0] NCCL INFO x", "64", 218),  # a number
        ("out.3.txt:node7:12:13 [0] NCCL INFO x", "node7", 12),  # grep -H
        ("node-7_a.b:1:1 [-1] NCCL INFO x", "node-7_a.b", 1),
        ("node7:XXXX [5] NCCL INFO x", "node7", None),  # anonymised
        ("[5] NCCL INFO x", "", None),  # head cut off
        ("NCCL INFO x", "", None),
        ("  NCCL INFO x", "", None),
    ],
)
def test_odd_heads(text: str, host: str, pid: int | None) -> None:
    [line] = parse_line(text)
    assert (line.host, line.pid, line.message, line.truncated) == (host, pid, "x", False)


def test_a_torn_line_gives_both_parts_marked() -> None:
    first, second = parse_line("node7:1:2 [0] NCCL INFO AllRedunode8:3:4 [1] NCCL INFO AllGather: rest")
    assert (first.host, first.truncated, first.inner) == ("node7", True, False)
    assert (second.pid, second.message, second.truncated, second.inner) == (3, "AllGather: rest", True, True)
    assert second.host.endswith("node8")  # nothing marks where the cut text ends and the host begins
    first, second = parse_line(
        "node7:1:2 [0] NCCL INFO count 12 [2026-03-04 10:00:01] node8:3:4 [1] NCCL INFO x"
    )
    assert (first.message, second.host) == ("count 12", "node8")
    [quoted] = parse_line("node7:1:2 [0] NCCL INFO the words NCCL INFO in a message")
    assert not quoted.truncated


@pytest.mark.parametrize(
    "text", ["", "NCCL", "node7:1:2 [0] INFO old style of 2.2", "NCCL INFORMATION", "x" * 70_000]
)
def test_other_lines_give_nothing(text: str) -> None:
    assert parse_line(text) == []


@pytest.mark.parametrize("version", [(2, 4, 8), (2, 12, 12), (2, 21, 5), (2, 26, 2), (2, 30, 7)])
def test_the_writers_lines_parse(version: tuple[int, int, int]) -> None:
    writer = NcclWriter(version, stamps=True)
    for text, level in [
        (writer.info(PROC, "m"), "INFO"),
        (writer.warn(PROC, "net.cc:1", "m").lstrip("\n"), "WARN"),
        (writer.call(PROC, "m"), "CALL"),
    ]:
        [line] = parse_line(text)
        assert (line.level, line.host, line.pid, line.message, line.before) == (level, "node7", 4242, "m", "")
    assert banner_version(writer.banner()) == ".".join(map(str, version))
    assert any(literal in writer.banner().encode() for literal in LITERALS)


def test_versions() -> None:
    assert banner_version("RCCL version : 2.22.3-HEAD:271856d") == "rccl 2.22.3"
    assert banner_version("RCCL version 2.18.6+hip6.0 HEAD:abc") == "rccl 2.18.6"
    assert banner_version("torch version 2.13.0") is None


def test_hostile_lines_take_linear_time() -> None:
    begin = time.process_time()
    for text in (
        "a" * 65_000 + " NCCL INFO x",
        "a:1:" * 16_000 + " NCCL INFO x",
        "NCCL INFO " * 6_500,
        "1:1:1 NCCL INFO " * 4_000,
    ):
        parse_line(text)
    assert time.process_time() - begin < 2


def test_a_line_torn_without_end_is_taken_apart_in_part() -> None:
    found = parse_line("a:1:1 [0] NCCL INFO x " * 100)
    assert 1 < len(found) <= 8 and all(line.truncated for line in found)
    begin = time.process_time()
    for _ in range(3):
        parse_line("NCCL INFO " * 6_500)
    assert time.process_time() - begin < 1
