"""Hand-written report dicts: hangs of 8, 512 and 16,384 ranks, a clean job, an undecided, a hostile one."""

from __future__ import annotations

import copy
from typing import Any

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{% raw %}<!--&amp;]]>"
    "\x1b[31mred\x1b]0;title\x07\x00\u202egnp.exe\ud800\u2028 javascript:alert(3) " + "A" * 600
)


def frame(name: str, file: str, line: int, *, user: bool = True, differs: bool = False) -> dict[str, Any]:
    return {"name": name, "file": file, "line": line, "user": user, "differs": differs}


def bare(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: entry[key] for key in ("name", "file", "line")} for entry in frames]


CULPRIT_FRAMES = [
    frame(
        "all_gather",
        "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
        4029,
        user=False,
        differs=True,
    ),
    frame("log_metrics", "/workspace/train/train.py", 87, differs=True),
    frame("train_step", "/workspace/train/train.py", 141, differs=True),
    frame("run_epoch", "/workspace/train/loop.py", 60),
    frame("main", "/workspace/train/train.py", 203),
]
WAITING_FRAMES = [
    frame(
        "all_reduce",
        "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
        3021,
        user=False,
        differs=True,
    ),
    frame("sync_gradients", "/workspace/train/optim.py", 44, differs=True),
    frame("train_step", "/workspace/train/train.py", 137, differs=True),
    frame("run_epoch", "/workspace/train/loop.py", 60),
    frame("main", "/workspace/train/train.py", 203),
]


def cell(
    seq: int, op: str, state: str, *, odd: bool = False, site: str = "optim.py:44 in sync_gradients"
) -> dict[str, Any]:
    return {
        "seq": seq,
        "op": op,
        "state": state,
        "odd": odd,
        "sizes": "[64, 32] Float" if op else "",
        "site": site if op else "",
    }


