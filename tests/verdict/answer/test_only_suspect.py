"""The one rank that lines point at, where nobody else is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import DEFAULT, judged, timeout, told

KEY = "torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [{peer}] via c10d key-value store by key '{key}', but store->get('{key}') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//{key}"
NOTIFY = "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank: [{peer}]. base information: [streamID:[9]]. group information: [group:[g1], rankSize[8], rankId[{local}]]."


@pytest.mark.parametrize(
    ("lines", "culprits"),
    [
        pytest.param(
            [f"[rank3]: {KEY.format(rank=3, peer=2, key='2:3')}", "[rank2]: INFO loading shard 2"],
            (2,),
            id="who writes a key of the store",
        ),
        pytest.param(
            [
                *(f"[rank{r}]: {NOTIFY.format(peer=4, local=r)}" for r in (1, 5)),
                "[rank4]: INFO compiling graph 4 of 11",
            ],
            (4,),
            id="the rank that HCCL waits for, in a group that counts as the job does",
        ),
        pytest.param(
            [f"[rank{r + 8}]: {NOTIFY.format(peer=4, local=r)}" for r in (1, 5)],
            (),
            id="a group that counts otherwise",
        ),
        pytest.param(
            [
                f"[rank3]: {KEY.format(rank=3, peer=2, key='2:3')}",
                f"[rank1]: {KEY.format(rank=1, peer=0, key='0:1')}",
            ],
            (),
            id="two suspects",
        ),
    ],
)
def test_the_only_suspect_of_a_stop_is_named_at_low(
    tmp_path: Path, lines: list[str], culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == culprits
    assert verdict.rank_confidence == "low" or not culprits


def test_for_whom_others_waited_until_their_timeout_is_stuck_and_the_title_names_it(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, ["torchrun --nproc_per_node=2 train.py", timeout(1, group=DEFAULT)]))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("stuck_rank", (0,), "low")
    assert "rank 0" in verdict.title.lower()


def test_rank_0_only_reports_who_did_not_come_to_a_monitored_barrier(tmp_path: Path) -> None:
    line = "[rank{0}]: RuntimeError: Rank {0} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
    assert judged(told(tmp_path, [line.format(rank) for rank in (3, 5)])).culprit_ranks == ()
