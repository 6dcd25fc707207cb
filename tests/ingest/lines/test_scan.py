from __future__ import annotations

import io
from collections.abc import Iterable

import pytest

from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines import scan as scan_module
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.scan import BLOCK, EVENTS_PER_WRITER, LINE_LIMIT, scan
from hangscope.ingest.nccl.comm import NcclInit
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.incident import Event

MARK = b"needle in the log"


class Marks:
    """Reports lines with the mark and, where asked, the two lines behind each."""

    literals = (MARK,)

    def __init__(self, more: int = 0) -> None:
        self.more = more
        self.left = 0

    @property
    def wants_more(self) -> bool:
        return self.left > 0

    def feed(self, line: Line) -> Iterable[Event]:
        marked = MARK.decode() in line.text
        self.left = self.more if marked else self.left - 1
        return [line.event(Progress, step=len(line.text)) if marked else line.event(NoProgress)]

    def close(self) -> Iterable[Event]:
        return ()


class Broken(Marks):
    def feed(self, line: Line) -> Iterable[Event]:
        raise KeyError("bug")


def lines_of(data: bytes, parser: Marks | None = None) -> list[int]:
    return [event.line for event in scan(io.BytesIO(data), "a.log", [parser or Marks()]).events]


def test_lines_are_counted_by_line_feeds_across_blocks() -> None:
    filler = b"x" * 99 + b"\n"
    data = filler * 30_000 + MARK + b"\n" + filler * 10 + b"[rank1]: " + MARK + b"\n"
    found = scan(io.BytesIO(data), "a.log", [Marks()])
    assert [(e.line, e.rank) for e in found.events] == [(30_001, None), (30_012, 1)]
    assert (found.lines, found.size, found.notes) == (30_013, len(data), [])


@pytest.mark.parametrize("shift", range(4))
def test_a_mark_at_the_edge_of_a_block_is_found(shift: int) -> None:
    data = b"y" * (BLOCK - len(MARK) + shift) + b"\n" + MARK + b"\n" + b"z\n"
    assert lines_of(data) == [2]


def test_carriage_returns_end_lines_but_do_not_count() -> None:
    data = b"\r".join([b" 10%|#  |", b" 20%|## |", MARK, b" 30%|###|"]) + b"\r\nnext\n" + MARK + b"\r\n"
    events = scan(io.BytesIO(data), "a.log", [Marks()]).events
    assert [(e.line, e.text) for e in events] == [(1, MARK.decode()), (3, MARK.decode())]


def test_lines_that_were_asked_for_follow() -> None:
    data = b"before\n" + MARK + b"\none\n\ntwo\nthree\n"
    events = scan(io.BytesIO(data), "a.log", [Marks(more=2)]).events
    assert [(e.kind, e.line, e.text) for e in events] == [
        ("progress", 2, MARK.decode()),
        ("no_progress", 3, "one"),
        ("no_progress", 5, "two"),
    ]


def test_a_line_without_end_is_cut() -> None:
    data = b"a" * 40_000_000 + MARK + b"b" * 30_000_000
    (event,) = scan(io.BytesIO(data), "a.log", [Marks()]).events
    assert event.line == 1
    assert event.step <= LINE_LIMIT + 4096


def test_bytes_that_are_no_text_survive() -> None:
    data = b"\x00\xff\xfe\n\x1b[31m" + MARK + b"\xc3\x28\x00\x07\n"
    (event,) = scan(io.BytesIO(data), "a.log", [Marks()]).events
    assert (event.line, event.text) == (2, MARK.decode() + "\ufffd(")


def test_a_failing_parser_costs_its_lines_and_leaves_one_note() -> None:
    found = scan(io.BytesIO((MARK + b"\n") * 5), "a.log", [Broken(), Marks()])
    assert len(found.events) == 5
    assert [(note.code, note.line) for note in found.notes] == [("parser_failed", 1)]


def test_a_stream_that_breaks_off_keeps_what_was_read() -> None:
    class Torn(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            if not data:
                raise EOFError("Compressed file ended")
            return data

    found = scan(Torn(b"x\n" + MARK), "a.log.gz", [Marks()])
    assert [event.line for event in found.events] == [2]
    assert [note.code for note in found.notes] == ["truncated"]


def test_a_flood_of_one_kind_is_capped_with_a_note() -> None:
    found = scan(io.BytesIO((MARK + b"\n") * 3000), "a.log", [Marks()])
    assert len(found.events) == 2 * EVENTS_PER_WRITER
    assert (found.events[0].line, found.events[-1].line) == (1, 3000)
    assert [(note.code, note.message) for note in found.notes] == [
        ("events_capped", "2600 more progress lines were not kept")
    ]


def test_nothing_in_nothing_out() -> None:
    found = scan(io.BytesIO(b""), "a.log", [Marks()])
    assert (found.events, found.notes, found.lines) == ([], [], 0)


def test_the_start_of_a_large_job_leaves_room_for_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "EVENTS_IN_ALL", 50)
    store = scan_module.EventStore()
    line = Line("a.log", 1, "x", "x")
    store.extend(line.event(NcclInit, n, step="Init START") for n in range(80))
    store.extend([line.event(RankException, type="E", message="m")])
    assert [e.kind for e in store.events()].count("exception") == 1
    assert len(store.events()) == 51


@pytest.mark.parametrize(
    ("end", "cut"), [("2026-03-02 ", True), ("2026-03-02 11:00:02 step 2\n", False), ("bye", False)]
)
def test_a_log_that_ends_in_the_head_of_a_line_is_truncated(end: str, cut: bool) -> None:
    found = scan(io.BytesIO(f"2026-03-01 10:00:01 step 1\n{end}".encode()), "job.log", [])
    assert [note.code for note in found.notes] == ["truncated"] * cut
