"""Starts that never complete: who does not come to a store or a rendezvous."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.ingest.files.run_evidence import ELSEWHERE
from hangscope.live.watch.reporting import write_evidence
from tests.conftest import analyze
from tests.dump_writer import Recorder, world
from tests.text_lines import CLOSED, judged, raised, short, told

CLIENTS = "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. {n}/{of} clients joined."
REFUSED = "[E1120 15:13:24.220687360 socket.cpp:1028] [c10d] The client socket has timed out after 25000ms while trying to connect to (10.0.0.7, 29511)."
KEY = "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: /default_pg/0//cpu//0/0"
GONE = '[rank{0}]:[W1120 15:13:25.111222333 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe'


BIND = "[W1120 15:13:24.464687360 socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29511 (errno: 98 - Address already in use)."


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (f"RuntimeError: The server socket has failed to listen on any local network address. {BIND[54:]}", "init_hang"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "init_hang"),
        ("OSError: [Errno 98] Address already in use", "crashed_rank"),
    ],
)  # fmt: skip
def test_who_cannot_listen_because_its_port_is_taken_did_not_crash(
    tmp_path: Path, error: str, cause: str
) -> None:
    """A server of the program's own is another matter."""
    logs: dict[str, str | list[str]] = {
        "rank0.log": [*([] if cause == "crashed_rank" else [BIND]), *(line[9:] for line in raised(0, error))],
        "rank1.log": [line[9:] for line in raised(1, "RuntimeError: Connection reset by peer")],
    }
    assert short(told(tmp_path, logs))[:2] == (cause, (0,))


@pytest.mark.parametrize("gone", range(4))
def test_the_one_that_did_not_join_is_the_one_without_a_log(tmp_path: Path, gone: int) -> None:
    """Rank 0 holds the store, so that without it nobody could count."""
    logs = {f"rank{r}.log": [f"[rank{r}]: {CLIENTS.format(n=3, of=4)}"] for r in range(4) if r != gone}
    cause, ranks, _ = short(told(tmp_path, logs, world_size=4))
    assert (cause, ranks) == ("init_hang", (gone,))


def test_who_lacks_is_not_told_where_more_are_silent_than_are_missing(tmp_path: Path) -> None:
    logs = {f"rank{r}.log": [f"[rank{r}]: {CLIENTS.format(n=7, of=8)}"] for r in range(4)}
    cause, ranks, _ = short(told(tmp_path, logs, world_size=8))
    assert (cause, ranks) == ("init_hang", ())


@pytest.mark.parametrize("kind", ["torch.distributed.DistNetworkError", "RuntimeError"])
def test_the_error_that_a_taken_port_raises_is_no_death_of_its_own(tmp_path: Path, kind: str) -> None:
    taken = "The server socket has failed to listen on any local network address. port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    closed = f"{kind}: failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
    raised = ["Traceback (most recent call last):", '  File "train.py", line 12, in <module>']
    logs = {
        f"rank{r}.log": [f"[rank{r}]: {line}" for line in (*raised, f"{kind}: {taken}" if r == 0 else closed)]
        for r in range(4)
    }
    assert short(told(tmp_path, logs, world_size=4))[:2] == ("init_hang", (0,))


@pytest.mark.parametrize("counted", [True, False])
def test_who_finds_no_store_where_others_wait_at_theirs_went_to_another_one(
    tmp_path: Path, counted: bool
) -> None:
    lines = [REFUSED, KEY, CLIENTS.format(n=3, of=4) if counted else KEY, KEY]
    logs: dict[str, str | list[str]] = {
        f"rank{r}.log": [line] for r, line in zip((2, 1, 0, 3), lines, strict=True)
    }
    report = told(tmp_path, logs, world_size=4)
    assert short(report)[:2] == ("init_hang", (2,))
    assert "10.0.0.7:29511" in judged(report).summary


def test_where_more_found_no_store_than_are_missing_none_of_them_is_named(tmp_path: Path) -> None:
    lines = [CLIENTS.format(n=3, of=4), REFUSED, KEY, REFUSED]
    logs: dict[str, str | list[str]] = {f"rank{r}.log": [line] for r, line in enumerate(lines)}
    assert short(told(tmp_path, logs, world_size=4))[:2] == ("init_hang", ())


