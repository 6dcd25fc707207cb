"""Hand-written reports: hangs of 512 and of 16,384 ranks."""

from __future__ import annotations

from typing import Any

from tests.report.sample_hang_8 import CULPRIT_FRAMES, WAITING_FRAMES, bare, cell, frame, hang_8


def hang_512() -> dict[str, Any]:
    """A circular wait of two groups in 512 ranks, long texts everywhere, half of the ranks unseen."""
    report = hang_8()
    world = 512
    verdict = report["verdict"]
    verdict |= {
        "cause": "collective_order_mismatch",
        "confidence": "medium",
        "culprit_ranks": [257, 258, 300, 411],
        "culprits": [
            {
                "rank": r,
                "host": f"gpu{r // 8:03d}.cluster.example.com",
                "local_rank": r % 8,
                "device": r % 8,
                "pid": None,
            }
            for r in (257, 258, 300, 411)
        ],
        "group": {
            "name": "data_parallel_group_with_a_long_name",
            "desc": "mesh_dp_cp",
            "ranks": list(range(0, 512, 2)),
        },
        "waiting_ranks": list(range(256)),
        "explains": {"ranks": 255, "of": 256},
        "advice": [
            f"{step} It is so long that the page folds it over two lines, as it does real advice."
            for step in verdict["advice"] * 2
        ],
    }
    report |= {
        "groups": [
            {
                "name": "dp",
                "desc": "mesh_dp_cp",
                "role": "dp",
                "ranks": list(range(0, 512, 2)),
                "frontier": None,
            }
        ],
        "ranks": [
            {
                "rank": r,
                "host": f"gpu{r // 8:03d}",
                "state": "waiting" if r < 256 else "unseen",
                "absence": None,
                "last_call": {"op": "all_reduce", "seq": 812},
                "files": [f"rank_{r}"],
            }
            for r in range(world)
        ],
        "partial": {
            "is_partial": True,
            "text": "dumps of 256 of 512 ranks; ranks 256-511 left none when their hosts were taken back",
            "missing_ranks": "256-511",
        },
        "headline": "Ranks 257, 258, 300 and 411 entered the data-parallel and the tensor-parallel group in "
        "the opposite order of all other ranks, so each of the two groups waits for the other, and 255 of 256"
        " waiting ranks are explained by that one circular wait.",
    }
    report["rankmap"] = {
        "world_size": world,
        "per_host": 8,
        "hosts": [f"gpu{n:03d}" for n in range(64)],
        "states": [[0, 250], [3, 6], [2, 1], [1, 2], [2, 41], [1, 1], [2, 110], [1, 1], [2, 90], [4, 10]],
        "legend": [
            {"state": 0, "label": "waiting in all_reduce 812", "role": "waiting"},
            {"state": 1, "label": "member of the circular wait", "role": "culprit"},
            {"state": 2, "label": "no dump", "role": "unseen"},
            {"state": 3, "label": "idle outside collectives", "role": "idle"},
            {"state": 4, "label": "all calls completed", "role": "done"},
        ],
        "culprits": [257, 258, 300, 411],
    }
    report["lanes"]["rows"] += [
        {
            "ranks": f"{8 * n}-{8 * n + 7}",
            "count": 8,
            "role": "idle" if n % 2 else "done",
            "label": "behind its peers",
            "cells": [
                cell(seq, "reduce_scatter_tensor", state)
                for seq, state in zip(
                    range(806, 813),
                    ("overwritten", "done", "done", "done", "unknown", "absent", "absent"),
                    strict=True,
                )
            ],
        }
        for n in range(3)
    ]
    names = [f"n{n}" for n in range(12)]
    report["waitfor"] = {
        "nodes": [
            {
                "id": name,
                "kind": "call" if n % 2 else "host",
                "label": f"all_reduce {800 + n} on tp{n}" if n % 2 else f"ranks {64 * n}-{64 * n + 63}",
                "ranks": f"{64 * n}-{64 * n + 63}",
                "count": 64,
                "root": n >= 9,
                "cycle": n >= 9,
            }
            for n, name in enumerate(names)
        ],
        "edges": [
            *({"from": f"n{n}", "to": f"n{n + 4}", "assumed": n % 3 == 0} for n in range(8)),
            {"from": "n9", "to": "n10", "assumed": False},
            {"from": "n10", "to": "n11", "assumed": False},
            {"from": "n11", "to": "n9", "assumed": False},
        ],
        "text": [
            "Ranks 576-639 wait in all_reduce 809, which waits for ranks 640-703, which wait for 809 again."
        ],
    }
    return report


