"""What is said of a job that stopped where nothing tells why: the stop, who waited, and nobody accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.api import Report
from hangscope.model.conclusion import Verdict
from tests.conftest import analyze

WATCHDOG = (
    "[rank{rank}]:[E1014 08:41:55.070415220 ProcessGroupNCCL.cpp:616] [Rank {local}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={out}, Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
)
STATUS = (
    "[rank{rank}]:[E1014 08:41:55.080415220 ProcessGroupNCCL.cpp:2241] [PG ID 2 PG GUID 9(tp) Rank {local}]  failure detected by "
    "watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}"
)


def told(folder: Path, *lines: str) -> Report:
    """Return the report on a paste of these lines."""
    path = folder / "paste.txt"
    path.write_text("\n".join(lines) + "\n")
    return analyze(str(path))


def verdict_on(folder: Path, *lines: str) -> Verdict:
    """Return the verdict on a paste of these lines, which must be a hang."""
    report = told(folder, *lines)
    assert report.status == "hang"
    assert report.verdict is not None
    return report.verdict


def timeout(rank: int, seq: int = 913, op: str = "ALLREDUCE", n: int = 1024, out: int | None = None) -> str:
    """Return a watchdog's line."""
    return WATCHDOG.format(rank=rank, local=rank, seq=seq, op=op, n=n, out=n if out is None else out)


def test_one_watchdog_line_is_a_stop_and_accuses_nobody(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path, timeout(17), STATUS.format(rank=17, local=1, seq=913, enqueued=917, completed=912)
    )
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_reduce", 913, (17,))
    assert verdict.group is not None and (verdict.group.name, verdict.group.desc) == ("9", "tp")
    assert "08:31:55 to 08:41:55" in verdict.summary
    assert "1024 elements" in verdict.summary


def test_only_ranks_that_were_seen_are_counted(tmp_path: Path) -> None:
    report = told(tmp_path, timeout(3), timeout(40)).to_dict()["verdict"]
    assert report["waiting_ranks"] == [3, 40]
    assert report["explains"]["of"] == 2
    assert report["culprit_ranks"] == []


def test_the_only_rank_missing_among_all_others_is_suspected_and_not_surely(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, *(timeout(rank) for rank in (0, 1, 3)))
    assert verdict.culprit_ranks == (2,)
    assert verdict.confidence in ("low", "medium")


def test_two_missing_ranks_of_a_paste_are_not_accused(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, *(timeout(rank) for rank in (0, 1, 4))).culprit_ranks == ()


@pytest.mark.parametrize(
    ("line", "cause", "category"),
    [
        (
            "kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', GPU has fallen off the bus.",
            "gpu_stall",
            "hardware",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
            "crashed_rank",
            "code",
        ),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            "crashed_rank",
            "environment",
        ),
        (
            "n1:1:2 [0] transport/net_ib.cc:97 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
            "network_stall",
            "network",
        ),
        (
            "E0211 08:14:37.004000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 5 (pid: 156) of binary: python",
            "crashed_rank",
            "code",
        ),
    ],
)
def test_a_fault_without_a_rank_is_the_cause_and_names_nobody(
    tmp_path: Path, line: str, cause: str, category: str
) -> None:
    verdict = verdict_on(tmp_path, line)
    assert (verdict.cause, verdict.category, verdict.culprit_ranks) == (cause, category, ())


@pytest.mark.parametrize(
    "lines",
    [
        ("n1:1:2 [1] NCCL INFO comm 0x55aa rank 1 nranks 8 cudaDev 1 busId 2b000 - Abort COMPLETE",),
        (
            "n1:1:2 [1] NCCL INFO socketPollConnect: connect to 192.0.2.4<4> returned Connection refused, retrying (1/34) after sleep for 100 msec",
        ),
        ("[rank0]: Traceback (most recent call last):", '[rank0]:   File "a.py", line 3, in f', '[rank0]:   File "a.py", line 9, in g', "[rank0]:     raised ."),
        ("n1:1:2 [1] NCCL INFO comm 0x55aa rank 1 nranks 8 cudaDev 1 busId 2b000 commId 0x77 - Init START",),
    ],
)  # fmt: skip
def test_what_proves_no_stop_is_none(tmp_path: Path, lines: tuple[str, ...]) -> None:
    report = told(tmp_path, *lines)
    assert report.status == "inconclusive"
    assert report.verdict is None or not report.verdict.culprit_ranks


