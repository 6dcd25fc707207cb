"""The keys that the JSON report promises (README, "The JSON report")."""

from __future__ import annotations

import json
from typing import Any

from hangscope.knowledge.catalog import CATALOG

#: The words that are promised; more may come, none goes.
CONTRACT_CAUSES = {
    "rank_conditional_collective",
    "uneven_loader",
    "crashed_rank",
    "early_exit",
    "stuck_rank",
    "shape_mismatch",
    "dtype_mismatch",
    "collective_mismatch",
    "gradient_sync_mismatch",
    "model_mismatch",
    "collective_order_mismatch",
    "p2p_mismatch",
    "gpu_stall",
    "network_stall",
    "init_hang",
    "slow_rank",
    "unknown",
}

VERDICT_KEYS = {
    "cause",
    "confidence",
    "culprit_ranks",
    "culprits",
    "category",
    "group",
    "op",
    "seq",
    "is_p2p",
    "waiting_ranks",
    "explains",
    "fingerprint",
    "culprit_call",
    "waiting_call",
    "location",
    "summary",
    "evidence",
    "advice",
    "alternatives",
}
REPORT_KEYS = {"schema", "status", "verdict", "groups", "ranks", "inputs", "warnings", "tool_version"}
CATEGORIES = {"code", "data", "hardware", "network", "environment", "external", "unknown"}


def check_json(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    assert data["schema"] == "hangscope.report/1"
    assert set(data) >= REPORT_KEYS
    assert data["status"] in ("hang", "no_hang", "inconclusive")
    for group in data["groups"]:
        assert set(group) >= {"name", "desc", "role", "ranks", "frontier"}
    for rank in data["ranks"]:
        assert set(rank) >= {"rank", "host", "state", "absence", "last_call", "files"}
    for item in data["inputs"]:
        assert set(item) >= {"file", "kind", "rank", "status", "reason"}
    verdict = data["verdict"]
    if verdict is None:
        assert data["status"] != "hang"
        return data
    assert set(verdict) >= VERDICT_KEYS
    assert verdict["cause"] in CATALOG and verdict["category"] in CATEGORIES
    assert verdict["confidence"] in ("high", "medium", "low")
    assert (
        set(verdict["explains"]) >= {"ranks", "of"}
        and verdict["explains"]["ranks"] <= verdict["explains"]["of"]
    )
    assert len(verdict["alternatives"]) <= 3
    assert all(set(a) >= {"cause", "why"} and a["cause"] in CATALOG for a in verdict["alternatives"])
    assert all(set(e) >= {"kind", "text", "rank", "source"} for e in verdict["evidence"])
    assert all(set(c) >= {"rank", "host", "local_rank", "device", "pid"} for c in verdict["culprits"])
    assert verdict["group"] is None or set(verdict["group"]) >= {"name", "desc", "ranks"}
    for call in (verdict["culprit_call"], verdict["waiting_call"]):
        assert call is None or set(call) >= {"op", "seq", "frames"}
        assert call is None or all(set(f) >= {"name", "file", "line"} for f in call["frames"])
    assert verdict["location"] is None or set(verdict["location"]) >= {"file", "line", "function", "rank"}
    assert not set(verdict["culprit_ranks"]) & set(verdict["waiting_ranks"])
    check_sentences(data)
    return data


def check_sentences(data: dict[str, Any]) -> None:
    """Hold what a report says for people to the lengths and relations that are promised."""
    verdict, levels = data["verdict"], ("low", "medium", "high")
    for text, most in ((verdict["title"], 80), (verdict["summary"], 240), (verdict["explanation"], 900)):
        assert text and len(text) <= most, text
    assert len(data["headline"]) <= 240
    both = [levels.index(verdict[key]) for key in ("rank_confidence", "cause_confidence")]
    assert levels.index(verdict["confidence"]) == min(both)
    assert set(verdict["suspect_ranks"]) >= set(verdict["culprit_ranks"])
    assert all(set(c) == {"ranks", "what", "text"} for c in verdict["collect"])
    assert all(c["what"] in ("dump", "log", "stack", "other") for c in verdict["collect"])
    assert all(set(r) == {"cause", "ranks", "because"} for r in data["ruled_out"])
