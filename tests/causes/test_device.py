"""Devices and the network: everybody made the call."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings

from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import Recorder, world
from tests.small_jobs import ODD_ONES, due, frozen, loop
from tests.text_lines import DEFAULT, c10, judged, short, timeout, told
from tests.verdicts import blame, level


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_a_device_that_does_not_finish_what_its_peers_finished_with_it(job_of: tuple[int, int]) -> None:
    """That the others are through proves that this rank's host had made its calls."""
    size, odd = job_of

    def last(recorder: Recorder, is_odd: bool) -> None:
        for _ in range(2):
            due(recorder, "started" if is_odd else "completed")
        due(recorder)

    assert blame(frozen(loop(size), (odd,), last)) == ("hang", "gpu_stall", (odd,))


def test_three_devices_that_stop_at_once_share_what_failed() -> None:
    def last(recorder: Recorder, is_odd: bool) -> None:
        for _ in range(2):
            due(recorder, "started" if is_odd else "completed")
        due(recorder)

    assert blame(frozen(loop(8), (5, 6), last)) == ("hang", "gpu_stall", (5, 6))
    assert blame(frozen(loop(8), (5, 6, 7), last)) == ("hang", "network_stall", ())


@settings(max_examples=4)
@given(job_of=ODD_ONES)
def test_a_call_that_all_joined_and_none_finishes_is_the_networks_and_names_nobody(
    job_of: tuple[int, int],
) -> None:
    report = frozen(loop(job_of[0]), (), lambda r, is_odd: due(r))
    assert blame(report) == ("hang", "network_stall", ())
    assert level(report) == "low"


def test_an_adapters_own_fault_makes_that_sure() -> None:
    warning = (
        "gpu07:{pid}:77 [0] transport/net_ib.cc:97 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"
    )
    report = frozen(
        loop(4),
        (),
        lambda r, is_odd: due(r),
        rank2=["[rank2]: step 12", f"[rank2]: {warning.format(pid=31)}"],
    )
    assert blame(report) == ("hang", "network_stall", (2,))
    assert level(report) != "low"


def test_a_rank_whose_log_tells_of_a_broken_device_is_named() -> None:
    error = "RuntimeError: CUDA error: unspecified launch failure"
    report = frozen(loop(4), (), lambda r, is_odd: due(r), rank3=[f"[rank3]: {error}"])
    assert blame(report)[1:] == ("gpu_stall", (3,))


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_a_device_that_has_not_begun_what_the_others_are_in(job_of: tuple[int, int]) -> None:
    """The recorder notes when devices begin: this one still works at what was enqueued before the call."""
    size, odd = job_of
    report = frozen(loop(size), (odd,), lambda r, is_odd: due(r, "scheduled" if is_odd else "started"))
    assert blame(report) == ("hang", "gpu_stall", (odd,)) and level(report) == "medium"


def test_where_no_device_or_only_half_have_begun_nobody_is_named() -> None:
    for odd in ((0, 1), (0, 1, 2, 3)):
        report = frozen(loop(4), odd, lambda r, is_odd: due(r, "scheduled" if is_odd else "started"))
        assert blame(report)[1:] == ("network_stall", ())


def test_a_device_that_has_not_begun_counts_where_other_nodes_left_nothing(tmp_path: Path) -> None:
    """Half of the job was collected: all of it is in the call, and one device is not."""
    for rank in range(4):
        recorder = Recorder(rank, world(8)).call("all_reduce", times=9)
        recorder.call("all_reduce", state="scheduled" if rank == 2 else "started").write(tmp_path)
    assert short(analyze(tmp_path)) == ("gpu_stall", (2,), "low")


def test_sends_that_both_sides_posted_and_that_do_not_complete_are_the_networks(tmp_path: Path) -> None:
    for rank in range(4):
        recorder = Recorder(rank, world(4)).call("all_reduce", times=3)
        peer = (rank + 2) % 4
        for number in range(5):
            state = "started" if number == 4 else "completed"
            (recorder.send if rank < 2 else recorder.recv)(peer, state=state)
        recorder.write(tmp_path)
    report = analyze(tmp_path)
    assert short(report)[:2] == ("network_stall", ())
    expected = "Sends from ranks 0 and 1 to ranks 2 and 3, posted on both sides, do not complete; "
    expected += "rank 0 is blocked in send seq 5 on group 0 (default_pg), rank 2 is blocked in recv seq 5, "
    assert judged(report).summary.startswith(expected)


def _failed(host: str, rank: int, own: int, peer: int) -> list[str]:
    gids = f"localGid ::ffff:10.0.0.{own} remoteGids::ffff:10.0.0.{peer} hca mlx5_0"
    what = f"NET/IB: Got completion from peer 10.0.0.{peer}<3970{rank}> with status=12 opcode=0 len=0 vendor err 129 (Send) {gids}"
    return [
        f"[rank{rank}]: step 12",
        f"[rank{rank}]: {host}:{900 + rank}:{700 + rank} [0] transport/net_ib.cc:2148 NCCL WARN {what}",
    ]


