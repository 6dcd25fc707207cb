"""What takes several lines: whose line belongs to which block, and when a block is over."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.ingest.lines.blocks import BlockParser, Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.model.events import Event
from hangscope.model.regex import regex


class Parcel(Event, kind="parcel_of_a_test"):
    size: int
    items: tuple[str, ...] = ()


def _parcel(found: Found) -> Iterator[Event]:
    yield found.first.event(
        Parcel, items=tuple(item for (item,) in found.all("item")), **found.caught(Parcel)
    )


def read(text: str, gap: int | None = None, lines: int = 9) -> list[tuple[int | None, int, tuple[str, ...]]]:
    parcel = block(
        says(r"begin parcel of (?P<size>\d+)"),
        regex(r"item (?P<item>\w+)"),
        ends=regex("end parcel"),
        lines=lines,
        gap=gap,
        made=_parcel,
    )
    parser = BlockParser(parcel)
    found = [
        e for n, raw in enumerate(text.splitlines(), 1) for e in parser.feed(strip_prefix(raw, n, "log"))
    ]
    return [(e.rank, e.size, e.items) for e in (*found, *parser.close()) if isinstance(e, Parcel)]


def test_a_block_ends_at_its_last_line() -> None:
    assert read("begin parcel of 2\nitem a\nwords\nitem b\nend parcel\nitem c") == [(None, 2, ("a", "b"))]


def test_a_text_may_end_within_a_block() -> None:
    assert read("begin parcel of 2\nitem a") == [(None, 2, ("a",))]


def test_a_line_that_begins_one_ends_the_one_before() -> None:
    assert read("begin parcel of 1\nbegin parcel of 2\nitem b") == [(None, 1, ()), (None, 2, ("b",))]


def test_one_line_may_say_it_all() -> None:
    assert read("begin parcel of 1, end parcel\nitem a") == [(None, 1, ())]


def test_lines_that_state_nothing_end_it_by_number() -> None:
    assert read("begin parcel of 1\nitem a\nx\nitem b", gap=0) == [(None, 1, ("a",))]
    assert read("begin parcel of 1\nx\nx\nitem b", lines=2) == [(None, 1, ())]


def test_ranks_are_told_apart_and_lines_of_nobody_are_of_the_last() -> None:
    text = "[rank1]: begin parcel of 1\n[rank2]: begin parcel of 2\nitem b\n[rank1]: item a\n[rank3]: item x"
    assert read(text, gap=0) == [(1, 1, ("a",)), (2, 2, ("b",))]


def test_launchers_tell_writers_apart() -> None:
    text = "[default0]:begin parcel of 1\n[default1]:item x\n[default0]:item a"
    assert read(text) == [(None, 1, ("a",))]
