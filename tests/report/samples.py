"""Reports for the page's tests: analysed hangs of 16 to 2,048 ranks, a clean job, an undecided and a hostile one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from hangscope.analysis import analyse
from hangscope.model.codec import from_plain, to_plain
from hangscope.model.frames import Frame
from hangscope.model.incident import CallKind, Frontier, Group, Incident, Input, Queue, RankRecord, State
from hangscope.model.kinds import Kinds
from hangscope.report.schema.document import Document
from hangscope.report.view import build_document

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{% raw %}<!--&amp;]]>"
    "javascript:alert(3) " + "A" * 600
)
MARKDOWN = "# Rank 3 alone called all_gather\n\n- **Who** rank 3 on gpu07\n- **Where** `train.py:87`\n"
STEPS, SPAN = 40, 1_000_000
START = 1_773_300_000_000_000_000


def _kind(op: str, line: int, name: str, sizes: tuple[int, ...]) -> CallKind:
    stack = (
        Frame(op, "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2900),
        Frame(name, "/workspace/train/train.py", line),
        Frame("main", "/workspace/train/train.py", 140),
    )
    return CallKind(op, "nccl", (sizes,), (sizes,), ("Float",), ("Float",), stack=stack)


def mesh_job(world: int, culprit: int, *, odd: bool = True) -> Incident:
    """Return a job of tensor-parallel groups of 8 and data-parallel groups, of which one rank makes a call of its own.

    With `odd` False that rank makes no call any more.
    """
    tp = [tuple(range(first, first + 8)) for first in range(0, world, 8)]
    dp = [tuple(range(place, world, 8)) for place in range(8)] if world > 8 else []
    groups = [Group(i, f"tp{i}", "TENSOR", ranks, role="tp") for i, ranks in enumerate(tp)]
    groups += [Group(len(tp) + i, f"dp{i}", "DATA", ranks, role="dp") for i, ranks in enumerate(dp)]
    kinds = (
        _kind("all_gather", 61, "forward", (64, 32)),
        _kind("all_reduce", 87, "optimizer_step", (4096,)),
        _kind("broadcast", 93, "log_metrics", (1,)),
    )
    ranks = {}
    for rank in range(world):
        own_dp = culprit % 8 == rank % 8
        last_tp = STEPS if rank // 8 == culprit // 8 or own_dp else STEPS + 1
        # The culprit leaves the step before its reduction; its replicas wait for it there, the others one call later.
        made = rank == culprit
        record = RankRecord(
            rank, f"gpu{rank // 8:04d}", rank % 8, rank % 8, 4000 + rank, [f"rank_{rank}"],
            f"rank_{rank}", f"rank_{rank}",
        )  # fmt: skip
        record.queues[rank // 8] = _queue(rank, rank // 8, 0, last_tp, 2, last_tp > STEPS)
        if dp:
            gid = len(tp) + rank % 8
            count = STEPS - 1 if made else STEPS
            record.queues[gid] = _queue(
                rank, gid, 1, count, 3, not made and (own_dp or rank // 8 == culprit // 8)
            )
        if made and odd:
            extra = record.queues[len(tp) + rank % 8 if dp else rank // 8]
            record.queues[extra.gid] = _appended(extra, 2)
        ranks[rank] = record
    inputs = [Input(f"rank_{rank}", "dump", rank, "used") for rank in range(world)]
    return Incident(world, ranks, groups, Kinds(kinds, np.arange(len(kinds))), inputs=inputs)


def _queue(rank: int, gid: int, kind: int, count: int, phase: int, pending: bool) -> Queue:
    seq = np.arange(1, count + 1)
    state = np.full(count, State.DONE, np.int8)
    if pending:
        state[-1] = State.PENDING
    created = START + seq * 4 * SPAN + phase * SPAN
    return Queue(
        rank, gid, seq, np.full(count, kind, np.int32), state, created, seq * 4 + phase,
        Frontier(count, count - pending, count - pending),
    )  # fmt: skip


def _appended(queue: Queue, kind: int) -> Queue:
    end = int(queue.seq[-1]) + 1
    return Queue(
        queue.rank,
        queue.gid,
        np.append(queue.seq, end),
        np.append(queue.kind, np.int32(kind)),
        np.append(queue.state, np.int8(State.PENDING)),
        np.append(queue.created, queue.created[-1] + SPAN),
        np.append(queue.order, STEPS * 4 + 3),
        Frontier(end, end, end - 1),
    )


@cache
def document(name: str) -> Document:
    """Return a sample by name."""
    return _MAKERS[name]()


def altered(value: Any, part: str, **new: Any) -> Any:
    """Return a document with fields of one of its parts replaced: `altered(document, "page.waitfor", edges=())`."""
    if not part:
        return replace(value, **new)
    name, _, rest = part.partition(".")
    return replace(value, **{name: altered(getattr(value, name), rest, **new)})


def _mesh(world: int, culprit: int) -> Document:
    return build_document(analyse(mesh_job(world, culprit)), "0.2.0")


def _stuck_8() -> Document:
    return build_document(analyse(mesh_job(16, 3, odd=False)), "0.2.0")


def _no_hang() -> Document:
    job = mesh_job(16, 3)
    for record in job.ranks.values():
        for gid, queue in list(record.queues.items()):
            record.queues[gid] = _queue(record.rank, gid, 0 if gid < 2 else 1, 30, 2 if gid < 2 else 3, False)
            del queue
    return build_document(analyse(job), "0.2.0")


def _stacks_1024() -> Document:
    job = mesh_job(1024, 700, odd=False)
    wait = Frame(
        "all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252
    )
    inner = Frame("wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83)
    load, step, main = (
        Frame(name, "/workspace/train/train.py", line)
        for name, line in (("load", 7), ("step", 12), ("main", 140))
    )
    for rank, record in job.ranks.items():
        stack = (load, main) if rank == 700 else (wait, inner, step, main)
        record.threads, record.stack_file = [("MainThread", stack)], f"stacks/rank_{rank}.txt"
    return build_document(analyse(job), "0.2.0")


def _unclear() -> Document:
    job = mesh_job(16, 3)
    for rank in range(1, 16):
        job.ranks[rank] = RankRecord(rank, absence=None)
    return build_document(analyse(job), "0.2.0")


def hostile_document() -> Document:
    """Return a hang with a hostile string in every field that can hold one."""
    told = ("status", "role", "state", "stance", "confidence", "id", "source", "target", "mark", "kind")
    kept = {*told, "schema", "states", "cause"}

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        if not isinstance(value, str) or key in kept or value.isdigit():
            return value
        return HOSTILE + value[:40]

    plain = to_plain(document("hang_8"))
    spoilt = spoil(plain)
    spoilt["verdict"]["since"] = spoilt["verdict"]["until"] = None
    return from_plain(Document, spoilt)


_MAKERS = {
    "hang_8": lambda: _mesh(16, 3),
    "hang_512": lambda: _mesh(512, 201),
    "hang_2048": lambda: _mesh(2048, 1185),
    "stuck": _stuck_8,
    "stacks_1024": _stacks_1024,
    "no_hang": _no_hang,
    "unclear": _unclear,
    "empty": lambda: Document.without_claims(
        "the analysis did not end within 60 seconds", "raise deadline=", "0.2.0"
    ),
    "hostile": hostile_document,
}
SAMPLES = tuple(_MAKERS)
#: the same hang in three sizes
SIZES = ("hang_8", "hang_512", "hang_2048")