def test_who_saw_its_transfer_fail_was_in_the_call_that_its_error_names(tmp_path: Path) -> None:
    """It ends at once, long before the others' watchdogs: it is no rank that left nothing."""
    work = "Collective WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000)"
    seen = f"[Rank 1] {work} raised the following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.27.3"
    lines = [
        "node1:77:78 [0] NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
        "[rank1]: node0:66:67 [1] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<48102> with status=12 opcode=129 len=8 vendor err 129 (Send)",
        c10(1, seen, 7),
        *(timeout(rank, group=DEFAULT) for rank in (0, 2, 3)),
    ]
    cause, ranks, _ = short(told(tmp_path, lines, world_size=4))
    assert (cause, ranks) == ("network_stall", ())
    silent = told(tmp_path / "silent", [*lines[:1], *lines[3:]], world_size=4)
    assert short(silent) == ("crashed_rank", (1,), "low")


INIT = "{host}:5{rank}:6{rank} [0] NCCL INFO ncclCommInitRank comm 0x55c0a0{rank} rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {bus} commId 0x3be118a2df90c1aa - Init COMPLETE"
FELL = "[Fri Oct 16 03:22:03 2026] NVRM: Xid (PCI:0000:87:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_the_bus_of_a_device_names_its_rank_where_ranks_of_one_host_tell_theirs(tmp_path: Path) -> None:
    buses = ("7000", "b000", "87000", "c8000")
    one = [INIT.format(host="gpu01", rank=rank, bus=bus) for rank, bus in enumerate(buses)]
    assert short(told(tmp_path / "one", [*one, FELL, timeout(0)]))[:2] == ("gpu_stall", (2,))
    hosts = ("gpu01", "gpu01", "gpu02", "gpu02")
    two = [INIT.format(host=hosts[rank], rank=rank, bus=bus) for rank, bus in enumerate(buses)]
    assert short(told(tmp_path / "two", [*two, FELL, timeout(0)]))[1] == ()
    words = [
        f"backend gloo, rank {rank} device cuda:{rank} bus {bus}" for rank, bus in enumerate((7, 83, 87))
    ]
    assert short(told(tmp_path / "words", [*words, FELL, timeout(0)]))[:2] == ("gpu_stall", (2,))


def test_a_rank_that_alone_gets_no_memory_for_the_buffers_of_nccl_has_failed(tmp_path: Path) -> None:
    """It began its communicator and never completed it, which a network between the two would explain as well."""
    head = "gpu01:10{0}:12{0} [{0}] NCCL INFO comm 0x5{0} rank {0} nranks 2 cudaDev {0} nvmlDev {0} busId {0}1000 commId 0xabc - Init"
    (tmp_path / "rank0.log").write_text(
        "".join(f"{head.format(0)} {step}\n" for step in ("START", "COMPLETE"))
    )
    warned = [
        f"gpu01:101:121 [1] include/alloc.h:11{n} NCCL WARN {what}"
        for n, what in enumerate(("Cuda failure 2 'out of memory'", "Failed to CUDA calloc 33554432 bytes"))
    ]
    (tmp_path / "rank1.log").write_text("\n".join([f"{head.format(1)} START", *warned]) + "\n")
    assert short(analyze(tmp_path)) == ("crashed_rank", (1,), "high")


def test_a_connection_that_the_peer_closed_is_the_end_of_a_process_that_no_line_names(
    tmp_path: Path,
) -> None:
    line = "node3:22140:22391 [2] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer node7<44321>"
    verdict = judged(told(tmp_path, [line]))
    assert (verdict.cause, verdict.culprit_ranks, verdict.title) == (
        "crashed_rank",
        (),
        "A process on node7 ended: NCCL reports that the peer closed the connection",
    )
    assert [other.cause for other in verdict.alternatives] == ["network_stall"]


def test_a_gpu_that_its_driver_resets_is_of_the_rank_on_that_bus(tmp_path: Path) -> None:
    reset = "[81922.118342] amdgpu 0000:{}:00.0: amdgpu: GPU reset begin!"
    buses = {8: "5000", 9: "25000", 13: "c5000", 14: "e5000"}
    lines = [
        INIT.format(host="gpu01", rank=rank, bus=bus).replace("nranks 4", "nranks 16")
        for rank, bus in buses.items()
    ]
    report = told(tmp_path / "known", [*lines, reset.format("c5"), timeout(9)])
    assert short(report)[:2] == ("gpu_stall", (13,))
    assert judged(report).title == "The GPU of rank 13 failed: its driver reset GPU 0000:c5:00.0"
    assert short(told(tmp_path / "other", [*lines, reset.format("a5"), timeout(9)]))[1] == ()


def test_a_device_error_after_a_wait_that_was_given_up_names_who_was_awaited(tmp_path: Path) -> None:
    """A kernel that waits for a flag of its peer traps when it gives up."""
    waited = [
        f"dispatch: ---Rank {rank} timed out waiting for completion flag from rank 3" for rank in (0, 1, 2)
    ]
    error = "[07/29/2026-14:27:10] [TRT-LLM] [RANK 0] [E] Error in worker: CUDA error: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"
    working = "[07/29/2026-14:27:14] [TRT-LLM] [RANK 3] [I] [AutoTuner] Profiling tactic 161/164"
    verdict = judged(told(tmp_path, [*waited, error, working]))
    assert verdict.culprit_ranks == (3,) and verdict.cause == "stuck_rank"


