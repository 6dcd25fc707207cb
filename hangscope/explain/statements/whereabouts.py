"""Where each rank stood: in which collective, or at work outside of all."""

from __future__ import annotations

from hangscope.explain.statements.statements import CTRL_C, Statements, Whereabouts
from hangscope.frames import Stack
from hangscope.incident import RankRecord
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import calls_collectives
from hangscope.knowledge.library import before_signal, own_knowledge

_COLLECTIVE_FILES = ("distributed_c10d.py", "_functional_collectives.py")
#: waits for sends and receives: of torch's pipelines (torch 2.13) and of Megatron-LM's (megatron/core)
_PAIRED_WAITS = (
    ("torch/distributed/pipelining/schedules.py", "_wait_batch_p2p"),
    ("pipeline_parallel/p2p_communication.py", "_communicate"),
)
#: a call's own wait, below which there is no Python frame
_WAITS = frozenset({"wait", "_wait", "trigger_wait", "wait_tensor"})
_NOT_OPS = _WAITS | {"wrapper", "<module>", "unwrap"}


def whereabouts(record: RankRecord, statements: Statements) -> Whereabouts | None:
    """Return where a rank stood by its stack, else by the traceback of an error that a waiting call raised; None: not told."""
    for _, stack in record.threads:
        return _locate(stack, record.stack_file or "a stack dump", "stack")
    raised = statements.of(record.rank, RankException)
    shown: list[FailedStack | RankException] = [*statements.of(record.rank, FailedStack)]
    shown += [*(e for e in raised if e.symptom), *(e for e in raised if e.type == CTRL_C)]
    for event in shown:
        stood = before_signal(event.frames, own_knowledge())
        if stood:  # whose signal handler waits for others stood somewhere else when the signal came
            interrupted = isinstance(event, RankException) and not event.symptom
            return _locate(stood, event.file, "stack" if interrupted or stood != event.frames else "log")
    return None


def _locate(stack: Stack, source: str, kind: str) -> Whereabouts:
    op = None
    # An error of the communication layer is raised by a call that waits, whoever makes it: also by one from C++ code.
    inside = kind == "log" or (bool(stack) and calls_collectives(stack[0]))
    for frame in stack:
        known = frame.file.endswith(_COLLECTIVE_FILES)
        if known and frame.name not in _NOT_OPS and not frame.name.startswith("_"):
            op, inside = frame.name, True  # the outermost one is what the user called
        elif (known and frame.name in _WAITS) or frame.name == "_engine_run_backward":
            inside = True
    if any(
        stack[:1] and stack[0].name == name and stack[0].file.endswith(file) for file, name in _PAIRED_WAITS
    ):
        op, inside = "batch_isend_irecv", True
    return Whereabouts(inside, op, stack, source, kind)