@pytest.mark.parametrize(("began", "named"), [((0, 1, 2, 3), ()), ((2, 3), (0,))])
def test_rank_0_is_not_missing_at_a_store_where_it_printed_that_it_began(
    tmp_path: Path, began: tuple[int, ...], named: tuple[int, ...]
) -> None:
    lines = [f"[2025-02-10 11:18:5{r} TP{r}] Init torch distributed begin." for r in began]
    lines += [f"[rank{r}]:{REFUSED}" for r in (2, 3)]
    assert short(told(tmp_path, lines, world_size=4))[:2] == ("init_hang", named)


@pytest.mark.parametrize("apart", [0, 2])
def test_the_one_that_waits_for_no_key_in_the_log_of_all_is_the_one_for_whom_they_wait(
    tmp_path: Path, apart: int
) -> None:
    key = "torch.distributed.DistStoreError: wait timeout after 14000ms, keys: /staged/1/0, /staged/1/1, /staged/1/2, /staged/1/3"
    waits = {rank: f"[rank{rank}]: {key}" for rank in range(4) if rank != apart}
    assert short(told(tmp_path / "one", list(waits.values())))[:2] == ("init_hang", (apart,))
    each: dict[str, str | list[str]] = {f"rank{rank}.log": [line] for rank, line in waits.items()}
    assert short(told(tmp_path / "each", each))[:2] == ("init_hang", ())
    every = [*waits.values(), f"[rank{apart}]: {key}"]
    assert short(told(tmp_path / "every", every))[:2] == ("init_hang", ())


def test_a_store_that_had_been_there_and_is_gone_tells_of_no_rendezvous(tmp_path: Path) -> None:
    """It goes with rank 0 or the launcher, at a good end as well as at a bad one."""
    assert told(tmp_path, [GONE.format(1), GONE.format(3)]).status == "inconclusive"


WORK = ("read (reader.py:44)", "build (reader.py:98)")
REDUCE = ("all_reduce (torch/distributed/distributed_c10d.py:2764)",)


def spy(rank: int, frames: Sequence[str]) -> str:
    """Return a rank's stack as py-spy prints it."""
    head = [
        f"Process {4100 + rank}: python -u train.py",
        "Python v3.11.7",
        "",
        f'Thread {4100 + rank} (idle): "MainThread"',
    ]
    return "\n".join([*head, *(f"    {frame}" for frame in (*frames, "main (train.py:120)"))]) + "\n"


def test_what_shows_no_stop_tells_where_the_ranks_stood(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, {f"rank{r}.txt": spy(r, REDUCE) for r in range(3)}))
    assert verdict.summary.startswith("Ranks 0-2 are in all_reduce (train.py:120)")
    assert "stacks of all ranks twice" in verdict.advice[0]


SEES = ("serving", "connected to", "no answer from", "no connection to")


@pytest.mark.parametrize(
    ("ways", "named", "confidence"),
    [
        ([(0, "10.0.0.7"), (1, "10.0.0.7"), (3, "10.9.9.9")], (2,), "high"),
        ([(0, "10.0.0.7"), (1, "10.0.0.7"), (2, "10.0.0.7")], (2,), "medium"),
        ([(0, "10.0.0.7"), (1, "10.0.0.7"), None], (2,), "medium"),
        ([None, (3, "10.0.0.7"), (3, "10.0.0.7")], (0,), "medium"),
        ([(3, "10.0.0.7"), (3, "10.0.0.7"), (3, "10.0.0.7")], (), "low"),
        ([(0, "10.0.0.7"), (3, "10.0.0.8"), (3, "10.0.0.8")], (), "low"),
    ],
)
def test_live_ranks_are_judged_by_who_reaches_the_store(
    tmp_path: Path, ways: list[tuple[int, str] | None], named: tuple[int, ...], confidence: str
) -> None:
    folder = tmp_path / "job" / "capture_01"
    folder.mkdir(parents=True)
    for rank, way in enumerate(ways):
        if way is not None:
            text = f"process {900 + rank} is starting: {SEES[way[0]]} the store at {way[1]}:29500\n"
            (folder / f"start_rank_{rank}.txt").write_text(text)
    verdict = analyze(tmp_path / "job", world_size=3).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("init_hang", named, confidence)