def hang_8() -> dict[str, Any]:
    """Rank 3 of 8 made one call that the others did not; rank 6 left no dump."""
    steps = [(seq, "all_reduce") for seq in range(806, 812)]
    shared = [cell(seq, op, "done") for seq, op in steps]
    odd = cell(812, "all_gather", "pending", odd=True, site="train.py:87 in log_metrics")
    return {
        "schema": "hangscope.report/1",
        "status": "hang",
        "verdict": {
            "cause": "rank_conditional_collective",
            "confidence": "high",
            "culprit_ranks": [3],
            "culprits": [{"rank": 3, "host": "gpu07", "local_rank": 3, "device": 3, "pid": 48213}],
            "category": "code",
            "group": {"name": "0", "desc": "default_pg", "ranks": list(range(8))},
            "op": "all_reduce",
            "seq": 812,
            "is_p2p": False,
            "waiting_ranks": [0, 1, 2, 4, 5, 7],
            "explains": {"ranks": 6, "of": 6},
            "fingerprint": "5b3f0c6e21",
            "culprit_call": {"op": "all_gather", "seq": 812, "frames": bare(CULPRIT_FRAMES)},
            "waiting_call": {
                "op": "all_reduce",
                "seq": 812,
                "frames": bare(WAITING_FRAMES),
                "sizes": [[64, 32]],
                "dtypes": ["Float"],
            },
            "location": {
                "file": "/workspace/train/train.py",
                "line": 87,
                "function": "log_metrics",
                "rank": 3,
            },
            "summary": "Rank 3 called all_gather at train.py:87 while 6 ranks wait in all_reduce.",
            "evidence": [
                {
                    "kind": "dump",
                    "text": "Rank 3 enqueued all_gather as seq 812 of group 0, the others all_reduce.",
                    "rank": 3,
                    "source": {"file": "dumps/rank_3", "line": None},
                    "stance": "for",
                },
                {
                    "kind": "log",
                    "text": "[rank3] loss is above 10 at step 405, gathering metrics from all ranks",
                    "rank": 3,
                    "source": {"file": "logs/rank3.log", "line": 412},
                    "stance": "for",
                },
                {
                    "kind": "dump",
                    "text": "With that one call taken out, rank 3 matches its peers over 811 calls.",
                    "rank": 3,
                    "source": {"file": "dumps/rank_3", "line": None},
                    "stance": "for",
                },
                {
                    "kind": "log",
                    "text": "[rank0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, ...)",
                    "rank": 0,
                    "source": {"file": "logs/rank0.log", "line": 1903},
                    "stance": "against",
                },
                {
                    "kind": "dump",
                    "text": "Rank 6 left no dump.",
                    "rank": 6,
                    "source": None,
                    "stance": "missing",
                },
            ],
            "advice": [
                "Call all_gather at train.py:87 on every rank and gate only the printing on the loss.",
                "Run 8 ranks for 500 steps with TORCH_DISTRIBUTED_DEBUG=DETAIL to see that the calls agree.",
            ],
            "alternatives": [
                {
                    "cause": "uneven_loader",
                    "why": "Rank 3 is still inside the loop: train.py:141 lies among the lines of a step.",
                }
            ],
        },
        "groups": [
            {
                "name": "0",
                "desc": "default_pg",
                "role": "world",
                "ranks": list(range(8)),
                "frontier": {"enqueued": 812, "completed": 811},
            }
        ],
        "ranks": [
            {
                "rank": rank,
                "host": "gpu07",
                "state": "culprit" if rank == 3 else "unseen" if rank == 6 else "waiting",
                "absence": "no dump" if rank == 6 else None,
                "last_call": None
                if rank == 6
                else {"op": "all_gather" if rank == 3 else "all_reduce", "seq": 812},
                "files": [f"dumps/rank_{rank}", f"logs/rank{rank}.log"] if rank != 6 else ["logs/rank6.log"],
            }
            for rank in range(8)
        ],
        "inputs": [
            *(
                {
                    "file": f"dumps/rank_{rank}",
                    "kind": "flight_recorder",
                    "rank": rank,
                    "status": "used",
                    "reason": "",
                }
                for rank in range(8)
                if rank != 6
            ),
            {
                "file": "dumps/rank_6",
                "kind": "flight_recorder",
                "rank": 6,
                "status": "failed",
                "reason": "empty file",
            },
            {
                "file": "dumps/old/rank_3",
                "kind": "flight_recorder",
                "rank": 3,
                "status": "set aside",
                "reason": "an earlier attempt",
            },
        ],
        "warnings": [
            {
                "code": "empty",
                "file": "dumps/rank_6",
                "message": "the file is empty",
                "hint": "the disk may be full",
            }
        ],
        "tool_version": "0.1.0",
        "partial": {
            "is_partial": True,
            "text": "dumps of 7 of 8 ranks; rank 6 left none",
            "missing_ranks": "6",
        },
        "headline": "Rank 3 alone called all_gather at train.py:87, and six ranks wait for it in all_reduce.",
        "sources": {"dump": 7, "log": 8, "stack": 0},
        "confidence_why": [
            "dumps and logs agree on rank 3",
            "the sequences match again once the extra call is taken out",
        ],
        "missing": [
            "stacks of all ranks (py-spy dump) were not collected",
            "rank 6 left no dump: its node's disk may be full",
        ],
        "candidates": [
            {
                "ranks": "6",
                "cause": "crashed_rank",
                "why_set_aside": "Its log goes on after the stall, and a seen rank differs.",
            },
            {
                "ranks": "0",
                "cause": "stuck_rank",
                "why_set_aside": "It timed out first, which makes it a waiting rank, not the cause.",
            },
        ],
        "lanes": {
            "group": {"name": "0", "desc": "default_pg"},
            "seqs": [*range(806, 813)],
            "divergence_seq": 812,
            "rows": [
                {
                    "ranks": "3",
                    "count": 1,
                    "role": "culprit",
                    "label": "made another call",
                    "cells": [*shared, odd],
                },
                {
                    "ranks": "0-2,4-5,7",
                    "count": 6,
                    "role": "waiting",
                    "label": "wait in all_reduce",
                    "cells": [*shared, cell(812, "all_reduce", "pending")],
                },
                {
                    "ranks": "6",
                    "count": 1,
                    "role": "unseen",
                    "label": "no dump",
                    "cells": [cell(seq, "", "unseen") for seq in range(806, 813)],
                },
            ],
        },
        "rankmap": {
            "world_size": 8,
            "per_host": 8,
            "hosts": ["gpu07"],
            "states": [0, 0, 0, 1, 0, 0, 2, 0],
            "legend": [
                {"state": 0, "label": "waiting in all_reduce 812", "role": "waiting"},
                {"state": 1, "label": "made another call", "role": "culprit"},
                {"state": 2, "label": "no dump", "role": "unseen"},
            ],
            "culprits": [3],
        },
        "waitfor": {
            "nodes": [
                {
                    "id": "h0",
                    "kind": "host",
                    "label": "host of ranks 0-2,4-5,7",
                    "ranks": "0-2,4-5,7",
                    "count": 6,
                    "root": False,
                    "cycle": False,
                },
                {
                    "id": "c0",
                    "kind": "call",
                    "label": "all_reduce 812 on 0",
                    "ranks": "0-2,4-5,7",
                    "count": 6,
                    "root": False,
                    "cycle": False,
                },
                {
                    "id": "h3",
                    "kind": "host",
                    "label": "rank 3",
                    "ranks": "3",
                    "count": 1,
                    "root": True,
                    "cycle": False,
                },
            ],
            "edges": [
                {"from": "h0", "to": "c0", "assumed": True},
                {"from": "c0", "to": "h3", "assumed": False},
            ],
            "text": [
                "Ranks 0-2,4-5,7 wait in all_reduce, seq 812 of group 0.",
                "all_reduce 812 waits for rank 3, which made all_gather instead.",
            ],
        },
        "timeline": {
            "offset_known": False,
            "events": [
                {"t_ms": -41.5, "ranks": "3", "label": "enqueued all_gather 812", "kind": "enqueue"},
                {"t_ms": 0.0, "ranks": "0-2,4-5,7", "label": "enqueued all_reduce 812", "kind": "enqueue"},
                {"t_ms": 12.0, "ranks": "3", "label": "last line of stdout: step 405", "kind": "log"},
                {
                    "t_ms": 600021.0,
                    "ranks": "0",
                    "label": "watchdog timeout of all_reduce 812",
                    "kind": "log",
                },
                {"t_ms": 600950.0, "ranks": "0-5,7", "label": "flight recorder dumps", "kind": "dump"},
            ],
        },
        "coverage": {
            "files": 17,
            "used": 15,
            "set_aside": 1,
            "ignored": 1,
            "windows": [{"ranks": "0-5,7", "group": "0", "from_seq": 1, "to_seq": 812}],
        },
        "stacks": {
            "culprit": {"title": "Rank 3", "rank": 3, "frames": CULPRIT_FRAMES},
            "waiting": {"title": "Ranks 0-2,4-5,7", "rank": 0, "frames": WAITING_FRAMES},
        },
    }


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