def test_a_gather_that_was_never_filled_is_no_other_model(tmp_path: Path) -> None:
    line = "[rank{0}]: RuntimeError: DDP expects same model across all ranks, but Rank {0} has 148 params, while rank 3 has inconsistent 0 params."
    verdict = verdict_on(tmp_path, line.format(0), line.format(1))
    assert verdict.cause != "model_mismatch"
    assert verdict.culprit_ranks in ((), (3,))


def test_the_end_of_a_process_that_waited_until_its_timeout_is_no_cause(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path,
        timeout(0),
        "E0211 08:42:37.004000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 156) of binary: python",
    )
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())


def test_a_line_of_a_rank_in_a_paste_that_lacks_ranks_does_not_accuse_it(tmp_path: Path) -> None:
    """Two of eight ranks spoke: that one of them said nothing of the timeout is no silence."""
    init = "gpu7:{pid}:9099 [{r}] NCCL INFO comm 0x1a{r} rank {r} nranks 8 cudaDev {r} nvmlDev {r} busId {r}b000 commId 0x8f01 - Init COMPLETE"
    lines = [*(init.format(pid=9000 + r, r=r) for r in (0, 1)), timeout(0)]
    (tmp_path / "paste.txt").write_text("\n".join(lines) + "\n")
    report = analyze(tmp_path)
    assert report.verdict is not None
    assert (report.status, report.verdict.culprit_ranks) == ("hang", ())


def test_one_ranks_broadcast_does_not_show_that_all_are_in_it(tmp_path: Path) -> None:
    call = "CollectiveFingerPrint(SequenceNumber={n}, OpType=BROADCAST, TensorShape=[16], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"
    lines = [
        f"[rank2]:[I1102 19:05:5{n}.300711023 ProcessGroupWrapper.cpp:710] [Rank 2] Running collective: {call.format(n=30 + n)}"
        for n in range(3)
    ]
    (tmp_path / "paste.txt").write_text("\n".join(lines) + "\n")
    verdict = analyze(tmp_path).verdict
    assert verdict is None or "every rank" not in verdict.summary


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("[rank4]:[E1014 08:41:55.070415220 ProcessGroupNCCL.cpp:698] [Rank 4] To avoid data inconsistency, we are taking the entire process down.", (4,)),
        ("node1:77:78 [2] proxy.cc:1519 NCCL WARN [Proxy Service 2] Failed to execute operation Connect from rank 2, retcode 3", ()),
        ("[rank9]: EI0006: [PID: 52] Getting socket times out. Reason: Remote Rank did not send the data in time.", (9,)),
    ],
)  # fmt: skip
def test_what_no_process_survives_is_a_stop_by_itself(
    tmp_path: Path, line: str, ranks: tuple[int, ...]
) -> None:
    verdict = verdict_on(tmp_path, line)
    assert (verdict.cause, verdict.culprit_ranks, verdict.waiting_ranks) == ("unknown", (), ranks)


def test_a_proxy_that_fails_while_it_closes_is_no_stop(tmp_path: Path) -> None:
    line = "node1:77:78 [2] proxy.cc:1519 NCCL WARN [Proxy Service 2] Failed to execute operation Close from rank 2, retcode 3"
    assert told(tmp_path, line).status == "inconclusive"


def test_torchs_own_analyzer_tells_who_waited_where_it_misses_a_crowd(tmp_path: Path) -> None:
    lines = [
        "Not all ranks joining collective, sequence number: 12",
        "internal record id: 11",
        "group info: 0:default_pg",
        "collective: nccl:all_reduce",
        "missing ranks: {2, 3, 4, 5}",
        "expected ranks: {0, 1, 2, 3, 4, 5}",
        "collective state: scheduled",
    ]
    verdict = verdict_on(tmp_path, *lines)
    assert (verdict.cause, verdict.culprit_ranks, verdict.waiting_ranks) == ("unknown", (), (0, 1))
    assert (verdict.op, verdict.seq) == ("all_reduce", 12)


UNUSED = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that ...",
    "Parameters which did not receive grad for rank {rank}: head.bias, head.weight",
    "Parameter indices which did not receive grad for rank {rank}: 4 5 ",
)


def test_ddps_word_on_gradients_of_one_rank_alone_names_nobody(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, *(line.format(rank=3) for line in UNUSED))
    assert (verdict.cause, verdict.culprit_ranks) == ("gradient_sync_mismatch", ())
    assert "head.bias" in verdict.summary and "rank 3" in verdict.summary
    alike = verdict_on(tmp_path, *(f"[rank{r}]: {line.format(rank=r)}" for r in range(4) for line in UNUSED))
    assert (alike.cause, alike.culprit_ranks) == ("gradient_sync_mismatch", ())