def test_an_error_of_all_processes_of_a_host_is_that_of_no_device(tmp_path: Path) -> None:
    warned = [
        f"node1:{1200 + n}:{1240 + n} [{n}] init.cc:1236 NCCL WARN Cuda failure 'system not yet initialized'"
        for n in range(4)
    ]
    raised = [f"[rank{rank}]: Cuda failure 'system not yet initialized'" for rank in range(4)]
    verdict = judged(told(tmp_path, [*warned, *raised]))
    assert verdict.cause == "init_hang" and verdict.culprit_ranks == ()


def test_a_fault_that_adapters_of_both_hosts_report_names_no_rank(tmp_path: Path) -> None:
    failed = "{host}:{pid}:{pid} [{device}] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer {peer}<51022> with error 4, opcode 0, len 0, vendor err 81 (Send) localGid ::1 remoteGid ::2"
    lines = [
        failed.format(host=host, pid=pid, device=device, peer=peer)
        for host, pid, device, peer in (
            ("n1", 41, 0, "10.0.0.2"),
            ("n1", 44, 3, "10.0.0.2"),
            ("n2", 51, 1, "10.0.0.1"),
        )
    ]
    lines.append(
        "n1:44:44 [3] NCCL INFO comm 0x55d0c1127ab0 rank 3 nranks 16 cudaDev 3 busId ba000 - Abort COMPLETE"
    )
    assert short(told(tmp_path, lines))[:2] == ("network_stall", ())


def test_a_device_error_of_a_process_that_only_the_launcher_names_is_its_ranks(tmp_path: Path) -> None:
    """Its id in the launcher's table names the rank of NCCL's lines; no rule fails where none is known."""
    warned = (
        "box:31704:33121 [2] include/alloc.h:125 NCCL WARN Cuda failure 710 'device-side assert triggered'"
    )
    table = [
        "train.py FAILED",
        "Failures:",
        "[1]:",
        "  time      : 2024-11-08_14:20:33",
        "  host      : box",
        "  rank      : 2 (local_rank: 2)",
        "  exitcode  : -6 (pid: 31704)",
        "  error_file: <N/A>",
    ]
    alone = told(tmp_path, [warned])
    assert "rule_failed" not in {note.code for note in alone.warnings}
    verdict = judged(told(tmp_path, [warned, *table]))
    assert verdict.culprit_ranks == (2,)


def _two_groups(folder: Path) -> Report:
    """Rank 2's device has not finished a reduction of its group, which all others have; ranks 0 and 1 wait for it in a later call, rank 3 in none."""
    groups = {
        "0": ("default_pg", range(6)),
        "1": ("dp", range(6)),
        "2": ("tp", (0, 1, 2)),
        "3": ("tp", (3, 4, 5)),
    }
    for rank in range(6):
        recorder = Recorder(rank, groups).call("all_reduce", "1", times=4, line=25)
        recorder.call("all_reduce", "1", state="started" if rank == 2 else "completed", line=25)
        state = ("started", "started", "scheduled", *("completed",) * 3)[rank]
        recorder.call("all_gather", "2" if rank < 3 else "3", state=state, line=30)
        recorder.call("all_reduce", state="scheduled" if rank < 3 else "started", line=61).write(folder)
    return analyze(folder)


def test_a_lagging_device_is_said_to_miss_the_collective_that_the_others_have_completed(
    tmp_path: Path,
) -> None:
    report = _two_groups(tmp_path)
    verdict = judged(report)
    assert short(report)[:2] == ("gpu_stall", (2,))
    has = "has not completed all_reduce seq 5 on group 1 (dp), which 5 other members have"
    assert verdict.summary.startswith(
        f"The GPU of rank 2 {has}; ranks 3-5 are blocked in all_reduce seq 1 on group 0"
    )
    evidence = {item.text: item.source.file for item in verdict.evidence if item.source is not None}
    assert evidence[f"the GPU of rank 2 {has}"] == "nccl_trace_rank_2"
    stall = [a for a in verdict.alternatives if a.cause == "network_stall"]
    assert all("does not complete on rank 2" in a.why for a in stall)


def test_who_is_in_a_later_call_is_not_said_to_be_in_the_ones_it_has_queued(tmp_path: Path) -> None:
    page = _two_groups(tmp_path).document.page
    assert page is not None and page.waitfor is not None
    assert page.waitfor.text[:2] == (
        "Ranks 3-5 are in all_reduce seq 1 on group 0 (default_pg), which waits for rank 2 and is queued after all_gather seq 1 on group 2 (tp).",
        "Ranks 0 and 1 are in all_gather seq 1 on group 2 (tp), which waits for rank 2.",
    )
    assert page.story is not None and page.story.text.startswith("On group 1 (dp)")