@pytest.mark.parametrize(
    ("was", "answer"), [("stalled", ("init_hang", (1,))), ("making progress", ("crashed_rank", ()))]
)
def test_a_start_that_stalled_before_somebody_ended_it_keeps_its_cause(
    tmp_path: Path, was: str, answer: tuple[str, tuple[int, ...]]
) -> None:
    for rank, way in enumerate(("serving the store at 10.0.0.7", "no connection to the store at 10.9.9.9")):
        folder = tmp_path / "job" / f"capture_0{rank + 1}"
        folder.mkdir(parents=True)
        text = f"process {900 + rank} on node{rank} is starting: {way}:29500\n"
        (folder / f"start_rank_{rank}.txt").write_text(text)
    (tmp_path / "job" / "launcher").mkdir()
    (tmp_path / "job" / "launcher" / "node0.7.run").write_text(f"hangscope: SIGTERM: the job was {was}\n")
    assert short(analyze(tmp_path / "job"))[:2] == answer


@pytest.mark.parametrize(("world", "named"), [(4, ()), (3, (2,))])
def test_ranks_that_may_be_on_another_node_are_not_blamed(
    tmp_path: Path, world: int, named: tuple[int, ...]
) -> None:
    folder = tmp_path / "job" / "capture_01"
    folder.mkdir(parents=True)
    for rank in range(2):
        text = f"process {900 + rank} is starting: connected to the store at 10.0.0.7:29500\n"
        (folder / f"start_rank_{rank}.txt").write_text(text)
    write_evidence(tmp_path / "job", [folder], world, [Note(ELSEWHERE, "others left nothing")])
    verdict = analyze(tmp_path / "job").verdict
    assert verdict is not None and verdict.culprit_ranks == named


MESH = "RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:6018$0"


def test_an_address_that_gloo_tried_in_vain_is_a_peers_and_not_the_stores(tmp_path: Path) -> None:
    verdict = judged(told(tmp_path, [f"[rank0]: {MESH}"]))
    assert "peer at 127.0.0.1:6018" in verdict.summary and "store" not in verdict.summary
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", ())


def test_who_is_still_joining_while_the_others_call_collectives_never_joined_them(tmp_path: Path) -> None:
    def error(rank: int, function: str, last: str) -> list[str]:
        place = f'  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in {function}'
        user = f'  File "/workspace/train.py", line {5 if rank == 1 else 9}, in main'
        return ["Traceback (most recent call last):", user, "    run()", place, "    wait()", last]

    logs: dict[str, str | list[str]] = {f"rank{r}.log": error(r, "all_reduce", CLOSED) for r in (0, 2, 3)}
    logs["rank1.log"] = error(1, "init_process_group", KEY)
    assert short(told(tmp_path, logs)) == ("init_hang", (1,), "medium")


def test_who_waits_for_a_key_of_the_store_is_not_waited_for(tmp_path: Path) -> None:
    """Ranks 1 to 3 left empty dumps and wait for rank 0, which is in a collective already."""
    groups = world(4)
    for rank in range(4):
        recorder = Recorder(rank, groups, backend="gloo")
        (recorder if rank else recorder.call("all_gather", state="started")).write(tmp_path)
    key = "torch.distributed.DistStoreError: wait timeout after 14000ms, keys: /default_pg/0//dataset/cache_ready"
    logs = {f"rank_{r}.log": [f"[rank{r}]: waiting for the cache", f"[rank{r}]: {key}"] for r in range(1, 4)}
    logs["rank_0.log"] = ["[rank0]: wrote shard 1", f"[rank0]: {CLOSED}"]
    for name, lines in logs.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    report = analyze(tmp_path)
    assert not {1, 2, 3} & {*judged(report).culprit_ranks, *judged(report).suspect_ranks}