@pytest.mark.parametrize(
    "kill",
    [
        "[2026-01-14 05:02:11,440] [INFO] [launch.py:315:sigkill_handler] Killing subprocess {pid}",
        "W0114 05:02:11.440000 4200 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {pid} closing signal SIGTERM",
    ],
)
def test_a_launcher_that_ends_all_after_a_timeout_does_not_show_the_cause(tmp_path: Path, kill: str) -> None:
    frozen = verdict_on(tmp_path, timeout(1), *(kill.format(pid=pid) for pid in (4242, 4243)))
    assert (frozen.cause, frozen.culprit_ranks) == ("unknown", ())


def test_an_agent_passes_on_the_signal_that_ended_it(tmp_path: Path) -> None:
    line = "W0114 05:02:11.440000 4200 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {pid} closing signal SIGHUP"
    verdict = verdict_on(tmp_path, *(line.format(pid=pid) for pid in (4242, 4243)))
    assert (verdict.cause, verdict.culprit_ranks, verdict.category) == ("crashed_rank", (), "external")


def test_an_old_stores_timeout_is_a_beginning(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, "RuntimeError: connect() timed out. Original timeout was 60000 ms.")
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", ())


@pytest.mark.parametrize(
    ("said", "cause", "confidence"),
    [
        ("Cuda failure 2 'out of memory'", "crashed_rank", "low"),
        ("Error while creating shared memory segment /dev/shm/nccl-x1 (size 9637888)", "crashed_rank", "low"),
        ("Mismatched NCCL version detected : rank 0 version 22604 rank 9 version 22501", "init_hang", "medium"),
        ("Bootstrap : no socket interface found", "init_hang", "medium"),
        ("Message truncated : received 64 bytes instead of 8", "init_hang", "low"),
    ],
)  # fmt: skip
def test_nccls_own_faults_are_causes_without_a_name(
    tmp_path: Path, said: str, cause: str, confidence: str
) -> None:
    verdict = verdict_on(tmp_path, f"node1:77:78 [2] a/b.cc:9 NCCL WARN {said}")
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == (cause, (), confidence)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("std::runtime_error", "[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=74"),
        ("gloo::IoException", "[/pytorch/gloo/transport/tcp/pair.cc:589] Read error [192.0.2.3]:3977: Connection reset by peer"),
        ("c10::DistBackendError", "NCCL error: remote process exited or there was a network error"),
    ],
)  # fmt: skip
def test_an_abort_over_a_peer_is_no_crash_of_its_own(tmp_path: Path, kind: str, what: str) -> None:
    lines = [f"terminate called after throwing an instance of '{kind}'", f"  what():  {what}"]
    assert verdict_on(tmp_path, timeout(7), *lines).cause == "unknown"
    own = [lines[0], "  what():  basic_string::_M_create"]
    if kind == "std::runtime_error":
        assert verdict_on(tmp_path, *own).cause == "crashed_rank"


def test_addresses_of_two_families_are_a_beginning(tmp_path: Path) -> None:
    said = "[rank{rank}]: RuntimeError: [enforce fail at gloo/transport/tcp/address.cc:58] ss1.ss_family == ss2.ss_family. 2 vs 10"
    verdict = verdict_on(tmp_path, *(said.format(rank=rank) for rank in (0, 1)))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", ())


def test_a_path_is_told_from_its_ends(tmp_path: Path) -> None:
    raised = "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error, NCCL version 2.21.5"
    last = "[rank0]: Last error: socketStartConnect: Connect to 192.0.2.4<40551> failed : Software caused connection abort"
    verdict = verdict_on(tmp_path, raised, last)
    assert (verdict.cause, verdict.culprit_ranks) == ("network_stall", ())  # of one end alone nobody is named
    assert "towards 192.0.2.4" in verdict.summary and "of 192.0.2.4" not in verdict.summary
    none = "node1:77:78 [2] transport.cc:9 NCCL WARN No transport found for rank 2[1b000] -> rank 6[1c000]"
    assert verdict_on(tmp_path, none).culprit_ranks == (2, 6)


def test_what_the_interpreter_died_of_is_told(tmp_path: Path) -> None:
    assert "Segmentation fault" in verdict_on(tmp_path, "Fatal Python error: Segmentation fault").summary