def hang_16384() -> dict[str, Any]:
    """One rank of 16,384 is stuck outside every collective; per-rank detail comes folded into classes."""
    report = hang_8()
    world = 16384
    report["verdict"] |= {
        "cause": "stuck_rank",
        "culprit_ranks": [9473],
        "culprits": [{"rank": 9473, "host": "node1184", "local_rank": 1, "device": 1, "pid": 771}],
        "waiting_ranks": [r for r in range(world) if r != 9473],
        "culprit_call": {"op": "all_reduce", "seq": 811, "frames": bare(WAITING_FRAMES)},
        "location": {
            "file": "/workspace/train/checkpoint.py",
            "line": 31,
            "function": "write_shard",
            "rank": 9473,
        },
        "explains": {"ranks": world - 1, "of": world - 1},
        "group": {"name": "0", "desc": "default_pg", "ranks": list(range(world))},
    }
    report["groups"] = [
        {
            "name": "0",
            "desc": "default_pg",
            "role": "world",
            "ranks": f"0-{world - 1}",
            "frontier": {"enqueued": 812, "completed": 811},
        }
    ]
    report["ranks"] = [
        {
            "ranks": f"{8 * host}-{8 * host + 7}",
            "count": 8,
            "host": f"node{host:04d}",
            "state": "waiting",
            "last_call": {"op": "all_reduce", "seq": 812},
        }
        for host in range(world // 8)
    ]
    report["inputs"] = [
        {
            "file": "dumps/rank_*",
            "count": world - 40,
            "kind": "flight_recorder",
            "rank": None,
            "ranks": "0-16343",
            "status": "used",
            "reason": "",
        }
    ]
    report["headline"] = (
        "Rank 9473 on node1184 never made all_reduce 812: it sits in checkpoint.py:31 and 16,383 ranks wait."
    )
    report["stacks"] = {
        "culprit": {
            "title": "Rank 9473",
            "rank": 9473,
            "frames": [
                frame(
                    "_save",
                    "/opt/venv/lib/python3.11/site-packages/torch/serialization.py",
                    1218,
                    user=False,
                    differs=True,
                ),
                frame("write_shard", "/workspace/train/checkpoint.py", 31, differs=True),
                frame("end_of_step", "/workspace/train/train.py", 166, differs=True),
                *CULPRIT_FRAMES[3:],
            ],
        },
        "waiting": {"title": "16,383 ranks", "rank": 0, "frames": WAITING_FRAMES},
    }
    report["partial"] = {"is_partial": False, "text": "", "missing_ranks": ""}
    report["lanes"]["rows"] = [
        {
            **report["lanes"]["rows"][0],
            "ranks": "9473",
            "role": "culprit",
            "label": "idle outside collectives",
            "cells": [
                *report["lanes"]["rows"][1]["cells"][:-1],
                {"seq": 812, "op": "", "state": "absent", "odd": True, "sizes": None, "site": None},
            ],
        },
        {**report["lanes"]["rows"][1], "ranks": "0-9472,9474-16343", "count": world - 41},
        {**report["lanes"]["rows"][2], "ranks": "16344-16383", "count": 40},
    ]
    report["rankmap"] = {
        "world_size": world,
        "per_host": 8,
        "hosts": [],
        "states": [*([0] * 9473), 1, *([0] * (world - 9514)), *([2] * 40)],
        "legend": [
            {"state": 0, "label": "waiting in all_reduce 812", "role": "waiting"},
            {"state": 1, "label": "idle outside collectives", "role": "culprit"},
            {"state": 2, "label": "no dump", "role": "unseen"},
        ],
        "culprits": [9473],
    }
    return report
