"""The library: `analyze`, and the `Report` that it returns. The one place where the stages meet."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hangscope._version import __version__
from hangscope.errors import HangscopeError, NoInputError, Note, UsageError
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.values import short_number
from hangscope.ingest.workers.reader import DEFAULT_MAX_BYTES
from hangscope.report.report import Report

if TYPE_CHECKING:
    from hangscope.analysis import Analysis
    from hangscope.ingest.files.run_evidence import RunEvidence
    from hangscope.ingest.files.sources import SourceFile
    from hangscope.ingest.recorder.members import Interner
    from hangscope.ingest.workers.reading import LogReading, Reading
    from hangscope.knowledge.library import Knowledge, Rules
    from hangscope.model.incident import Incident

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
REDACTIONS = ("hosts", "paths", "users")


def analyze(
    paths: Paths,
    *,
    world_size: int | None = None,
    jobs: int | None = None,
    attempt: int | str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    max_unpacked: int | None = None,
    full_table: bool = False,
    redact: Collection[str] = (),
    rules: Rules | None = None,
    source: str | os.PathLike[str] | None = None,
    store: str | None = None,
    report_path: str | os.PathLike[str] | None = None,
    completions: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> Report:
    """Analyze a frozen job from its dumps, logs and stacks.

    `paths` is one path, or several: files, folders, archives, fsspec URLs, "-" for standard input. `world_size` overrides what the inputs say;
    `jobs` is the number of reading processes (default: this process's processors); `attempt` picks a restart attempt
    (default: the last; "all" mixes them); `max_bytes` is the largest dump that is loaded, `max_unpacked` what
    archives may unpack to, in bytes; `full_table` keeps rows for
    calls of the completed prefix of very large jobs; `redact` holds any of hosts, paths, users; `rules` is
    a TOML file of a site's own rules, or several (docs/knowledge.md), besides those of HANGSCOPE_RULES; `source` is a folder with
    the job's code, from which the page quotes the lines that matter; `store` is a file or a postgresql:// URL that remembers incidents
    (docs/history.md; default: HANGSCOPE_STORE, "" for none), `report_path` where the report will be, for the store and the ticket; `completions`
    also reads when collectives completed, for a trace, which takes longer; `executor` reads on any
    `concurrent.futures.Executor` instead of children; `progress(files, of, bytes, of)` is called as reading goes on.

    Never raises for bad inputs: they become `report.warnings`. Raises NoInputError when nothing at all could be read,
    UsageError when the call itself is wrong.
    """
    from hangscope.ingest.files.run_evidence import read_evidence
    from hangscope.ingest.files.sources import find_files
    from hangscope.ingest.recorder.members import Interner
    from hangscope.ingest.workers.pool import read_files
    from hangscope.knowledge.library import knowledge_with

    wanted = _as_list(paths)
    redact = [redact] if isinstance(redact, str) else redact
    _check(world_size, jobs, attempt, redact)
    notes: list[Note] = []
    run = read_evidence(wanted[0]) if len(wanted) == 1 else None
    if run is not None:
        world_size = run.world_size if world_size is None else world_size
        notes += run.notes
    knowledge = knowledge_with(rules, notes)
    with find_files(wanted, notes, max_unpacked=max_unpacked) as files:
        interner = Interner()
        readings = [
            reading
            for file, wire in read_files(
                files,
                jobs=jobs,
                max_bytes=max_bytes,
                completions=completions,
                executor=executor,
                progress=progress,
                meanwhile=_load_stages,
            )
            for reading in _readings_of(file, wire, interner)
        ]
    from hangscope.report.pictures.stacks import SourceFolder
    from hangscope.report.view import build_document

    _require_something(readings, wanted, notes)
    analysis = _analysed(readings, notes, knowledge, world_size, attempt)
    if run is not None:
        _add_run(analysis.incident, run)
    folder = SourceFolder(Path(source)) if source is not None else None
    document = build_document(analysis, __version__, redacted=redact, source=folder)
    if report_path is not None:
        document = replace(document, report_path=_place_of(report_path, redact))
    if store := os.environ.get("HANGSCOPE_STORE", "") if store is None else store:
        from hangscope.history.similar import remember

        began = run.began if run is not None else 0.0
        document = remember(document, analysis, store, wanted, redact, began)
    return Report(document, analysis, full_table=full_table, redacted=redact)


def _place_of(path: str | os.PathLike[str], redact: Collection[str]) -> str | None:
    """Return the report's path for the ticket; None of a device or a pipe, which nobody can open later."""
    from hangscope.export.output import is_special

    if is_special(Path(path)):
        return None
    place = os.path.abspath(path)
    return os.path.basename(place) if "paths" in redact else place


def _add_run(incident: Incident, run: RunEvidence) -> None:
    """Add what `hangscope run` noted: torch's version, the hosts of ranks, when stacks and dumps were captured."""
    incident.libraries += (f"torch {run.torch}",) if run.torch else ()
    incident.captured = run.captured
    for rank, host in run.hosts.items():
        if (record := incident.ranks.get(rank)) is not None and record.host is None:
            record.host = host


def _analysed(
    readings: list[Reading],
    notes: list[Note],
    knowledge: Knowledge,
    world_size: int | None,
    attempt: int | str | None,
) -> Analysis:
    """Return the analysis of what was read; of several jobs that ran side by side, of the one that froze most surely."""
    from hangscope.analysis import analyse, surest
    from hangscope.ingest.assemble import assemble
    from hangscope.ingest.evidence.worlds import chosen_note, worlds

    parts = worlds(readings)
    readings.clear()  # what is needed of them is in the incidents
    names = list(parts)
    found = []
    for name in names:
        incident = assemble(parts.pop(name), world_size=world_size, attempt=attempt)
        incident.notes[:0] = notes
        found.append(analyse(incident, knowledge))
    chosen = surest(found)
    if len(found) > 1:
        results = [f"{one.incident.world_size} ranks, {one.judgement.status}" for one in found]
        found[chosen].incident.notes.insert(0, chosen_note(names, results, chosen))
    return found[chosen]


def _load_stages() -> None:
    """Import what the answers of the children are needed for, which takes as long as reading a few of them."""
    for module in ("analysis", "ingest.assemble", "ingest.workers.reading", "report.view"):
        importlib.import_module(f"hangscope.{module}")


def _readings_of(file: SourceFile, wire: dict[str, Any], interner: Interner) -> list[Reading]:
    from hangscope.ingest.workers.reading import readings_of

    return readings_of(file.shown, wire, interner, file.written)


def _as_list(paths: Paths) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    try:
        result = [os.fspath(p) for p in paths]
    except TypeError:
        raise UsageError(f"paths must be a path or a list of paths, not {type(paths).__name__}") from None
    if not result or not all(isinstance(p, str) and p for p in result):
        raise UsageError("no path was given", "hangscope.analyze('dumps/')")
    return result


def _check(
    world_size: int | None, jobs: int | None, attempt: int | str | None, redact: Collection[str]
) -> None:
    if world_size is not None and not 1 <= world_size <= MAX_RANKS:
        raise UsageError(f"world_size must be from 1 to {MAX_RANKS:,}, not {world_size}")
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    if isinstance(attempt, str) and attempt != "all" and short_number(attempt) is None:
        raise UsageError(f"attempt must be a number or 'all', not {attempt!r}")
    unknown = sorted(set(redact) - set(REDACTIONS))
    if unknown:
        raise UsageError(f"cannot redact {', '.join(unknown)}", f"choose from {', '.join(REDACTIONS)}")


def _require_something(readings: list[Reading], paths: list[str], notes: list[Note]) -> None:
    from hangscope.ingest.files.run_evidence import is_of_the_watcher

    if any(_is_evidence(r) for r in readings):
        return
    where = ", ".join(paths[:3])
    if not readings and not notes:
        hint = "point hangscope at the folder that the job's dumps and logs were written to"
        raise NoInputError(f"{where} holds no files", hint)
    shown = sorted(readings, key=lambda r: r.file)[:4]
    found = [f"{r.file}: {r.reason or 'text that names no rank and no failure'}" for r in shown]
    found += [str(n) for n in notes[:2]]
    more = f" and {len(readings) - 4} more" if len(readings) > 4 else ""
    names = "TORCH_FR_DUMP_TEMP_FILE (older: TORCH_NCCL_DEBUG_INFO_TEMP_FILE)"
    hint = f"dumps are written to {names} plus the rank"
    if readings and all(is_of_the_watcher(r.file) for r in readings):
        install = "pip install 'hangscope[capture]'"
        hint = f"a capture takes stacks with py-spy: {install}, then capture the job again"
    looked = "looked for Flight Recorder dumps, logs and stacks"
    raise NoInputError(f"nothing in {where} could be used: {looked}, found {'; '.join(found)}{more}", hint)


def _shows_a_job(log: LogReading) -> bool:
    """Return whether a short text holds lines of a program's log, or somebody writes in it that a job hangs."""
    from hangscope.ingest.excerpts.excerpt import Excerpt

    excerpt = log.excerpt
    return isinstance(excerpt, Excerpt) and bool(excerpt.complaint or excerpt.logged)


def _is_evidence(reading: Reading) -> bool:
    """Return whether a file says anything about the job; text that shows no sign of one does not."""
    if reading.status != "used":
        return False
    log = reading.log
    if any((reading.recordings, reading.events, reading.stacks, log.nccl, log.communicators)):
        return True
    of_a_rank = log.rank is not None or log.local_rank is not None
    # What the lines of any file are compared by shows no job, unless its name does.
    shows = any(of_a_rank or event.kind != "printed" for event in log.events)
    return bool(shows or log.recordings or log.of_a_job or _shows_a_job(log))


__all__ = ["HangscopeError", "Report", "analyze"]
