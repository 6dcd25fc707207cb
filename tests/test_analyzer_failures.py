"""What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth.

Each docstring says what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a
verdict against a rank that did nothing wrong.
"""

from __future__ import annotations

import itertools
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest

import hangscope
from hangscope.api import Report
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import VERSIONS, Recorder, job, stuck, world, write_all


def blame(report: Report) -> tuple[str, str | None, tuple[int, ...]]:
    """Return (status, cause, culprits)."""
    verdict = report.verdict
    return report.status, verdict.cause if verdict else None, verdict.culprit_ranks if verdict else ()


def culprits(report: Report) -> tuple[int, ...]:
    assert report.status == "hang", (report.status, report.to_text())
    assert report.verdict is not None
    return report.verdict.culprit_ranks


def said(report: Report) -> str:
    """Return everything that the full text report says, on one line."""
    return " ".join(report.to_text(verbose=True, width=110).split())


def recorder_of(name: str) -> Path:
    return FIXTURES / name / "dumps" / "recorder"


# -- F1, F2: real gloo dumps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks", "op"),
    [
        ("stuck_loader", (3,), "all_reduce"),
        ("rank_conditional_barrier", (0,), "all_reduce"),
        ("mesh_stuck_loader", (6,), "all_gather_into_tensor"),
    ],
)
def test_f1_gloo_dumps_with_one_group_or_several(name: str, ranks: tuple[int, ...], op: str) -> None:
    """KeyError ('0', r): gloo writes one nameless group into `pg_config`, whatever groups its entries name."""
    report = analyze(recorder_of(name))
    assert culprits(report) == ranks
    assert report.verdict is not None and report.verdict.op is not None and report.verdict.seq is not None


def test_f1_gloo_dumps_with_files_missing(tmp_path: Path) -> None:
    """First AssertionError, then KeyError with --allow-incomplete-ranks; a missing victim changes nobody's blame."""
    shutil.copytree(recorder_of("stuck_loader"), tmp_path / "dumps")
    (tmp_path / "dumps" / "comm_lib_trace_rank_1").unlink()
    report = analyze(tmp_path / "dumps", world_size=4)
    assert culprits(report) == (3,)
    assert report.to_dict()["partial"]["missing_ranks"] == "1"


def test_f2_gloo_under_detail_is_not_a_healthy_job() -> None:
    """No output and rc 0 for a job that hung: under DETAIL the call that mismatches never reaches the recorder."""
    with_logs = analyze(FIXTURES / "rank_conditional_detail" / "dumps")
    assert blame(with_logs) == ("hang", "rank_conditional_collective", (0,))
    alone = analyze(recorder_of("rank_conditional_detail"))
    assert alone.status != "no_hang"
    assert {g["name"] for g in alone.to_dict()["groups"]} <= {"", "0"}
    assert all(g["ranks"] for g in alone.to_dict()["groups"])


# -- F3: the order of files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks"), [("rank_conditional_barrier", (0,)), ("uneven_loader_later_epoch", (3,))]
)
def test_f3_the_order_of_files_never_changes_the_blame(name: str, ranks: tuple[int, ...]) -> None:
    """Blames [3,1,2], [0] or [0] for the same four files, as the directory happens to list them."""
    files = sorted(recorder_of(name).iterdir())
    reports = {analyze(order).to_json() for order in itertools.permutations(files)}
    assert len(reports) == 1
    assert culprits(analyze(files)) == ranks


def test_f3_an_uneven_loader_in_any_order(tmp_path: Path) -> None:
    """Blames [1] or [0,2,3] for a rank that left the loop before its peers, depending on the order of files."""
    recorders = job(4)
    for recorder in recorders:
        for _ in range(9):
            recorder.call("broadcast", sizes=[[5]], line=38).call("all_reduce", sizes=[[640]], line=40)
        if recorder.rank == 1:
            recorder.call("barrier", sizes=[], line=77, state="scheduled")
        else:
            recorder.call("broadcast", sizes=[[5]], line=38, state="scheduled")
    folder = write_all(recorders, tmp_path)
    files = sorted(folder.iterdir())
    assert len({analyze(order).to_json() for order in itertools.permutations(files)}) == 1
    assert culprits(analyze(files)) == (1,)


