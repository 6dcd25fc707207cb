"""A hand-written report: eight ranks, of which one alone called all_gather."""

from __future__ import annotations

from typing import Any


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