@pytest.mark.parametrize(
    "said",
    [
        "NPU out of memory. NPUWorkspaceAllocator tried to allocate 1.66 GiB(NPU 1; 60.96 GiB total capacity)",
        "NPU out of memory. Tried to allocate 2.00 GiB (NPU 1; 60.96 GiB total capacity)",
        "MUSA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_memory_of_other_devices(tmp_path: Path, said: str) -> None:
    verdict = verdict_on(tmp_path, f"[rank1]: RuntimeError: {said}")
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (1,))
    assert "ran out of GPU memory" in verdict.summary


def test_an_aborted_communicator_of_old_builds_is_a_stop(tmp_path: Path) -> None:
    line = "RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: NCCL error: unhandled system error"
    verdict = verdict_on(tmp_path, line)
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())


def test_ends_in_one_second_are_told_with_their_ranks(tmp_path: Path) -> None:
    lines = ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "Failures:"]
    for number, rank in ((1, 2), (2, 3), (0, 1)):
        lines += ["Root Cause (first observed failure):"] * (number == 0) + [
            f"[{number}]:",
            "  time      : 2026-01-14_05:02:11",
            "  host      : gpu07",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : 1 (pid: {900 + rank})",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]
    verdict = verdict_on(tmp_path, *lines)
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", ())
    assert (
        verdict.summary
        == "Ranks 1-3 (host gpu07) ended with exit code 1; which of them was first is not known."
    )


def test_a_local_rank_is_told_where_no_global_one_is(tmp_path: Path) -> None:
    line = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 905) of binary: /opt/venv/bin/python"
    verdict = verdict_on(tmp_path, line)
    assert verdict.culprit_ranks == ()
    assert verdict.summary.startswith("Local rank 4 ")


@pytest.mark.parametrize("first", [True, False])
def test_two_ranks_on_one_gpu_are_read_without_the_mark_before_it(tmp_path: Path, first: bool) -> None:
    said = "Duplicate GPU detected : rank 9 and rank 1 both on CUDA device 1b000"
    raised = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, invalid usage, NCCL version 2.21.5"
    verdict = verdict_on(tmp_path, *([said, " Last error:", raised] if first else [raised, said]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (1, 9))
    assert "anks 1 and 9 use the same GPU" in verdict.summary


def test_ctrl_c_while_all_others_wait_for_one_rank_is_taken_for_a_freeze_and_remains_an_alternative(
    tmp_path: Path,
) -> None:
    def pressed(rank: int, file: str, name: str) -> list[str]:
        head, tail = "Traceback (most recent call last):", "KeyboardInterrupt"
        lines = [head, '  File "/u/run.py", line 38, in main', f'  File "{file}", line 7, in {name}', tail]
        return [f"{rank}: {line}" for line in lines]

    torch = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    own = [
        pressed(r, "/u/remote.py" if r == 2 else torch, "fetch" if r == 2 else "all_reduce") for r in range(4)
    ]
    (tmp_path / "job.log").write_text("\n".join(line for lines in own for line in lines) + "\n")
    report = analyze(tmp_path)
    assert report.verdict is not None
    assert (report.status, report.verdict.cause) == ("hang", "stuck_rank")
    # Three were in a call when the key was pressed, and one outside of all: in a job that moves it may be so for a moment.
    assert (report.verdict.culprit_ranks, report.verdict.confidence) == ((2,), "low")
    assert "crashed_rank" in {other.cause for other in report.verdict.alternatives}


def test_processes_that_were_all_aborted_are_a_stop_of_which_nobody_tells_the_cause(tmp_path: Path) -> None:
    lines = ["train.py FAILED", "Failures:"]
    for rank in range(3):
        lines += [
            f"[{rank}]:", f"  time      : 2026-03-12_07:11:0{rank}", "  host      : node4", f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : -6 (pid: {500 + rank})", "  error_file: <N/A>", f"  traceback : Signal 6 (SIGABRT) received by PID {500 + rank}",
        ]  # fmt: skip
    verdict = verdict_on(tmp_path, *lines)
    assert (verdict.cause, verdict.culprit_ranks) == ("unknown", ())
    assert "aborted" in verdict.summary


def test_a_text_in_which_several_ranks_speak_is_of_a_job(tmp_path: Path) -> None:
    report = told(tmp_path, "Rank 0: val acc 0.88", "Rank 1: val acc 0.87", "Which one is right?")
    assert report.status == "inconclusive"
    assert told(tmp_path, "Which rank is right, rank 0 or rank 1?").status == "inconclusive"