# -- F4 to F7: states ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["scheduled", "started"])
def test_f4_a_network_hang_is_not_silence(tmp_path: Path, state: str) -> None:
    """No output and rc 0, the same as for a healthy job, when all ranks started a call and none completed it."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=20).call("all_gather", outputs=[[8]] * 4, state=state, line=44)
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "network_stall", ())
    verdict = report.verdict
    assert verdict is not None
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_gather", 21, (0, 1, 2, 3))
    assert verdict.confidence != "high"


def mesh(steps: int, *, ring: int, unequal: bool = True) -> list[Recorder]:
    """Return a healthy job of 8 ranks in two tensor-parallel groups, the first of which may make two more calls a step."""
    groups = {
        "0": ("default_pg", range(8)),
        "1": ("mesh_tp", range(4)),
        "2": ("mesh_tp", range(4, 8)),
        **{str(3 + i): ("mesh_dp", (i, i + 4)) for i in range(4)},
    }
    recorders = job(8, groups=groups, ring=ring)
    for recorder in recorders:
        tp, dp = ("1" if recorder.rank < 4 else "2"), str(3 + recorder.rank % 4)
        for _ in range(steps):
            recorder.call("all_reduce", tp, line=30, times=4 + 2 * (unequal and recorder.rank < 4))
            recorder.call("all_reduce", dp, sizes=[[512]], line=40).call("all_reduce", sizes=[[1]], line=44)
    return recorders


def test_f5_rings_that_wrapped_at_different_points_are_healthy(tmp_path: Path) -> None:
    """21 false reports, all on completed calls, because one group's calls pushed others out of the ring."""
    assert analyze(write_all(mesh(60, ring=120), tmp_path)).status == "no_hang"


def test_f5_the_incident_of_wrapped_rings(incidents: Path) -> None:
    """The generated set on which those 21 reports were counted."""
    assert analyze(incidents / "healthy" / "wrapped_rings" / "dumps").status == "no_hang"


def test_f5_a_fault_behind_wrapped_rings_is_found(tmp_path: Path) -> None:
    """Output identical to that of the healthy job when a rank really stopped in it."""
    recorders = mesh(60, ring=120)
    for recorder in recorders:
        if recorder.rank == 6:
            continue
        tp = "1" if recorder.rank < 4 else "2"
        if tp == "2":
            recorder.call("all_reduce", tp, line=30, state="scheduled")
        else:
            recorder.call("all_reduce", tp, line=30, times=6).call(
                "all_reduce",
                str(3 + recorder.rank),
                sizes=[[512]],
                line=40,
                state="scheduled" if recorder.rank == 2 else "completed",
            )
            if recorder.rank != 2:
                recorder.call("all_reduce", sizes=[[1]], line=44, state="scheduled")
    # Ranks 4, 5 and 7 wait for rank 6 in their tensor-parallel group, so their data-parallel peers wait for them.
    for rank in (0, 1, 3):
        recorders[rank].reopen(-2)
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (6,)
    assert report.verdict is not None and report.verdict.explained == len(report.verdict.waiting_ranks) == 7


def test_f6_a_dump_taken_early_is_not_blamed(tmp_path: Path) -> None:
    """Eleven reports against a rank whose dump is 20 entries older than its peers', and none on the rank that is stuck."""
    recorders = stuck(4, culprit=2)
    del recorders[1].entries[-20:]
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert 1 not in report.verdict.culprit_ranks if report.verdict else False


def test_f6_a_short_ring_is_not_blamed(tmp_path: Path) -> None:
    """A rank that kept fewer calls than its peers did not make fewer."""
    recorders = stuck(4, culprit=2)
    recorders[0].ring = 3
    assert culprits(analyze(write_all(recorders, tmp_path))) == (2,)


def test_f7_a_call_that_still_reads_started_does_not_hide_the_stuck_one(tmp_path: Path) -> None:
    """A state mismatch on the call before, then "No errors found" for the one that is stuck."""
    recorders = stuck(4, culprit=2)
    recorders[3].reopen(-2).entries[-2]["state"] = "started"
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert report.verdict is not None and report.verdict.seq == 25


