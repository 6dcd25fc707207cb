"""Copies of several files in one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WAITS = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"


def raised(error: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 9, in step',
        "    run()",
        error,
    ]


@pytest.mark.parametrize(
    ("above", "below", "culprits"),
    [
        ("== worker_0/rank_03.log", "== worker_1/rank_11.log", (11,)),
        ("==> rank3.log <==", "==> rank11.log <==", (11,)),
        ("==> node3.log <==", "==> node11.log <==", ()),
        ("==> rank3.log <==", "==> node1.log <==", ()),
        ("==> rank3.log <==", "", ()),
    ],
)
def test_lines_below_the_name_of_a_ranks_log_are_its_own(
    tmp_path: Path, above: str, below: str, culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, [above, *raised(WAITS), below, *raised(OOM)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", culprits)


def test_the_pods_of_a_job_count_its_ranks_where_each_is_one(tmp_path: Path) -> None:
    """The master is rank 0; with more processes than pods nobody knows whose a line is."""
    logs = [
        "$ kubectl -n ml logs asr-master-0 --tail=1",
        "2026-06-03 18:22:44 step 311",
        "$ kubectl -n ml logs asr-worker-1 --tail=9",
        "Traceback (most recent call last):",
        '  File "/workspace/train/train.py", line 66, in <module>',
        "    open(path)",
        "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/a.tar'",
    ]
    pods = [f"asr-{name}   1/1   Running   0   58m" for name in ("master-0", "worker-0", "worker-1")]
    for size, named in ((3, (2,)), (24, ())):
        text = [*pods, f"WORLD_SIZE={size}", *logs]
        assert judged(told(tmp_path / str(size), {"paste.txt": text})).culprit_ranks == named


@pytest.mark.parametrize("margin", ["", "  "])
def test_the_own_lines_below_a_ranks_title_are_its_own(tmp_path: Path, margin: str) -> None:
    lost = (
        "[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.0.0.2]:51142"
    )
    text = [
        "box A, rank 0:",
        *(f"{margin}step {n:05}/09648 | loss 5.1" for n in (470, 471, 472, 473)),
        f"{margin}{lost}",
        "box B, rank 1:",
        *(f"{margin}step {n:05}/00474 | loss 5.1" for n in (472, 473)),
        f"{margin}bye",
    ]
    verdict = judged(told(tmp_path, text))
    assert (verdict.cause, verdict.culprit_ranks) == ("uneven_loader", (1,))
