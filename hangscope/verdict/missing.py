"""What was not collected of a job, and how to get it next time: what is missing of the suspects first."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.causes.case import Case
from hangscope.ingest.evidence.stack_owners import OF_NO_RANK
from hangscope.model.conclusion import Collect
from hangscope.model.incident import Absence
from hangscope.model.rankset import agree, ranks_phrase


def missing_inputs(case: Case) -> list[Collect]:
    """Return what was not collected, with the setting that brings it next time."""
    records, result = case.incident.ranks.values(), list[Collect]()
    everybody = tuple(sorted(case.incident.ranks))
    unusable = (Absence.STALE, Absence.UNREADABLE)
    left = case.statements.left_quietly  # and so wrote none
    gone = [r.rank for r in records if (r.dump_file is None and r.rank not in left) or r.absence in unusable]
    if all(r.dump_file is None for r in records):
        how = "set TORCH_FR_BUFFER_SIZE to 2000 or more; with gloo, call torch._C._distributed_c10d._dump_fr_trace() from a watcher thread"
        result.append(Collect(everybody, "dump", f"Collect the Flight Recorder dump of each rank: {how}"))
    elif gone:
        spoilt = [rank for rank in gone if case.incident.ranks[rank].absence in unusable]
        text = f"Collect the Flight Recorder {agree(gone, 'dump', 'dumps')} of {ranks_phrase(gone)}"
        text += (
            f"; {agree(spoilt, 'that', 'those')} of {ranks_phrase(spoilt)} {agree(spoilt, 'is', 'are')} not usable"
            if spoilt
            else ""
        )
        result.append(Collect(tuple(gone), "dump", text))
    if case.incident.momentary:
        why = "these were written within a second of the last collective, or at different moments"
        result.append(Collect(everybody, "dump", f"Take the dumps again a minute later: {why}"))
    if not case.statements.whereabouts:
        text = "Take a stack of each rank: py-spy dump --pid PID, or faulthandler.dump_traceback_later"
        if any(note.code == OF_NO_RANK for note in case.incident.notes):
            text = "Say which ranks the stacks are of: write `=== rank 3 ===` above each, or name the files stack_rank_3.txt"
        result.append(Collect(everybody, "stack", text))
    logged = any(r.events or set(r.files) - {r.dump_file} for r in records)
    if not logged and not case.statements.kinds:
        text = "Collect one log per rank: torchrun --log-dir DIR --tee 3"
        result.append(Collect(everybody, "log", text))
    return result


def next_files(case: Case, missing: Sequence[Collect]) -> list[Collect]:
    """Return what to fetch next, what is missing of the suspects first."""
    records, ended = case.incident.ranks, {death.rank for death in case.statements.deaths}
    ended.update(case.statements.left_quietly, case.statements.exits)
    unseen = tuple(
        r
        for r in case.explanation.suspects
        if (r not in records or records[r].dump_file is None or r in case.graph.early) and r not in ended
    )
    if not unseen:
        return [*missing]
    what = "dump or a stack" if len(unseen) == 1 else "dumps or stacks"
    if case.stacks.keys() >= set(unseen):
        what = agree(unseen, "dump", "dumps")
    where = f", to see where {agree(unseen, 'it is', 'they are')}"
    first = Collect(unseen, "dump", f"Fetch the {what} of {ranks_phrase(unseen)} first{where}")
    return [first, *missing]