def test_f7_the_device_that_did_not_finish_what_its_peers_did(tmp_path: Path) -> None:
    """Where all made the last call, the rank that alone has not finished the one before is the stalled one."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=10).call(
            "all_reduce", state="started" if recorder.rank == 3 else "completed"
        ).call("all_reduce", state="scheduled")
    assert blame(analyze(write_all(recorders, tmp_path))) == ("hang", "gpu_stall", (3,))


# -- F8 to F11: point-to-point -------------------------------------------------------------------------------------


def test_f8_a_healthy_exchange_in_one_batch(tmp_path: Path) -> None:
    """Two false mismatches: on a peer's own send, and because `nccl:coalesced` is not accepted as a batch's end."""
    recorders = job(2)
    for recorder in recorders:
        for _ in range(6):
            peer = 1 - recorder.rank
            recorder.batch([("send", peer), ("recv", peer)]).call("all_reduce")
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)


def test_f9_a_healthy_send_within_a_larger_group(tmp_path: Path) -> None:
    """ "Not all ranks joining": it expects a send between two ranks on all members of their group."""
    recorders = job(3)
    for _ in range(5):
        recorders[0].send(1)
        recorders[1].recv(0)
        for recorder in recorders:
            recorder.call("all_reduce")
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)


def test_f9_a_send_waits_only_for_its_receiver(tmp_path: Path) -> None:
    """The other members of the group have no part in it, and no blame."""
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=4)
    recorders[0].send(1, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (1,)
    assert (
        report.verdict is not None
        and report.verdict.is_p2p
        and report.verdict.op == "send"
        and report.verdict.waiting_ranks == (0,)
    )


def test_f10_a_send_numbered_like_the_next_collective(tmp_path: Path) -> None:
    """AssertionError "can't get dst of non-p2p op" when p2p_seq_id equals the next collective_seq_id."""
    recorders = job(2)
    recorders[0].send(1).call("all_reduce")
    recorders[1].recv(0).call("all_reduce")
    assert recorders[0].entries[0]["p2p_seq_id"] == recorders[0].entries[1]["collective_seq_id"] == 1
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)
    assert sorted(report.table["op"]) == ["all_reduce", "all_reduce", "recv", "send"]


def pipeline(
    steps: int = 4, microbatches: int = 4, *, skip: tuple[int, int, int] | None = None
) -> list[Recorder]:
    """Return a pipeline of 4 stages. `skip`: (rank, step, microbatch) whose send down the pipeline is left out."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(steps):
            last = skip is not None and step == skip[1]
            for microbatch in range(microbatches):
                # Behind a lost send every later one meets the receive before its own, and the last receive meets none.
                starved = (
                    skip is not None and last and recorder.rank > skip[0] and microbatch == microbatches - 1
                )
                if recorder.rank:
                    recorder.recv(recorder.rank - 1, state="scheduled" if starved else "completed", line=61)
                    if starved:
                        break
                if recorder.rank < 3 and skip != (recorder.rank, step, microbatch):
                    recorder.send(recorder.rank + 1, line=63)
            else:
                recorder.call("all_reduce", sizes=[[1]], line=70, state="scheduled" if last else "completed")
                if last:
                    break
                continue
            break
    return recorders


def test_f11_a_healthy_pipeline(tmp_path: Path) -> None:
    """Eleven false reports on completed sends."""
    report = analyze(write_all(pipeline(), tmp_path))
    assert report.status == "no_hang", said(report)


