"""Verdicts on frozen jobs of 16 ranks that left nothing but NCCL's own lines, and on RAS, the Inspector and kernel lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hangscope.api import Report
from hangscope.model.conclusion import Verdict
from tests.conftest import analyze
from tests.dump_writer import stuck, write_all
from tests.nccl_jobs import Answer, incident_lines, write_incident
from tests.nccl_writer import Comm, NcclWriter, Proc
from tests.text_lines import timeout

pytestmark = pytest.mark.slow

Version = tuple[int, int, int]
#: they differ in the form of their lines: no id of a communicator, a parent's, no id of a split one, no number within a node
VERSIONS: list[Version] = [(2, 12, 12), (2, 21, 5), (2, 24, 3), (2, 30, 7)]
SIXTEEN = set(range(16))

#: the cause, and what is listed beside it
CAUSES = {
    "extra_call": ("rank_conditional_collective", "collective_mismatch"),
    "skipped_call": ("rank_conditional_collective", None),
    "stopped_rank": ("stuck_rank", "crashed_rank"),
    "count_mismatch": ("shape_mismatch", None),
    "opposite_orders": ("collective_order_mismatch", "rank_conditional_collective"),
    "ib_error": ("network_stall", None),
}


def judged(report: Report) -> Verdict:
    assert report.verdict is not None, report.warnings
    return report.verdict


def told(folder: Path, files: dict[str, str | list[str]]) -> Report:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else "\n".join(content) + "\n")
    return analyze(folder)


#: two of them for each fault, and three faults for each of them
SPREAD = [(fault, VERSIONS[i % 2 + shift]) for i, fault in enumerate(sorted(CAUSES)) for shift in (0, 2)]


@pytest.mark.parametrize(("fault", "version"), SPREAD)
def test_ranks_and_cause_of_every_release(tmp_path: Path, fault: str, version: Version) -> None:
    answers = [
        write_incident(tmp_path / str(mixed), fault, version=version, mixed=mixed) for mixed in (False, True)
    ]
    reports = [analyze(tmp_path / str(mixed)) for mixed in (False, True)]
    cause, beside = CAUSES[fault]
    for answer, report in zip(answers, reports, strict=True):
        verdict = judged(report)
        assert (report.status, verdict.culprit_ranks, verdict.cause) == ("hang", answer.culprits, cause)
        beside_it = [*verdict.alternatives, *report.document.ruled_out]
        assert beside is None or beside in [other.cause for other in beside_it]
        assert not [e for e in verdict.evidence if e.kind == "dump"]
        assert all(e.source is None or e.source.file in answer.files for e in verdict.evidence)
    assert judged(reports[0]).confidence == judged(reports[1]).confidence


@pytest.mark.parametrize("fault", ["extra_call", "skipped_call", "stopped_rank", "count_mismatch"])
def test_the_group_and_the_call(tmp_path: Path, fault: str) -> None:
    answer = write_incident(tmp_path, fault, version=(2, 21, 5))
    verdict = judged(analyze(tmp_path))
    sizes = {"world": 16, "ep": 16, "tp": 8, "dp": 2}
    assert verdict.group is not None
    assert (len(verdict.group.ranks), verdict.seq) == (sizes[answer.group], answer.seq)
    assert 5 in verdict.group.ranks and not set(verdict.waiting_ranks) & {5}


def test_a_healthy_log_of_calls_proves_neither(tmp_path: Path) -> None:
    write_incident(tmp_path, "healthy", version=(2, 24, 3))
    report = analyze(tmp_path)
    assert report.status == "inconclusive" and judged(report).cause == "unknown"
    assert set(report.table["state"].astype(str).str.lower()) == {"unknown"}


@pytest.mark.parametrize("version", [(2, 4, 8)])
def test_communicators_joined_by_assumption_are_never_certain(tmp_path: Path, version: Version) -> None:
    write_incident(tmp_path, "skipped_call", version=version)
    report = analyze(tmp_path)
    assert judged(report).confidence != "high"
    assert Counter(n.code for n in report.warnings)["assumed_communicator"] == 1


def test_a_rank_that_stopped_is_never_certain_either(tmp_path: Path) -> None:
    write_incident(tmp_path, "stopped_rank", version=(2, 27, 3))
    verdict = judged(analyze(tmp_path))
    assert verdict.confidence == "medium"
    assert any("completions were not recorded" in e.text for e in verdict.evidence)


@pytest.mark.parametrize(
    ("version", "mixed"), [((2, 12, 12), False), ((2, 21, 5), True), ((2, 23, 4), False), ((2, 30, 7), True)]
)
def test_an_init_that_never_completes(tmp_path: Path, version: Version, mixed: bool) -> None:
    write_incident(tmp_path, "init_never_completes", version=version, mixed=mixed)
    verdict = judged(analyze(tmp_path))
    named = version >= (
        2,
        23,
        4,
    )  # before, those who wait in bootstrap print no more than the one who never came
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (5,) if named else ())
    assert verdict.confidence == ("high" if named else "low")
    assert named or "ranks 0-7" in verdict.summary.lower()


def test_a_log_that_is_cut_accuses_nobody_for_certain(tmp_path: Path) -> None:
    answer = write_incident(tmp_path, "healthy", version=(2, 21, 5))
    victim = tmp_path / answer.files[9]
    text = victim.read_text()
    victim.write_text(text[: text.rindex("AllReduce: opCount") + 40])  # as a block-buffered stdout ends
    report = analyze(tmp_path)
    verdict = report.verdict
    assert verdict is not None and verdict.confidence == "low" and verdict.culprit_ranks in ((), (9,))
    assert not verdict.culprit_ranks or any("breaks off" in e.text for e in verdict.evidence)
    assert "torn_line" in {n.code for n in report.warnings}


def test_peers_that_lost_a_rank_say_that_it_died(tmp_path: Path) -> None:
    writer = NcclWriter((2, 24, 3))
    lines, *_ = incident_lines("stopped_rank", writer)
    procs = [Proc(f"node{r}", 4000 + r, 0) for r in range(16)]
    for rank in (4, 6):
        lines[rank].append(writer.closed_by_peer(procs[rank], "10.1.0.6"))
    own_hosts = [
        [
            line.replace(f"node{r // 8}:", f"node{r}:").replace(f"10.1.0.{r // 8 + 1}", f"10.1.0.{r + 1}")
            for line in mine
        ]
        for r, mine in enumerate(lines)
    ]
    for rank in (4, 6):  # the writer's own pids, so that both lines are one process's
        own_hosts[rank][-1] = own_hosts[rank][-1].replace(f":{4000 + rank}:", f":{4000 + 13 * rank}:")
    verdict = judged(told(tmp_path, {f"nccl.{r}.log": mine for r, mine in enumerate(own_hosts)}))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("crashed_rank", (5,), "medium")
    assert "stuck_rank" in [a.cause for a in verdict.alternatives]


def test_a_pipeline_whose_stage_stops(tmp_path: Path) -> None:
    writer = NcclWriter((2, 21, 5))
    world = Comm("world", (0, 1, 2, 3), 0x51A0)
    procs = [Proc("n0", 100 + r, r) for r in range(4)]
    lines = [[writer.complete(world, r, procs[r])] for r in range(4)]
    for step in range(5):
        for rank in range(4):
            if (rank == 2 and step >= 3) or (rank == 3 and step > 3):
                continue
            if rank > 0:
                lines[rank].append(writer.coll(world, rank, procs[rank], "Recv", 512, root=rank - 1))
            if rank < 3:
                lines[rank].append(writer.coll(world, rank, procs[rank], "Send", 512, root=rank + 1))
    verdict = judged(told(tmp_path, {f"nccl.{r}.log": lines[r] for r in range(4)}))
    assert (verdict.cause, verdict.culprit_ranks, verdict.is_p2p) == ("stuck_rank", (2,), True)


def test_a_broadcast_from_another_root_is_the_same_call_that_does_not_fit(tmp_path: Path) -> None:
    writer = NcclWriter((2, 21, 5))
    world = Comm("world", (0, 1, 2, 3), 0x51A0)
    procs = [Proc("n0", 100 + r, r) for r in range(4)]
    lines = [[writer.complete(world, r, procs[r])] for r in range(4)]
    for step in range(6):
        for rank in range(4):
            root = rank if step == 5 and rank == 2 else 0
            lines[rank].append(writer.coll(world, rank, procs[rank], "Broadcast", 512, root=root))
    lines.append([timeout(rank, seq=6, op="BROADCAST", n=512) for rank in range(4)])
    verdict = judged(told(tmp_path, {f"nccl.{r}.log": mine for r, mine in enumerate(lines)}))
    assert (verdict.cause, verdict.culprit_ranks) == ("collective_mismatch", (2,))
    assert "of root 2" in verdict.summary and "of root 0" in verdict.summary


# --- warnings ---


def test_an_infiniband_fault_comes_before_its_consequences(tmp_path: Path) -> None:
    write_incident(tmp_path, "ib_error", version=(2, 24, 3))
    verdict = judged(analyze(tmp_path))
    assert "node0 (rank 3" in verdict.summary and "mlx5_3" in verdict.summary
    quotes = [e.text for e in verdict.evidence if e.kind == "log"]
    assert "port error" in quotes[0]
    assert sum(q.startswith("a consequence") for q in quotes) == 3


def test_the_two_ends_of_a_failed_path(tmp_path: Path) -> None:
    writer = NcclWriter((2, 24, 3))
    lines, *_ = incident_lines("healthy", writer)
    here, there = Proc("node0", 4000 + 13 * 3, 3), Proc("node1", 4000 + 13 * 11, 3)
    lines[3].append(writer.ib_completion(here, "10.1.0.2", 12))
    lines[11].append(writer.ib_completion(there, "10.1.0.1", 12))
    lines[12].append(writer.closed_by_peer(Proc("node1", 4000 + 13 * 12, 4), "10.1.0.1"))
    verdict = judged(told(tmp_path, {f"nccl.{r}.log": mine for r, mine in enumerate(lines)}))
    assert (verdict.cause, verdict.culprit_ranks) == ("network_stall", (3, 11))


def test_a_flushed_completion_alone_names_nobody(tmp_path: Path) -> None:
    writer = NcclWriter((2, 24, 3))
    lines, *_ = incident_lines("healthy", writer)
    lines[11].append(writer.ib_completion(Proc("node1", 4000 + 13 * 11, 3), "10.1.0.1", 5))
    report = told(tmp_path, {f"nccl.{r}.log": mine for r, mine in enumerate(lines)})
    assert report.verdict is None or report.verdict.culprit_ranks == ()


# --- RAS and the Inspector ---


def ras_json(stamp: str, launched: dict[int, int], missing: tuple[int, ...] = ()) -> str:
    status = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }

    def place(rank: int) -> dict[str, Any]:
        return {
            "rank": rank,
            "host": f"n{rank // 2}",
            "pid": 100 + rank,
            "cuda_dev": rank % 2,
            "nvml_dev": rank % 2,
        }

    counts = {
        r: {"Broadcast": 0, "Reduce": 0, "AllGather": 3, "ReduceScatter": 0, "AllReduce": n}
        for r, n in launched.items()
    }
    communicator = {
        "hash": "0x9f21", "size": len(launched) + len(missing), "ranks_count": len(launched), "missing_ranks_count": len(missing),
        "ranks": [{**place(r), "status": status, "collective_counts": counts[r]} for r in launched],
        "missing_ranks": [{**place(r), "status": {"unresponsive": True, "considered_dead": True}} for r in missing],
    }  # fmt: skip
    return json.dumps(
        {
            "nccl_version": "2.29.2",
            "timestamp": stamp,
            "communicators_count": 1,
            "communicators": [communicator],
        }
    )


BEHIND = {0: 41, 1: 41, 2: 40, 3: 41}


def test_one_snapshot_with_different_counts_is_a_guess(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, {"ras.json": ras_json("2026-03-04 10:00:00", BEHIND)}))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("stuck_rank", (2,), "low")


def test_two_equal_snapshots_are_a_freeze(tmp_path: Path) -> None:
    report = told(tmp_path, {f"ras{i}.json": ras_json(f"2026-03-04 10:0{i}:00", BEHIND) for i in (0, 5)})
    verdict = judged(report)
    assert (verdict.culprit_ranks, verdict.confidence) == ((2,), "medium")
    assert sum("ras" in e.source.file for e in verdict.evidence if e.source) >= 1


def test_the_same_snapshot_twice_is_one(tmp_path: Path) -> None:
    verdict = judged(
        told(tmp_path, {f"ras{i}.json": ras_json("2026-03-04 10:00:00", BEHIND) for i in (0, 5)})
    )
    assert verdict.confidence == "low"


def test_snapshots_that_move_accuse_nobody(tmp_path: Path) -> None:
    moved = {0: 51, 1: 51, 2: 51, 3: 50}
    report = told(
        tmp_path,
        {"a.json": ras_json("2026-03-04 10:00:00", BEHIND), "b.json": ras_json("2026-03-04 10:05:00", moved)},
    )
    assert report.status == "inconclusive" and judged(report).cause == "unknown"


def test_a_rank_that_ras_declares_dead(tmp_path: Path) -> None:
    verdict = judged(
        told(tmp_path, {"ras.json": ras_json("2026-03-04 10:00:00", {0: 41, 1: 41, 3: 41}, (2,))})
    )
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("crashed_rank", (2,), "medium")


RAS_TEXT = """NCCL version 2.26.2 compiled with CUDA 12.6

