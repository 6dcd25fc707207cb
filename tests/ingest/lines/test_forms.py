"""Each form that pastes hold: a line that matches, one that nearly does, the line cut short, and the line broken by a terminal."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import pytest

from hangscope.ingest.lines.pasted import repair
from hangscope.ingest.workers.reading import read_log
from hangscope.model.events import Event


@dataclass(frozen=True)
class Form:
    """One form. `cut` is where the line breaks off and says nothing yet; `near` is a line that says something else."""

    kind: str
    line: str
    near: str
    cut: str
    fields: dict[str, Any] = field(default_factory=dict)


FORMS = [
    Form(
        "watchdog_timeout",
        "[rank5]:[E716 02:44:10.881230041 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=913, OpType=REDUCE_SCATTER, NumelIn=1124, NumelOut=281, Timeout(ms)=1800000) ran for 1800095 milliseconds before timing out.",
        "[rank5]:[W716 02:44:10.881230041 ProcessGroupNCCL.cpp:629] [Rank 5] WorkNCCL(SeqNum=913, OpType=REDUCE_SCATTER, NumelIn=1124, NumelOut=281, Timeout(ms)=1800000) enqueued",
        "ran for 1800095",
        {"op": "reduce_scatter", "seq": 913, "numel_in": 1124, "numel_out": 281, "ran_ms": 1800095, "rank": 5},
    ),
    Form(
        "watchdog_timeout",
        "[rank4]:[E1102 19:05:51.300711023 ProcessGroupXCCL.cpp:415] [Rank 4] Watchdog caught collective operation timeout: WorkXCCL(SeqNum=18, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600016 milliseconds before timing out.",
        "[rank4]: WorkLoad(SeqNum=18, OpType=ALLREDUCE) ran for 600016 milliseconds",
        ", Timeout(ms)",
        {"op": "all_reduce", "seq": 18, "rank": 4},
    ),
    Form(
        "watchdog_status",
        "[rank6]:[E509 22:14:07.118230041 ProcessGroupNCCL.cpp:756] [PG ID 0 PG GUID 0(default_pg) Rank 6] failure detected by watchdog at work sequence id: 4125 PG status: last enqueued work: 4127, last started work: 4125 (ALLREDUCE), last completed work: 4124",
        "[rank6]:[I509 22:14:07.118230041 ProcessGroupNCCL.cpp:756] PG status: nothing was enqueued, last completed work is not known",
        ", last completed",
        {"seq": 4125, "last_enqueued": 4127, "last_started": 4125, "started_op": "all_reduce", "last_completed": 4124, "group_desc": "default_pg"},
    ),
    Form(
        "watchdog_status",
        "[rank2]:[E509 22:14:07.501233010 ProcessGroupNCCL.cpp:2303] [PG ID 4 PG GUID 12(PIPELINE) Rank 1]  failure detected by watchdog at work sequence id: 771 PG status: last enqueued work: 773, last started work: -1, last completed work: 770",
        "last started work: 771",
        "work: 773, last",
        {"seq": 771, "last_started": -1, "last_completed": 770},
    ),
    Form(
        "nccl_warn",
        "[rank1]: Last error: NET/IB : Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:192.0.2.21 remoteGids::ffff:192.0.2.7",
        "[rank1]: Last error: none",
        " NET/IB",
        {"fault": "ib_error", "peer_host": "192.0.2.7", "status": 12},
    ),
    Form(
        "nccl_warn",
        "Last error: Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 1b000",
        "Last error on this rank was a duplicate entry on CUDA device 1b000",
        "detected",
        {"fault": "duplicate_gpu", "rank_a": 3, "peer_rank": 1},
    ),
    Form(
        "store_timeout",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for workers. 1/2 workers joined.",
        "all 2/2 workers joined after 3 seconds",
        " 1/2",
        {"joined": 1, "expected": 2},
    ),
    Form(
        "oom_host",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=88123.0 cgroup. Some of your processes may have been killed.",
        "slurmstepd: info: no oom-kill event was detected",
        " oom-kill",
    ),
    Form(
        "exit",
        "/var/spool/slurmd/job88124/slurm_script: line 38: 71120 Killed                  torchrun --nproc_per_node 8 train.py",
        "notes.txt: line 38: 71120 tokens were Killed by the filter",
        " Killed",
        {"code": -9, "signal": "SIGKILL", "pid": 71120, "via": "shell"},
    ),
    Form(
        "external_end",
        "slurmstepd: error: *** JOB 88125 ON node03 CANCELLED AT 2026-03-02T11:00:21 DUE TO TIME LIMIT ***",
        "JOB 88125 ON node03 was never cancelled",
        " CANCELLED",
        {"reason": "time_limit"},
    ),
    Form(
        "cuda_error",
        "[E ProcessGroupNCCL.cpp:916] [Rank 3] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
        "[I ProcessGroupNCCL.cpp:916] [Rank 3] NCCL watchdog thread terminated normally",
        " CUDA error",
        {"group_rank": 3, "error": "an illegal memory access was encountered"},
    ),
    Form(
        "cuda_error",
        "HW Exception by GPU node-3 (Agent handle: 0x55d00aa1c330) reason :GPU Hang",
        "HW Exception handling is enabled for GPU node-3",
        " reason",
        {"error": "HW Exception by GPU node-3 (Agent handle: 0x55d00aa1c330) reason :GPU Hang"},
    ),
    Form(
        "xid",
        "[401188.219910] nvidia 0000:c1:00.0: GPU has fallen off the bus.",
        "a GPU has fallen off the bus in this story",
        " fallen",
        {"code": 79, "device": "0000:c1:00.0"},
    ),
    Form(
        "gather_unfilled",
        "[rank0]: RuntimeError: DDP expects same model across all ranks, but Rank 0 has 148 params, while rank 3 has inconsistent 0 params.",
        "[rank0]: the optimizer has 148 params in 0 groups",
        " 0 params",
        {"group_rank": 0, "peer_group_rank": 3},
    ),
    Form(
        "engine_timeout",
        "(EngineCore_DP1 pid=4410) ERROR 11-02 19:10:51 [core.py:710] TimeoutError: RPC call to execute_model timed out.",
        "RPC call to execute_model took 3 s",
        " timed",
        {"what": "execute_model", "pid": 4410},
    ),
    Form(
        "engine_timeout",
        "[2026-03-02 11:05:24 TP6] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "[2026-03-02 11:05:24 TP6] Scheduler watchdog started",
        " (self",
        {"what": "scheduler", "rank": 6},
    ),
    Form(
        "no_progress",
        "INFO 11-02 19:05:51 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging.",
        "INFO 11-02 19:05:51 [shm_broadcast.py:501] shared memory broadcast block found",
        " in 60",
        {},
    ),
    Form(
        "nccl2_timeout",
        "[rank9]:[E1102 19:05:51.300711023 ProcessGroupNCCLUtils.cpp:402] [TC][rank=1][name=mesh_dp] Aborting process on rank 1 due to timeout - timeout watchdog detected operation timeout",
        "[rank9]:[I1102 19:05:51.300711023 ProcessGroupNCCLUtils.cpp:402] [TC][rank=1][name=mesh_dp] Timeout thread starting for rank: 1",
        " due to",
        {"rank": 9, "group_rank": 1, "group_name": "mesh_dp"},
    ),
    Form(
        "async_error",
        "[rank2]:[E1102 19:05:51.300711023 ProcessGroupNCCLUtils.cpp:455] [TC][rank=2][name=0] nccl hit async error on rank 2: remote process exited or there was a network error",
        "[rank2]:[I1102 19:05:51.300711023 ProcessGroupNCCLUtils.cpp:455] [TC][rank=2][name=0] no error",
        "nccl hit",
        {"error": "remote", "group_rank": 2},
    ),
    Form(
        "nccl_warn",
        "cn12:40771:41002 [1] misc/socket.cc:515 NCCL WARN socketPollConnect: connect to 192.0.2.4<40551> returned No route to host, exceeded error retry count (34/34)",
        "cn12:40771:41002 [1] NCCL INFO connected to 192.0.2.4<40551>",
        " NCCL WARN",
        {"fault": "connect", "tier": 2, "peer_host": "192.0.2.4", "retrying": False},
    ),
    Form(
        "nccl_warn",
        "dgx1:901:977 [2] enqueue.cc:197 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 2.",
        "dgx1:901:977 [2] NCCL INFO collective matched at and around rank 2",
        " NCCL WARN",
        {"fault": "collective_mismatch", "tier": 3},
    ),
    Form(
        "heartbeat_timeout",
        "[rank3]:[F618 04:12:33.190711023 ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=12",
        "[rank3]:[I618 04:12:33.190711023 ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Heartbeat monitor started",
        " timed out",
        {"what": "watchdog_stuck", "pending": 12},
    ),
]  # fmt: skip


def events(text: str) -> list[Event]:
    """Return what a log of this text says."""
    return read_log(io.BytesIO(text.encode()), "paste.txt").events


def of_kind(text: str, kind: str) -> list[Event]:
    """Return the events of one kind."""
    return [event for event in events(text) if event.kind == kind]


FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.kind}-{form.line[:24]}")


@FORM
def test_the_line_is_read(form: Form) -> None:
    (event,) = of_kind(form.line + "\n", form.kind)
    assert {name: getattr(event, name) for name in form.fields} == form.fields


@FORM
def test_a_near_miss_is_not(form: Form) -> None:
    assert of_kind(form.near + "\n", form.kind) == []


@FORM
def test_a_line_that_breaks_off_says_nothing_yet(form: Form) -> None:
    assert form.cut in form.line
    assert of_kind(form.line[: form.line.index(form.cut)], form.kind) == []


LONG = [form for form in FORMS if len(form.line) > 116]


@pytest.mark.parametrize("width", [80, 100, 116])
@pytest.mark.parametrize("form", LONG, ids=lambda form: f"{form.kind}-{form.line[:24]}")
def test_a_line_that_a_terminal_broke_is_read_like_the_whole_one(form: Form, width: int) -> None:
    broken = "\n".join(form.line[at : at + width] for at in range(0, len(form.line), width))
    (event,) = of_kind(f"before\n{broken}\nstep 3 loss 1.2\n", form.kind)
    assert {name: getattr(event, name) for name in form.fields} == form.fields
    assert event.line == 2


def test_breaks_are_counted_and_told() -> None:
    line = FORMS[0].line
    broken = "\n".join(line[at : at + 116] for at in range(0, len(line), 116))
    reading = read_log(io.BytesIO((broken + "\n").encode()), "paste.txt")
    assert [note.code for note in reading.notes] == ["mended"]
    assert reading.notes[0].message.startswith(f"{broken.count(chr(10))} line breaks")


def test_what_begins_like_a_line_is_never_joined() -> None:
    line = FORMS[0].line
    text = line[:116] + "\n[rank0]: step 4\n" + line[116:] + "\n"
    assert of_kind(text, "watchdog_timeout") == []


def test_lines_behind_a_label_of_srun_are_never_joined() -> None:
    """It puts blanks before the numbers that are shorter than the longest."""
    said = (
        "ncclRemoteError: A call failed possibly due to a network error.",
        "Last error:",
        "NET/IB: Got completion",
    )
    text = "".join(f"{task:2}: {line}\n" for task in (8, 9, 10, 11) for line in said)
    assert [
        note for note in read_log(io.BytesIO(text.encode()), "job.log").notes if note.code == "mended"
    ] == []


def test_lines_behind_a_mended_one_keep_their_numbers() -> None:
    line = FORMS[0].line
    broken = "\n".join(line[at : at + 116] for at in range(0, len(line), 116))
    (event,) = of_kind(f"{broken}\n{FORMS[6].line}\n", "store_timeout")
    assert event.line == broken.count("\n") + 2


def test_two_lines_of_other_lengths_are_not_joined() -> None:
    line = FORMS[0].line
    assert of_kind(f"{line[:100]}\n{line[100:]}\n", "watchdog_timeout") == []


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f"> {line}",
        lambda line: f">> {line}",
        lambda line: f"```\n{line}\n```",
        lambda line: f"    {line}",
        lambda line: '{"level": "error", "log_line": "' + line + '\\n", "n": 3}',
        lambda line: f'{{"message":"{FORMS[6].line}\\n{line}\\n"}}',
        lambda line: f"  7: {line}",
        lambda line: f"[trainer5|5]:{line}",
        lambda line: f"2026-07-16T02:44:10.881Z [1,5]<stderr>:{line}",
        lambda line: f"(WorkerDict pid=812, ip=10.1.0.4) {line} [repeated 14x across cluster]",
        lambda line: f"(WorkerDict_0:6 pid=812) {line}",
        lambda line: f"node-3 [stderr] {line}",
        lambda line: f"17 2026-07-16T02:44:10.8812345Z [default5]:{line}",
        lambda line: f"Epoch 2:  37%|###6 | 733/1980 [12:40<21:33]{line}",
        lambda line: f"{FORMS[2].line}{line}",
        lambda line: "\n".join(f"{n} {text}" for n, text in enumerate(("a", "b", line, "c"), 1203)),
    ],
)
def test_it_is_read_whatever_stands_around_it(wrap: Any) -> None:
    form = FORMS[0]
    (event,) = of_kind(wrap(form.line) + "\n", form.kind)
    assert {name: getattr(event, name) for name in form.fields} == form.fields


def test_two_writers_glued_into_one_line_stay_two() -> None:
    one = FORMS[0].line
    other = one.replace("[rank5]", "[rank2]").replace("[Rank 5]", "[Rank 2]")
    found = of_kind(f"[1,5]<stderr>:{one}[1,2]<stderr>:{other}\n", "watchdog_timeout")
    assert sorted(event.rank or 0 for event in found) == [2, 5]


def test_a_line_that_a_mail_broke_between_words_is_read_like_the_whole_one() -> None:
    line = FORMS[0].line
    at = line.index("Watchdog"), line.index("WorkNCCL"), line.index("Timeout(ms)")
    parts = [
        line[: at[0]].rstrip(),
        line[at[0] : at[1]].rstrip(),
        line[at[1] : at[2]].rstrip(),
        line[at[2] :],
    ]
    text = "\r\n".join(
        ["> > Hello, it stopped again:", "> >", *(f"> > {part}" for part in parts), ">", "Thanks"]
    )
    (event,) = of_kind(text + "\r\n", "watchdog_timeout")
    assert {name: getattr(event, name) for name in FORMS[0].fields} == FORMS[0].fields


def test_broken_lines_of_an_indented_block_are_mended() -> None:
    line = FORMS[0].line
    broken = "\n".join("    " + line[at : at + 100] for at in range(0, len(line), 100))
    (event,) = of_kind(f"It says:\n\n{broken}\n\nAny idea?\n", "watchdog_timeout")
    assert event.line == 3


def test_the_indentation_of_a_traceback_is_its_own() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise ValueError("x")\nValueError: x\n'
    (event,) = of_kind(text, "exception")
    assert [(frame.file, frame.line) for frame in event.frames] == [("a.py", 3)]


def test_an_indented_stack_dump_is_read() -> None:
    block = 'Process 11: VLLM::Worker_TP1\n\nThread 11 (idle): "MainThread"\n    load (app/x.py:7)\n    main (app/x.py:9)\n'
    pasted = "It says:\n\n" + "".join(f"    {line}\n" if line else "\n" for line in block.splitlines())
    assert repair(pasted.encode())[0].decode() == "It says:\n\n" + block


@pytest.mark.parametrize("name", ["gpu{n:02}: ", "worker-{n} | ", "[pod/job-{n}/torch] "])
def test_no_line_is_the_rest_of_another_where_each_begins_with_its_writer(name: str) -> None:
    told = (
        "[rank{n}]:[E904 02:05:24.3 ProcessGroupNCCL.cpp:730] Stack trace of the failed collective: ",
        "#0 all_reduce from /opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2810",
        "",
        "ncclRemoteError: A call failed possibly due to a network error.",
        "Last error:",
        "NET/IB: Got completion from peer 192.0.2.7<40112> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
    )
    text = "\n".join(name.format(n=n) + line.format(n=n) for n in (3, 4, 3, 4) for line in told)
    assert repair(text.encode()) == (text.encode(), 0)


def test_what_begins_with_the_name_that_a_collector_repeats_is_no_rest_of_a_line() -> None:
    """The rest of a broken line has no name before it, and stands behind a blank that the line ends in."""
    name = "bench.gpu07.nolog [stderr] "
    status = "[rank3]:[E907 10:55:46.99 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 19, last enqueued NCCL work: 20, last completed NCCL work: 18."
    at = status.index("NCCL work: 20")
    frames = [f"{name}frame #{n}: <unknown function> + 0x94ac3 (0x7f172433b98c in libc.so.6)" for n in (5, 6)]
    text = "\n".join([*frames, name.rstrip() + " ", name + status[:at], status[at:], f"{name}done"])
    (event,) = of_kind(text + "\n", "watchdog_status")
    assert (event.rank, getattr(event, "seq", None), event.line) == (3, 19, 4)


def test_calls_of_processes_behind_the_names_of_their_files_stay_lines_of_their_own() -> None:
    call = "LOG.{0}.txt:node1:70{0}:70{0} [{0}] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 53 datatype 7 op 0 root 0 comm 0x7fa [nranks=4] stream 0x55c{0}"
    text = "\n".join(call.format(n) for n in range(4))
    assert repair(text.encode()) == (text.encode(), 0)
