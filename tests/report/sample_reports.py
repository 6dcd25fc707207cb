"""Hand-written report dicts: hangs of 8, 512 and 16,384 ranks, a clean job, an undecided, a hostile one."""

from __future__ import annotations

import copy
from typing import Any

from tests.report.sample_hang_8 import hang_8
from tests.report.sample_large_hangs import hang_512, hang_16384

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{% raw %}<!--&amp;]]>"
    "\x1b[31mred\x1b]0;title\x07\x00\u202egnp.exe\ud800\u2028 javascript:alert(3) " + "A" * 600
)


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
