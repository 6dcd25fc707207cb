"""Who left first, as the service threads of a node tell it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.workers.log_reading import read_log
from tests.conftest import analyze
from tests.text_lines import timeout


def layout(rank: int, *, local: int | None = None, nodes: int = 1, host: str = "gpu7") -> str:
    return f"{host}:{9000 + rank}:9100 [0] NCCL INFO comm 0x1a{rank} rank {rank} nRanks 8 nNodes {nodes} localRanks 4 localRank {rank if local is None else local} MNNVL 0\n"


def closed(by: int, gone: int, host: str = "gpu7") -> str:
    return f"{host}:{9000 + by}:9121 [0] NCCL INFO [Service thread] Connection closed by localRank {gone}\n"


def size(rank: int, ranks: int) -> str:
    return f"gpu7:{9000 + rank}:9100 [0] NCCL INFO comm 0x1a{rank} rank {rank} nranks {ranks} cudaDev 0 busId 1a000 - Abort COMPLETE\n"


def left(text: str) -> list[int | None]:
    return [e.rank for e in read_log(io.BytesIO(text.encode()), "job.log").events if e.kind == "left_first"]


WHOLE = "".join(layout(rank) for rank in range(4))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (WHOLE + closed(0, 2) + closed(1, 2) + closed(0, 3), [2]),
        (layout(5, local=1, nodes=2) + closed(5, 2) + closed(7, 2), [6]),
        (WHOLE + closed(0, 2) + closed(1, 3) + closed(3, 2), []),  # two left at once
        (WHOLE + closed(0, 2) + closed(0, 2), []),  # one witness
        (WHOLE + closed(0, 2) + closed(1, 2) + closed(2, 3), []),  # it was still there
        (closed(0, 2) + closed(1, 2), []),  # which rank that is, nothing tells
        (layout(0) + layout(6, local=1) + closed(0, 2) + closed(6, 2), []),  # ranks of no row
        # all members but one of the only communicator
        (closed(0, 2) + closed(1, 2) + closed(3, 2) + size(0, 4), [2]),
        (closed(0, 2) + closed(1, 2) + closed(3, 2) + size(0, 8), []),
        (closed(0, 2) + closed(1, 2) + closed(3, 2) + size(0, 4) + size(1, 8), []),
        (WHOLE + closed(0, 2)[:40] + "\n" + closed(1, 2)[:50], []),
    ],
)
def test_who_left_first(text: str, ranks: list[int]) -> None:
    assert left(text) == ranks


@pytest.mark.parametrize(
    "text",
    [
        timeout(2) + "\n" + WHOLE + closed(0, 2) + closed(1, 2),  # its own watchdog ended it
        timeout(0) + "\n" + WHOLE + closed(0, 2) + closed(1, 2),  # it went when others had given up already
    ],
)
def test_a_rank_that_its_watchdog_ended_is_not_accused(tmp_path: Path, text: str) -> None:
    (tmp_path / "paste.txt").write_text(text)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.culprit_ranks == ()


def test_a_healthy_end_is_no_stop(tmp_path: Path) -> None:
    (tmp_path / "paste.txt").write_text("training finished\n" + WHOLE + closed(0, 2) + closed(1, 2))
    assert analyze(tmp_path).status != "hang"
