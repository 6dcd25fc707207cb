"""What never became whole: a store, a rendezvous, a model that is not the same on all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import short, told

CLIENTS = "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. {n}/{of} clients joined."
COUNTS = "RuntimeError: DDP expects same model across all ranks, but Rank {0} has {1} params, while rank {2} has inconsistent {3} params."
SIZES = "RuntimeError: [{0}]: params[2] in this process with sizes [16, 4] appears not to match sizes of the same param in process 0."


@pytest.mark.parametrize("gone", range(4))
def test_the_one_that_did_not_join_is_the_one_without_a_log(tmp_path: Path, gone: int) -> None:
    """Rank 0 holds the store, so that without it nobody could count."""
    logs = {f"rank{r}.log": [f"[rank{r}]: {CLIENTS.format(n=3, of=4)}"] for r in range(4) if r != gone}
    cause, ranks, _ = short(told(tmp_path, logs, world_size=4))
    assert (cause, ranks) == ("init_hang", (gone,))


def test_who_lacks_is_not_told_where_more_are_silent_than_are_missing(tmp_path: Path) -> None:
    logs = {f"rank{r}.log": [f"[rank{r}]: {CLIENTS.format(n=7, of=8)}"] for r in range(4)}
    cause, ranks, _ = short(told(tmp_path, logs, world_size=8))
    assert (cause, ranks) == ("init_hang", ())


def test_two_models_of_two_sizes_do_not_tell_which_is_meant(tmp_path: Path) -> None:
    lines = [f"[rank0]: {COUNTS.format(0, 148, 3, 150)}", f"[rank3]: {COUNTS.format(3, 150, 0, 148)}"]
    cause, ranks, level = short(told(tmp_path, lines))
    assert (cause, ranks) == ("model_mismatch", ()) and level != "high"


def test_one_that_differs_from_process_0_is_named(tmp_path: Path) -> None:
    cause, ranks, _ = short(told(tmp_path, [f"[rank2]: {SIZES.format(2)}"], world_size=4))
    assert (cause, ranks) == ("model_mismatch", (2,))


def test_where_all_differ_from_process_0_it_is_the_one(tmp_path: Path) -> None:
    lines = {f"rank{r}.log": [f"[rank{r}]: {SIZES.format(r)}"] for r in (1, 2, 3)}
    cause, ranks, _ = short(told(tmp_path, lines, world_size=4))
    assert (cause, ranks) == ("model_mismatch", (0,))
