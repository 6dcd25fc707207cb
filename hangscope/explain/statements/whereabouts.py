"""Where each rank stood: in which collective, or at work outside of all."""

from __future__ import annotations

from dataclasses import replace

from hangscope.explain.statements.statements import CTRL_C, Statements, Whereabouts
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.torch_logs.reports import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import calls_collectives, in_backward
from hangscope.knowledge.doing import doing
from hangscope.knowledge.library import before_signal, own_knowledge
from hangscope.model.frames import Stack
from hangscope.model.incident import RankRecord
from hangscope.model.regex import regex

# the last up to torch 0.4
_COLLECTIVE_FILES = ("distributed_c10d.py", "_functional_collectives.py", "torch/distributed/__init__.py")
#: NCCL's own functions (nccl.h), which a thread that spins while it enqueues has not left
_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send", "recv")
_OF_NCCL = {f"nccl{op.title().replace('_', '')}": op for op in _OPS}
#: older names, and those of libraries, below which the frames of the user's own call are
_BASES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "gather_all_tensors": "all_gather",  # of torchmetrics and Lightning
}
#: a call's own wait, below which there is no Python frame
_WAITS = frozenset({"wait", "_wait", "trigger_wait", "wait_tensor"})
_BACKWARD = regex(r"\.backward\(")
_NEAR = 3  # frames within which a wait for sends and receives may wait for the device
_NOT_OPS = _WAITS | {"wrapper", "<module>", "unwrap"}


def whereabouts(record: RankRecord, statements: Statements) -> Whereabouts | None:
    """Return where a rank stood by its stack, else by the traceback of an error that a waiting call raised; None: not told."""
    raised = statements.of(record.rank, RankException)
    for _, stack in record.threads:
        where = located(stack, record.stack_file or "a stack dump", "stack")
        # A wait below which there is no Python frame looks like work until it fails.
        waits = any(e.symptom and e.frames and _place(e.frames) == _place(stack) for e in raised)
        return replace(where, inside=where.inside or waits)
    shown: list[FailedStack | RankException] = [*statements.of(record.rank, FailedStack)]
    shown += [*(e for e in raised if e.symptom), *(e for e in raised if e.type == CTRL_C)]
    for event in shown:
        frames = before_signal(event.frames, own_knowledge())
        if frames:  # whose signal handler waits for others was somewhere else when the signal came
            interrupted = isinstance(event, RankException) and not event.symptom
            where = located(frames, event.file, "stack" if interrupted or frames != event.frames else "log")
            code = event.code or "" if isinstance(event, RankException) else ""
            # The line of source that a traceback quotes last, where it was pasted without torch's frames.
            called = words("called").search(code) if where.op is None and frames == event.frames else None
            if not interrupted:
                return replace(where, op=called[1]) if called else where
            return replace(where, inside=True) if _BACKWARD.search(code) else where
    return None


def _place(stack: Stack) -> tuple[str, str, int] | None:
    """Return the innermost function and line, which paths before a file's name do not tell apart."""
    return (stack[0].name, stack[0].file.rsplit("/", 1)[-1], stack[0].line) if stack else None


def located(stack: Stack, source: str, kind: str) -> Whereabouts:
    """Return where a thread is by its stack."""
    op = None
    # An error of the communication layer is raised by a call that waits, whoever makes it: also by one from C++ code.
    native = any(words("native_waits").match(f.name) for f in stack[:_NEAR])
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
        named = bool(words("makes").search(first.name) and words("makers").search(first.file))
        known_wait = doing(stack[:_NEAR])
        inside = named or (known_wait is not None and known_wait.collective)
        name = _BASES.get(first.name, first.name)
        op = name if named and not name.startswith("_") else None
    if any(words("paired_waits").search(f"{f.file}:{f.name}") for f in stack[:_NEAR]):
        op, inside = "batch_isend_irecv", True
    return Whereabouts(inside, op, stack, source, kind)