def test_a_bar_that_moves_shows_the_awaited_rank_at_work(tmp_path: Path) -> None:
    bars = [
        f"Running tokenizer:  {n}%|#   | {n}000/100000 [0{n // 10}:00<01:00, 99.1 examples/s]"
        for n in (30, 60, 90)
    ]
    error = "RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout"
    report = told(tmp_path, [*bars, error])
    assert short(report) == ("stuck_rank", (0,), "medium")


def test_who_alone_reports_that_one_of_two_joined_counts_itself(tmp_path: Path) -> None:
    error = "Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size={}, worker_count=1, timeout=0:10:00)"
    lines = ["Traceback (most recent call last):", f"RuntimeError: {error.format(2)}"]
    assert short(told(tmp_path / "a", lines))[:2] == ("init_hang", (1,))
    assert short(told(tmp_path / "b", [lines[0], f"RuntimeError: {error.format(4)}"]))[1] == (1, 2, 3)


@pytest.mark.parametrize(("came", "missing"), [(7, (0,)), (1, ())])
def test_who_did_not_come_to_the_barrier_of_a_group_of_all_is_named_where_most_came(
    tmp_path: Path, came: int, missing: tuple[int, ...]
) -> None:
    wait = "I0510 07:28:1{rank}.4 1398 distributed_c10d.py:337] Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:2 (world_size=8, worker_count={came}, timeout=0:30:00)"
    verdict = judged(told(tmp_path, [wait.format(rank=rank, came=came) for rank in range(8 - came, 8)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", missing)


def test_who_did_not_print_that_it_calls_init_process_group_did_not_come(tmp_path: Path) -> None:
    calls = [f"pid=5123{rank} rank={rank} ok, calling init_process_group(world_size=4)" for rank in (0, 1, 3)]
    verdict = judged(told(tmp_path, [*calls, CLIENTS.format(n=3, of=4)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (2,))


def test_who_is_busy_with_its_driver_is_who_did_not_come_to_the_store(tmp_path: Path) -> None:
    """Its process id, between those of its neighbours, says whose stack it is; the traceback below is another process's."""
    lines = [
        f"[2026-05-12 22:41:06.113] pid={7000 + r} rank={r} calling init_process_group" for r in (0, 1, 3)
    ]
    stack = [
        "$ py-spy dump --pid 7002",
        "Process 7002: /opt/venv/bin/python -c from multiprocessing.spawn import spawn_main",
        "Python v3.12.11 (/opt/venv/bin/python3.12)",
        "",
        'Thread 7002 (active): "MainThread"',
        "    ioctl (libc.so.6)",
        "    zeInitDrivers (libze_loader.so.1.24.2)",
        "    _lazy_init (torch/xpu/__init__.py:147)",
        "    _worker (test_offload.py:39)",
        "",
    ]
    raised_there = [
        "Traceback (most recent call last):",
        '  File "/workspace/train/test_offload.py", line 44, in _worker',
        "    dist.init_process_group()",
        '  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/rendezvous.py", line 198, in _create_c10d_store',
        "    return TCPStore(",
        CLIENTS.format(n=3, of=4),
    ]
    verdict = judged(told(tmp_path, [*lines, *stack, *raised_there]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (2,))
    assert verdict.title == "Rank 2 did not join the others"
    assert "initializing its device" in verdict.explanation


def test_who_prints_when_the_others_have_given_up_comes_late(tmp_path: Path) -> None:
    keys = [
        f"09:41:05,91{r} rank{r} INFO c10d: Added key: store_based_barrier_key:1 to store for rank: {r}"
        for r in (0, 1, 3)
    ]
    imports = [f"09:41:0{r},1 rank{r} INFO train.main: imports done in 3.{r} s" for r in (0, 1, 3)]
    error = "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:00:05)"
    late = "09:41:12,377 rank2 INFO train.main: imports done in 10.6 s"
    verdict = judged(told(tmp_path, [*imports, *keys, error, late]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (2,))
    assert verdict.title == "Rank 2 did not join the others in time"
    assert "imports done in 10.6 s" in verdict.explanation