def test_f11_the_missing_send_of_a_pipeline_is_named(tmp_path: Path) -> None:
    """The send that is missing is never named; here the stage that left it out is, and who waits for it."""
    report = analyze(write_all(pipeline(skip=(1, 3, 2)), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "p2p_mismatch", (1,)), said(report)
    assert (
        verdict is not None
        and verdict.is_p2p
        and verdict.op == "recv"
        and set(verdict.waiting_ranks) == {0, 2, 3}
    )


# -- F12 to F18: files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "op"),
    [
        ("nccl", "all_reduce_sparse"),
        ("gloo", "sparse_all_reduce"),
        ("nccl", "a_call_of_tomorrow"),
        ("newccl", "all_reduce"),
    ],
)
def test_f12_an_unknown_op_or_backend_ends_nothing(tmp_path: Path, backend: str, op: str) -> None:
    """AssertionError and nothing analysed for one name that is not in its list, or an unknown backend prefix."""
    recorders = job(4, backend=backend)
    for recorder in recorders:
        recorder.call(op, times=3).call("all_reduce", line=44)
        if recorder.rank != 1:
            recorder.call(op, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (1,)
    assert report.verdict is not None and report.verdict.op == op


def test_f13_a_missing_dump_says_where_the_others_wait(tmp_path: Path) -> None:
    """AssertionError, or "We cannot decide" eleven times, and never where the others wait."""
    recorders = stuck(4, culprit=2)
    report = analyze(write_all([r for r in recorders if r.rank != 2], tmp_path))
    verdict = report.verdict
    assert culprits(report) == (2,)
    assert verdict is not None
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_reduce", 25, (0, 1, 3))
    assert verdict.waiting_call is not None and any(f.line == 41 for f in verdict.waiting_call.frames)
    assert verdict.confidence != "high"  # that it left no dump is no proof of what it did
    assert "rank 2 left none" in said(report)


def test_f13_a_missing_victim_is_not_blamed(tmp_path: Path) -> None:
    """A rank without a dump is unseen, not absent, as long as a seen one explains the wait."""
    recorders = stuck(4, culprit=2)
    report = analyze(write_all([r for r in recorders if r.rank != 1], tmp_path))
    assert culprits(report) == (2,)


@pytest.mark.parametrize(
    "damage", ["truncated", "empty", "no_entries", "garbage", "none", "entries_of_another_kind"]
)
def test_f14_one_bad_file_ends_nothing(tmp_path: Path, damage: str) -> None:
    """EOFError or KeyError and the whole run lost; a crash leaves such files."""
    folder = write_all(stuck(4, culprit=2), tmp_path)
    victim = folder / "nccl_trace_rank_1"
    data = victim.read_bytes()
    dump = pickle.loads(data)
    contents = {
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "no_entries": pickle.dumps({k: v for k, v in dump.items() if k != "entries"}, protocol=2),
        "garbage": b"\x80\x02" + bytes(range(256)),
        "none": pickle.dumps(None, protocol=2),
        "entries_of_another_kind": pickle.dumps(
            {**dump, "entries": [7, None, {"x": 1}, {"profiling_name": 3}]}, protocol=2
        ),
    }
    victim.write_bytes(contents[damage])
    report = analyze(folder)
    assert culprits(report) == (2,)
    of_file = [i for i in report.to_dict()["inputs"] if i["file"] == "nccl_trace_rank_1"]
    assert len(of_file) == 1
    told = of_file[0]["status"] != "used" or any(w.file == "nccl_trace_rank_1" for w in report.warnings)
    assert told or damage == "no_entries"


def test_f14_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A file that cannot be opened costs its rank and no other, and is named."""
    folder = write_all(stuck(4, culprit=2), tmp_path)
    (folder / "nccl_trace_rank_1").unlink()
    (folder / "nccl_trace_rank_1").symlink_to(tmp_path / "nowhere")
    report = analyze(folder)
    assert culprits(report) == (2,)
    assert any(w.file == "nccl_trace_rank_1" for w in report.warnings)


@pytest.mark.parametrize("version", VERSIONS)
def test_f15_every_version(tmp_path: Path, version: str) -> None:
    """KeyError on v1.5 (`seq_id`) and on dumps without is_p2p or dtypes."""
    report = analyze(write_all(stuck(4, culprit=2), tmp_path, version))
    assert culprits(report) == (2,)
    assert report.verdict is not None and (report.verdict.op, report.verdict.seq) == ("all_reduce", 25)


@pytest.mark.parametrize(
    "versions",
    [("2.10", "1.5", "2.3", "2.0"), ("bare", "bare", "2.10", "2.4"), ("2.9", "2.10", "bare", "2.1")],
)
def test_f15_mixed_versions_in_one_job(tmp_path: Path, versions: tuple[str, ...]) -> None:
    """AssertionError; a job whose nodes run different containers leaves such a folder."""
    for recorder, version in zip(stuck(4, culprit=2), versions, strict=True):
        recorder.write(tmp_path, version=version)
    report = analyze(tmp_path)
    assert culprits(report) == (2,)
    assert report.verdict is not None and report.verdict.seq == 25


def test_f16_json_dumps(tmp_path: Path) -> None:
    """UnpicklingError, though torch itself writes JSON dumps."""
    for recorder in stuck(4, culprit=2):
        recorder.write_json(tmp_path)
    assert culprits(analyze(tmp_path)) == (2,)


def test_f16_json_beside_pickles(tmp_path: Path) -> None:
    """ValueError int('0.json') for a JSON file beside the pickles; as a dump of the same moment it changes nothing."""
    recorders = stuck(4, culprit=2)
    plain = analyze(write_all(recorders, tmp_path))
    for recorder in recorders:
        recorder.write_json(tmp_path)
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    both = analyze(tmp_path)
    assert blame(both) == blame(plain)
    assert [i["status"] for i in both.to_dict()["inputs"] if i["file"] == "settings.json"] == ["ignored"]


@pytest.mark.parametrize(
    "names",
    [
        "nccl_trace_rank_{r}",
        "comm_lib_trace_rank_{r}",
        "_dump_{r}",
        "nccl_trace_rank_container-node07_{r}",
        "rank{r}.json",
        "rank_{r}.pkl",
        "node{n}/nccl_trace_rank_{r}",
        "node-{n}/rank{r}/trace",
        "trace.{r}",
    ],
)
def test_f17_names_folders_and_neighbours(tmp_path: Path, names: str) -> None:
    """ "Unable to automatically determine the common prefix" for host names, sub-folders, any other file that ends in a digit."""
    for recorder in stuck(4, culprit=2):
        recorder.write(tmp_path, names.format(r=recorder.rank, n=recorder.rank // 2 + 10))
    (tmp_path / "core.4242").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    (tmp_path / "events.out.tfevents.1712").write_bytes(bytes(range(200)))
    (tmp_path / "notes-2").write_text("restart after lunch\n")
    report = analyze(tmp_path)
    assert culprits(report) == (2,)
    assert report.to_dict()["world_size"] == 4


class _Payload:
    """Pickles itself as a command to run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_f18_a_hostile_pickle_is_refused_named_and_not_run(tmp_path: Path) -> None:
    """It runs the payload of a pickle and goes on with rc 0."""
    mark = tmp_path / "ran"
    folder = write_all(stuck(4, culprit=2), tmp_path / "dumps")
    for name, protocol in (("nccl_trace_rank_1", 2), ("extra_7.pkl", 4)):
        (folder / name).write_bytes(
            pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [_Payload(mark)]}, protocol=protocol)
        )
    report = hangscope.analyze(folder)
    assert not mark.exists()
    assert culprits(report) == (2,)
    hostile = {w.file: w.message for w in report.warnings if w.code == "hostile"}
    assert set(hostile) == {"nccl_trace_rank_1", "extra_7.pkl"}
    assert all("system" in message for message in hostile.values())


