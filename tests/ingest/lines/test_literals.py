from __future__ import annotations

from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from hangscope.ingest.lines.literals import LiteralFinder, finder_of
from hangscope.ingest.workers.reading import read_log

LITERALS = [(b"Watchdog caught", 1), (b"aaaaaaa", 2), (b"ab", 4), (b"Traceback (most", 8)]


def expected(block: bytes) -> list[tuple[int, int]]:
    return sorted(
        (at, mask) for literal, mask in LITERALS for at in range(len(block)) if block.startswith(literal, at)
    )


@given(
    st.lists(
        st.one_of(st.sampled_from([literal for literal, _ in LITERALS]), st.binary(max_size=9)), max_size=12
    )
)
def test_finds_exactly_what_a_naive_search_finds(parts: list[bytes]) -> None:
    block = b"".join(parts)
    assert LiteralFinder(LITERALS).find(block + b"\n\n\n") == expected(block)


def test_every_alignment_is_found() -> None:
    finder = LiteralFinder([(b"1234567", 1)])
    for offset in range(9):
        assert finder.find(b"." * offset + b"1234567\n\n\n") == [(offset, 1)]


def test_no_literals_find_nothing() -> None:
    assert LiteralFinder([]).find(b"anything at all\n\n\n") == []


def test_small_logs_cost_what_they_hold_and_no_new_finder() -> None:
    """Of 100,000 small files most of the time was the making of finders."""
    read_log(BytesIO(b"line 1\n"), "a.log")
    made = finder_of.cache_info().misses
    for number in range(5):
        read_log(BytesIO(b"line %d\n" % number), f"{number}.log")
    assert finder_of.cache_info().misses == made
