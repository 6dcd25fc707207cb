"""Pastes that lost their line feeds, or gained some of a terminal's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.job_logs.progress import Progress, progress_of
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.pasted import repair
from hangscope.ingest.lines.prefixes import pieces
from tests.text_lines import c10, short, told

PARAMS = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."


def wrapped(text: str, width: int) -> list[str]:
    return [line[at : at + width] for line in text.split("\n") for at in range(0, len(line) or 1, width)]


def test_errors_that_stand_behind_each_other_are_lines(tmp_path: Path) -> None:
    counts = [(0, 90, 2, 88), (1, 90, 2, 88), (2, 88, 0, 90), (3, 90, 2, 88)]
    lines = [f"[rank{told[0]}]: " + PARAMS.format(*told) for told in counts]
    assert [piece.strip() for piece in pieces(" ".join(lines))] == lines
    assert short(told(tmp_path, [" ".join(lines)]))[:2] == ("model_mismatch", (2,))


@pytest.mark.parametrize("width", [60, 72, 80, 90])
def test_who_waits_for_an_id_waits_for_process_0_at_any_width(tmp_path: Path, width: int) -> None:
    form = (
        "[rank{0}]: torch.distributed.DistBackendError: [{0}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 1800000ms, keys: /default_pg/0//cuda//0"
    )
    text = "\n".join(form.format(rank) for rank in (1, 2, 3))
    assert short(told(tmp_path, wrapped(text, width)))[:2] == ("init_hang", (0,))


@pytest.mark.parametrize("width", [60, 75, 90])
def test_a_size_that_does_not_fit_is_told_at_any_width(tmp_path: Path, width: int) -> None:
    text = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8192 vs 512"
    assert short(told(tmp_path, wrapped(text, width)))[:2] == ("shape_mismatch", ())


def test_a_bar_and_what_another_writer_printed_behind_it_are_two_lines() -> None:
    bars = "  0%|          | 430/100000 [00:32<2:16:40, 12.14it/s]\r  0%|          | 443/100000 [00:34<2:32:52, 10.85it/s, loss=0.1]"
    ended = "W1127 18:59:30.232000 14819 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers"
    kept = KeptText([(1, f"{bars}{ended}\n".encode())])
    assert [
        progress.step for place in (0, 1) if isinstance(progress := progress_of(kept.line(place)), Progress)
    ] == [430, 443]
    assert (kept.texts, kept.numbers) == ([(1, ended)], [1, 1, 1])


def desync(ops: dict[str, str]) -> list[str]:
    return [
        c10(0, "[PG ID 0 PG GUID 0(default_pg) Rank 0] Rank 0"),
        "\t - [0] Timeout at collective: ALLREDUCE, #31",
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [0, 1, 2, 3] joined but didn't finish collective #31 (count from 1)",
        "\t - Snapshot of ranks' latest states:",
        "\t   #31 started ranks:",
        *(f"\t     [{ranks}] started {op}" for ranks, op in ops.items()),
    ]


def test_ranks_that_began_another_call_are_told_by_the_states_of_a_desync_report(tmp_path: Path) -> None:
    odd = desync({"0, 2, 3": "ALLREDUCE", "1": "BROADCAST"})
    cause, ranks, _ = short(told(tmp_path, odd))
    assert (ranks, cause in ("rank_conditional_collective", "collective_mismatch")) == ((1,), True)


def test_ranks_that_began_one_call_differ_in_nothing(tmp_path: Path) -> None:
    assert short(told(tmp_path, desync({"0, 1, 2, 3": "ALLREDUCE"})))[1] == ()


def test_names_before_lines_of_one_length_are_writers() -> None:
    lines = [f"node{n % 3}: {'waiting for the others in a barrier'}" for n in range(12)]
    assert repair("\n".join(lines).encode())[0].decode().split("\n") == lines
