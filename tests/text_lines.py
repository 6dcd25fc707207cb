"""Lines as ranks and launchers print them, made from their grammar, and what is said of a folder of them."""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path
from typing import Any

from hangscope.api import Report
from hangscope.ingest.evidence.processes import Processes
from hangscope.ingest.evidence.text_evidence import merge_repeats
from hangscope.ingest.workers.reading import LogReading, Reading, read_log
from hangscope.model.conclusion import Verdict
from hangscope.model.events import Event
from tests.conftest import analyze

WORK = "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
DEFAULT = "PG ID 0 PG GUID 0(default_pg) "
CLOSED = "RuntimeError: [/build/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:7827. GLHF!"


def settled(text: str, file: str = "job.log") -> LogReading:
    """Return what one log says, each thing once, with the ranks and attempts that are told where it lies alone."""
    log = read_log(io.BytesIO(text.encode()), file)
    Processes([Reading(file, "log", "used", "", log=log)])
    log.events = sorted(merge_repeats(log.events), key=lambda event: event.line)
    return log


def c10(rank: int, text: str, second: int = 38) -> str:
    return f"[rank{rank}]:[E1016 03:31:{second:02}.928019586 ProcessGroupNCCL.cpp:629] {text}"


def timeout(
    rank: int,
    *,
    group: str = "",
    local: int | None = None,
    seq: int = 6,
    op: str = "ALLREDUCE",
    n: int = 1024,
) -> str:
    work = WORK.format(seq=seq, op=op, n=n)
    return c10(
        rank,
        f"[{group}Rank {rank if local is None else local}] Watchdog caught collective operation timeout: {work}",
    )


def status(
    rank: int, seq: int, enqueued: int, completed: int, *, group: str = DEFAULT, local: int | None = None
) -> str:
    who = f"[{group}Rank {rank if local is None else local}]"
    return c10(
        rank,
        f"{who}  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}",
    )


def observed(rank: int) -> str:
    return c10(
        rank, f"[{DEFAULT}Rank {rank}] Observed flight recorder dump signal from another rank via TCPStore."
    )


def call(op: str, n: int, number: int = 4) -> str:
    options = "TensorOptions(dtype=float (default), device=cuda, layout=Strided (default))"
    return f"CollectiveFingerPrint(SequenceNumber={number}, OpType={op}, TensorShape=[{n}], TensorDtypes=Float, TensorDeviceTypes={options})"


def mismatch(rank: int, local: int, own: str, peer: int, other: str) -> str:
    aspects = "Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST"
    return f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {local} is running collective: {own}, but Rank {peer} is running collective: {other}.{aspects}"


def raised(rank: int, error: str) -> list[str]:
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/workspace/train.py", line {rank + 5}, in step',
        f"[rank{rank}]:     run()",
        f"[rank{rank}]: {error}",
    ]


def at(second: int, lines: list[str], host: str = "") -> list[str]:
    return [f"2026-11-20T15:13:{second:02}.000Z {host}{line}" for line in lines]


def told(folder: Path, files: dict[str, str | list[str]] | list[str], **options: Any) -> Report:
    for name, content in (files if isinstance(files, dict) else {"all.log": files}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else "\n".join(content) + "\n")
    return analyze(folder, **options)


def judged(report: Report) -> Verdict:
    assert report.verdict is not None, report.warnings
    return report.verdict


def short(report: Report) -> tuple[str, tuple[int, ...], str]:
    verdict = judged(report)
    return (verdict.cause, verdict.culprit_ranks, verdict.confidence)


def known_fields(event: Event) -> dict[str, Any]:
    """Return the fields of the event's own kind, without those that are not known."""
    base = {field.name for field in fields(Event)}
    own = {field.name: getattr(event, field.name) for field in fields(event) if field.name not in base}
    return {name: value for name, value in own.items() if value not in (None, ())}


def spy(title: str, pid: int, *frames: str) -> list[str]:
    """Return a stack as py-spy prints it, below a title."""
    return [title, f'Thread {pid} (idle): "MainThread"', *(f"    {frame}" for frame in frames), ""]