def no_hang() -> dict[str, Any]:
    """Four ranks, all done; `verdict` is null, as the schema has it."""
    return {
        "schema": "hangscope.report/1",
        "status": "no_hang",
        "verdict": None,
        "groups": [
            {
                "name": "0",
                "desc": "default_pg",
                "role": "world",
                "ranks": [0, 1, 2, 3],
                "frontier": {"enqueued": 40, "completed": 40},
            }
        ],
        "ranks": [
            {
                "rank": r,
                "host": "gpu01",
                "state": "done",
                "absence": None,
                "last_call": {"op": "barrier", "seq": 40},
                "files": [f"rank_{r}"],
            }
            for r in range(4)
        ],
        "inputs": [
            {"file": f"rank_{r}", "kind": "flight_recorder", "rank": r, "status": "used", "reason": ""}
            for r in range(4)
        ],
        "warnings": [],
        "tool_version": "0.1.0",
        "headline": "No hang: all 4 ranks completed every call, up to barrier 40.",
        "confidence_why": ["every rank was seen", "nothing is pending", "the frontiers are equal"],
    }


def inconclusive() -> dict[str, Any]:
    """Nothing names a cause: the verdict is unknown, and the page must ask for what would have told."""
    report = hang_8()
    report["status"] = "inconclusive"
    report["verdict"] |= {
        "cause": "unknown",
        "confidence": "low",
        "culprit_ranks": [],
        "culprits": [],
        "culprit_call": None,
        "waiting_call": None,
        "location": None,
        "category": "unknown",
        "summary": "Two of four ranks are pending in all_reduce 812 and the other two left nothing.",
        "evidence": [entry for entry in report["verdict"]["evidence"] if entry["stance"] != "for"],
        "advice": ["Keep TORCH_FR_BUFFER_SIZE at 2000 or more on every rank."],
    }
    for key in (
        "headline",
        "stacks",
        "lanes",
        "rankmap",
        "waitfor",
        "timeline",
        "coverage",
        "candidates",
        "sources",
        "confidence_why",
    ):
        del report[key]
    return report


def empty() -> dict[str, Any]:
    """The least that the schema allows: every value null or empty."""
    return {
        "schema": "hangscope.report/1",
        "status": "inconclusive",
        "verdict": None,
        "groups": None,
        "ranks": None,
        "inputs": None,
        "warnings": None,
        "tool_version": None,
    }


def hostile() -> dict[str, Any]:
    """The small hang with a hostile string in every field that can hold one."""
    keep = {"status", "role", "state", "stance", "confidence", "id", "from", "to", "per_host"}

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        return HOSTILE + value[:40] if isinstance(value, str) and key not in keep else value

    return spoil(copy.deepcopy(hang_8()))  # type: ignore[no-any-return]


MARKDOWN = "# Rank 3 alone called all_gather\n\n- **Who** rank 3 on gpu07\n- **Where** `train.py:87`\n"

SAMPLES = {
    "hang_8": hang_8,
    "hang_512": hang_512,
    "hang_16384": hang_16384,
    "no_hang": no_hang,
    "inconclusive": inconclusive,
    "empty": empty,
    "hostile": hostile,
}