# -- F19 to F22: what it cannot see --------------------------------------------------------------------------------


def test_f19_an_all_to_all_with_wrong_splits_is_not_silence(tmp_path: Path) -> None:
    """No output: all ranks joined with equal totals, only the splits (which no recorder keeps) differ."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=8).call("all_to_all", sizes=[[32, 4]], line=52, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    verdict = report.verdict
    assert report.status == "hang" and verdict is not None
    assert (verdict.op, verdict.seq, verdict.culprit_ranks, verdict.waiting_ranks) == (
        "all_to_all",
        9,
        (),
        (0, 1, 2, 3),
    )
    assert verdict.confidence != "high"
    assert "split" in said(report)


def test_f20_a_group_that_pg_config_does_not_list_yet(tmp_path: Path) -> None:
    """KeyError: NCCL fills `pg_config` at a communicator's first use, so an early dump lacks groups its entries name."""
    groups = {**world(4), "1": ("mesh_dp", (0, 2)), "2": ("mesh_dp", (1, 3))}
    recorders = job(4, groups=groups)
    for recorder in recorders:
        own = "1" if recorder.rank % 2 == 0 else "2"
        recorder.call("all_reduce", times=5).call("all_reduce", own, sizes=[[64]], line=47)
        if recorder.rank != 2:
            recorder.call(
                "all_reduce", own, sizes=[[64]], line=47, state="scheduled" if own == "1" else "completed"
            )
            recorder.call("all_reduce", state="scheduled") if own == "2" else None
    for recorder in recorders:
        recorder.write(tmp_path, config=recorder.rank in (1, 3))
    report = analyze(tmp_path)
    assert culprits(report) == (2,), said(report)