Warnings
========

#0-0 (9f21ab34cd56ef78) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation 41
  Rank 3 has launched up to operation 40 -- GPU 3 managed by process 4242 on node 10.0.0.7

"""


@pytest.mark.parametrize(("times", "confidence"), [(1, "low"), (2, "medium")])
def test_the_text_form_of_ras(tmp_path: Path, times: int, confidence: str) -> None:
    verdict = judged(told(tmp_path, {"ras.txt": RAS_TEXT * times}))
    assert (verdict.culprit_ranks, verdict.confidence) == ((3,), confidence)
    assert set(verdict.waiting_ranks) == SIXTEEN - {3}


def test_the_last_completed_calls_of_the_inspector(tmp_path: Path) -> None:
    files: dict[str, str | list[str]] = {}
    for rank in range(4):
        header = {"id": "0xab34", "rank": rank, "n_ranks": 4, "nnodes": 1}
        files[f"n0-pid{100 + rank}.log"] = [
            json.dumps(
                {
                    "header": header,
                    "metadata": {"hostname": "n0", "pid": 100 + rank},
                    "coll_perf": {"coll": "AllReduce", "coll_sn": n},
                }
            )
            for n in range(1, 10 if rank == 2 else 13)
        ]
    verdict = judged(told(tmp_path, files))
    assert (verdict.culprit_ranks, verdict.confidence) == ((2,), "low")


def test_call_lines_do_not_stand_in_beside_dumps(tmp_path: Path) -> None:
    answer: Answer = write_incident(tmp_path, "stopped_rank", version=(2, 24, 3))
    write_all(stuck(16, 3), tmp_path / "dumps")
    (tmp_path / "dumps" / "nccl_trace_rank_5").unlink()
    report = analyze(tmp_path)
    assert answer.culprits == (5,)  # what the lines alone would say
    assert judged(report).culprit_ranks == (3,)
    assert {name for name in report.table["group"].astype(str) if "comm" in name} == set()
