"""Where each rank stood: in which collective, or at work outside of all."""

from __future__ import annotations

from dataclasses import replace

from hangscope.explain.statements.statements import CTRL_C, Statements, Whereabouts
from hangscope.ingest.stacks.threads import Variables
from hangscope.ingest.torch_logs.reports import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import calls_collectives, in_backward
from hangscope.knowledge.library import before_signal, own_knowledge
from hangscope.model.frames import Stack
from hangscope.model.incident import RankRecord
from hangscope.model.regex import regex

_COLLECTIVE_FILES = (
    "distributed_c10d.py",
    "_functional_collectives.py",
    "torch/distributed/__init__.py",
)  # the last up to torch 0.4
#: where libraries make collectives, and what their functions that do are named after
_MAKERS = regex(
    r"(?:^|/)(?:torch/distributed/|deepspeed/comm/|(?:vllm|sglang\S{0,80})/distributed/|pynccl(?:_wrapper)?\.py$"
    r"|(?:torchmetrics|lightning/fabric)/utilities/distributed\.py$|accelerate/utils/operations\.py$)"
)
_MAKES = regex(
    r"(?:^|_)(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|(?:send|recv)_object|gather_all|gpu_gather|ncclCommWindowRegister)(?:_|$)"
)
#: waits for gathers of DeepSpeed's ZeRO-3 (deepspeed/runtime/zero), the last two in stage3.py up to 0.5
_GATHERS = regex(
    r"/zero/(?:partition_parameters\.py:(?:_?wait|trigger_wait|wait_tensor)|partitioned_param_coordinator\.py:fetch_sub_module"
    r"|stage3\.py:(?:_synchronize_communication|fetch_sub_module))$"
)
#: waits for sends and receives: of torch's pipelines (torch 2.13) and of Megatron-LM's (megatron/core)
_PAIRED_WAITS = (
    ("torch/distributed/pipelining/schedules.py", regex(r"^_wait_batch_p2p$")),
    (
        "pipeline_parallel/p2p_communication.py",
        regex(r"^(?:_communicate$|(?:send|recv)_(?:forward|backward))"),
    ),
)
#: native frames of a wait for peers (py-spy dump --native)
_NATIVE_WAITS = regex(r"^(?:c10d::.{0,80}[Ww]ait|gloo::transport::.{0,80}wait)")
#: NCCL's own functions (nccl.h), which a thread that spins while it enqueues has not left
_OF_NCCL = {
    "ncclAllReduce": "all_reduce",
    "ncclAllGather": "all_gather",
    "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclSend": "send",
    "ncclRecv": "recv",
}
#: older names, and those of libraries, below which the frames of the user's own call are
_BASES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "gather_all_tensors": "all_gather",  # of torchmetrics and Lightning
}
#: a call's own wait, below which there is no Python frame
_WAITS = frozenset({"wait", "_wait", "trigger_wait", "wait_tensor"})
#: a call of torch.distributed in the line of source that a traceback quotes last, where it was pasted without torch's frames
_CALLED = regex(
    r"\.(send|recv|isend|irecv|batch_isend_irecv|all_reduce|all_gather(?:_into_tensor|_object)?|reduce_scatter(?:_tensor)?"
    r"|all_to_all(?:_single)?|broadcast(?:_object_list)?|gather|scatter|reduce|barrier|monitored_barrier)\("
)
_WORK = "torch._C._distributed_c10d.Work"  # what a collective that runs returns
_NEAR = 3  # frames within which a wait for sends and receives may wait for the device
_NOT_OPS = _WAITS | {"wrapper", "<module>", "unwrap"}


def whereabouts(record: RankRecord, statements: Statements) -> Whereabouts | None:
    """Return where a rank stood by its stack, else by the traceback of an error that a waiting call raised; None: not told."""
    raised = statements.of(record.rank, RankException)
    for _, stack in record.threads:
        where = _by_variables(
            located(stack, record.stack_file or "a stack dump", "stack"), record, statements
        )
        # A wait below which there is no Python frame looks like work until it fails.
        waits = any(e.symptom and e.frames and _place(e.frames) == _place(stack) for e in raised)
        return replace(where, inside=True) if waits else where
    shown: list[FailedStack | RankException] = [*statements.of(record.rank, FailedStack)]
    shown += [*(e for e in raised if e.symptom), *(e for e in raised if e.type == CTRL_C)]
    for event in shown:
        stood = before_signal(event.frames, own_knowledge())
        if stood:  # whose signal handler waits for others stood somewhere else when the signal came
            interrupted = isinstance(event, RankException) and not event.symptom
            where = located(stood, event.file, "stack" if interrupted or stood != event.frames else "log")
            quoted = event.code or "" if isinstance(event, RankException) and not interrupted else ""
            called = _CALLED.search(quoted) if where.op is None and stood == event.frames else None
            return replace(where, op=called[1]) if called else where
    return None


def _by_variables(where: Whereabouts, record: RankRecord, statements: Statements) -> Whereabouts:
    """Return where a rank was: a call of C++ has no frame in Python, while what it waits for is a variable of the innermost one."""
    found = statements.of(record.rank, Variables)[-1:]
    values = [value for event in found for value in event.values]
    if where.inside or not any(_WORK in value for value in values):
        return where
    paired = any("P2POp" in value for value in values)
    return replace(where, inside=True, op="batch_isend_irecv" if paired else where.op)


def _place(stack: Stack) -> tuple[str, str, int] | None:
    """Return the innermost function and line, which paths before a file's name do not tell apart."""
    return (stack[0].name, stack[0].file.rsplit("/", 1)[-1], stack[0].line) if stack else None


def located(stack: Stack, source: str, kind: str) -> Whereabouts:
    """Return where a thread is by its stack."""
    op = None
    # An error of the communication layer is raised by a call that waits, whoever makes it: also by one from C++ code.
    native = any(_NATIVE_WAITS.match(f.name) for f in stack[:_NEAR])
    inside = kind == "log" or native or (bool(stack) and calls_collectives(stack[0]))
    inside = inside or in_backward(stack)
    for frame in stack:
        known = frame.file.endswith(_COLLECTIVE_FILES)
        name = _BASES.get(frame.name, frame.name)
        if known and name not in _NOT_OPS and not name.startswith("_"):
            op, inside = name, True  # the outermost one is what the user called
        elif (known and frame.name in _WAITS) or frame.name == "_engine_run_backward":
            inside = True
        elif frame.name in _OF_NCCL:
            op, inside = _OF_NCCL[frame.name], True
    if stack and not inside:
        first = stack[0]
        named = bool(_MAKES.search(first.name) and _MAKERS.search(first.file))
        inside = named or any(_GATHERS.search(f"{f.file}:{f.name}") for f in stack[:_NEAR])
        name = _BASES.get(first.name, first.name)
        op = name if named and not name.startswith("_") else None
    if any(
        f.file.endswith(file) and name.search(f.name) for f in stack[:_NEAR] for file, name in _PAIRED_WAITS
    ):
        op, inside = "batch_isend_irecv", True
    return Whereabouts(inside, op, stack, source, kind)