def test_f20_descriptions_that_differ_between_ranks(tmp_path: Path) -> None:
    """AssertionError when one rank calls a group `undefined` and another `mesh_dp`; name and members decide."""
    recorders = stuck(4, culprit=2)
    for entry in recorders[1].entries:
        entry["process_group"] = ("0", "undefined")
    recorders[3].groups = {"0": ("world", range(4))}
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert len(report.to_dict()["groups"]) == 1


def test_f20_one_name_for_several_groups(tmp_path: Path) -> None:
    """Sub-groups of one split share their name; their members tell them apart."""
    recorders = []
    for rank in range(4):
        members = (0, 1) if rank < 2 else (2, 3)
        recorder = Recorder(rank, {**world(4), "1": ("sub_pg", members)})
        recorder.call("all_reduce", times=3).call(
            "all_reduce", "1", sizes=[[3 + (rank > 1)]], times=4 + rank // 2
        )
        if rank != 3:
            recorder.call(
                "all_reduce", "1", sizes=[[3 + (rank > 1)]], state="completed" if rank < 2 else "scheduled"
            )
        if rank < 2:
            recorder.call("all_reduce", state="scheduled")
        recorders.append(recorder)
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (3,), said(report)
    assert sorted(g["ranks"] for g in report.to_dict()["groups"] if g["name"] == "1") == [[0, 1], [2, 3]]


def circle(steps: int) -> list[Recorder]:
    """Return four ranks on a ring of four groups of two, of which each holds the group that its neighbour needs.

    In the `steps` before, every rank entered its lower group first; rank 0 still does.
    """
    groups = {**world(4), **{str(1 + i): ("pair", sorted((i, (i + 1) % 4))) for i in range(4)}}
    recorders = job(4, groups=groups)
    for recorder in recorders:
        pair = sorted((1 + (recorder.rank - 1) % 4, 1 + recorder.rank))
        recorder.call("all_reduce", line=49)
        for _ in range(steps):
            recorder.call("all_reduce", str(pair[0]), line=51).call("all_reduce", str(pair[1]), line=53).call(
                "all_reduce", line=55
            )
        recorder.call(
            "all_reduce", str(1 + recorder.rank), line=51 if recorder.rank == 0 else 53, state="scheduled"
        )
    return recorders


def test_f21_a_circle_over_four_groups_is_named(tmp_path: Path) -> None:
    """Four separate reports, each true, and no circle; without a history all members of the circle are named."""
    report = analyze(write_all(circle(steps=0), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "collective_order_mismatch", (0, 1, 2, 3)), said(report)
    assert verdict is not None and verdict.confidence != "high"  # no stack and no opposite orders show it
    for rank in range(4):
        assert f"rank {rank} is in all_reduce" in said(report)


def test_f21_the_ranks_that_left_the_usual_order_are_the_culprits(tmp_path: Path) -> None:
    """No culprit; with a history, those are named who broke it, and the one who kept it waits."""
    report = analyze(write_all(circle(steps=5), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "collective_order_mismatch", (1, 2, 3)), said(report)
    assert verdict is not None and verdict.waiting_ranks == (0,)


def test_f22_a_skipped_step_is_told_though_it_shows_ten_steps_later(tmp_path: Path) -> None:
    """The right rank and no hint at the step that it skipped: equal calls still met, one step out of phase."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(40):
            if recorder.rank == 1 and step == 29:
                continue
            recorder.call("all_reduce", sizes=[[256]], line=41)
            if step % 5 == 4:
                recorder.call("all_reduce", sizes=[[256]], line=47, function="log_metrics")
    # Rank 1 made one step (and the report of that step) less, so its peers wait for it in their last two calls.
    for recorder in recorders:
        if recorder.rank != 1:
            del recorder.entries[-1]
            recorder.reopen(-1)
    report = analyze(write_all(recorders, tmp_path))
    verdict = report.verdict
    assert culprits(report) == (1,), said(report)
    assert verdict is not None and verdict.cause in (
        "rank_conditional_collective",
        "uneven_loader",
        "gradient_sync_mismatch",
    )
    # 29 steps and 5 reports come before it; whether the step's first or second call is the missing one looks the same.
    assert re.search(r"left out 2 call\S* at seq 3[56]\b", said(report)), said(report)
