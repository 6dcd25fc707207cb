"""Models and communicators that are not the same on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.nccl_writer import Comm, NcclWriter, Proc
from tests.text_lines import CLOSED, judged, raised, short, told

VERSIONS = "node{node}:77:78 [0] NCCL WARN Mismatched NCCL version detected : rank {0} version {1} rank {2} version {3}"
REFUSES = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage, NCCL version 2.27.3"
)
COUNTS = "RuntimeError: DDP expects same model across all ranks, but Rank {0} has {1} params, while rank {2} has inconsistent {3} params."
SIZES = "RuntimeError: [{0}]: params[2] in this process with sizes [16, 4] appears not to match sizes of the same param in process 0."


def test_two_models_of_two_sizes_do_not_tell_which_is_meant(tmp_path: Path) -> None:
    lines = [f"[rank0]: {COUNTS.format(0, 148, 3, 150)}", f"[rank3]: {COUNTS.format(3, 150, 0, 148)}"]
    cause, ranks, level = short(told(tmp_path, lines))
    assert (cause, ranks) == ("model_mismatch", ()) and level != "high"


def test_one_that_differs_from_process_0_is_named(tmp_path: Path) -> None:
    cause, ranks, _ = short(told(tmp_path, [f"[rank2]: {SIZES.format(2)}"], world_size=4))
    assert (cause, ranks) == ("model_mismatch", (2,))


def test_half_of_the_ranks_against_process_0_and_its_like_do_not_tell_who_is_wrong(tmp_path: Path) -> None:
    lines = {f"rank{r}.log": [f"[rank{r}]: {SIZES.format(r)}"] for r in (2, 3)}
    report = told(tmp_path, {**lines, "rank0.log": [CLOSED], "rank1.log": [CLOSED]}, world_size=4)
    cause, ranks, level = short(report)
    assert (cause, ranks) == ("model_mismatch", ()) and level != "high"
    assert "Ranks 2 and 3 built parameters with other sizes" in judged(report).summary


def test_where_all_differ_from_process_0_it_is_the_one(tmp_path: Path) -> None:
    lines = {f"rank{r}.log": [f"[rank{r}]: {SIZES.format(r)}"] for r in (1, 2, 3)}
    cause, ranks, _ = short(told(tmp_path, lines, world_size=4))
    assert (cause, ranks) == ("model_mismatch", (0,))


def refused(rank: int, peer: int, odd: Sequence[int]) -> list[str]:
    """Return what a rank prints that NCCL refused to join with a peer of another version."""
    own, other = (22602 if r in odd else 22703 for r in (rank, peer))
    said = VERSIONS.format(rank, own, peer, other, node=rank // 2)
    return [f"[rank{rank}]: {line}" for line in (said, "Traceback (most recent call last):", REFUSES)]


@pytest.mark.parametrize(("odd", "named"), [((2, 3), (2, 3)), ((3, 4, 5), ())])
def test_ranks_of_two_versions_of_nccl_raise_its_error_all_and_only_the_rarer_version_is_odd(
    tmp_path: Path, odd: tuple[int, ...], named: tuple[int, ...]
) -> None:
    lines = [line for r in range(6) for line in refused(r, 0 if r in odd else odd[0], odd)]
    report = told(tmp_path, lines, world_size=6)
    assert short(report)[:2] == ("init_hang", named)
    assert "22602" in judged(report).summary and "22703" in judged(report).summary


def test_one_pair_of_versions_does_not_tell_which_is_rare(tmp_path: Path) -> None:
    cause, ranks, level = short(told(tmp_path, refused(0, 5, (5,)), world_size=8))
    assert (cause, ranks) == ("init_hang", ()) and level != "high"


@pytest.mark.parametrize(
    ("leaders", "answer"),
    [((0, 2, 4, 6), ("init_hang", (4,), "medium")), ((0, 1, 4, 6), ("init_hang", (), "medium"))],
)
def test_who_waits_in_a_communicator_that_never_forms_is_not_free(
    tmp_path: Path, leaders: tuple[int, ...], answer: tuple[str, tuple[int, ...], str]
) -> None:
    """The third member is in the next call with the rest; who it is the distances between the others tell, or nothing."""
    writer = NcclWriter((2, 23, 4))
    world, few = Comm("world", tuple(range(8)), 0xAB1), Comm("leaders", leaders, 0xAB2)
    lines = []
    for rank in range(8):
        proc = Proc("node0", 4000 + rank, rank)
        lines += [*writer.start(world, rank, proc), writer.complete(world, rank, proc)]
        lines += [writer.coll(world, rank, proc, "AllReduce", 64) for _ in range(3)]
        if rank in leaders[:2] or rank == leaders[3]:
            lines += writer.start(few, rank, proc)
        else:
            lines.append(writer.coll(world, rank, proc, "AllReduce", 1))
    assert short(told(tmp_path, {"nccl.log": lines})) == answer


def test_who_created_a_communicator_of_another_size_keeps_it_from_forming(tmp_path: Path) -> None:
    writer = NcclWriter((2, 23, 4))
    whole, sync, short = (
        Comm(name, ranks, number)
        for name, ranks, number in (
            ("world", tuple(range(6)), 0xAB1),
            ("sync", (0, 2, 3, 4, 5), 0xAB2),
            ("sync", (0, 2, 3, 5), 0xAB2),
        )
    )
    for rank in range(6):
        proc = Proc("node0", 4000 + rank, rank)
        lines = [*writer.start(whole, rank, proc), writer.complete(whole, rank, proc)]
        if rank in sync.ranks:
            lines += writer.start(short if rank == 3 else sync, rank, proc)
        (tmp_path / f"rank{rank}.log").write_text("\n".join([*lines, f"[rank{rank}]: waits"]) + "\n")
    verdict = judged(analyze(tmp_path))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (3,))
    assert "of 4 ranks that the others created with 5" in verdict.summary


def test_ranks_that_wait_for_one_of_themselves_list_other_members(tmp_path: Path) -> None:
    error = "torch.distributed.DistStoreError: wait timeout after 12000ms, keys: /default_pg/0//2//cpu//0/3"
    report = told(tmp_path, [line for rank in (0, 2, 3, 4) for line in raised(rank, error)])
    assert short(report)[:2] == ("init_hang", ())
    assert "waiting for member 3 of a group" in judged(report).title
