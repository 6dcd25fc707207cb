"""Whether a verdict rests on what is damaged, or on words whose loss would make a victim look guilty: then it is not as sure as it looks."""

from __future__ import annotations

from hangscope.causes.case import Case, Match
from hangscope.incident import Incident
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.regex import regex

#: Notes that say of a file that its bytes are not what was written. A file that was not read at all is no evidence.
CODES = frozenset(
    {
        "truncated",
        "corrupt",
        "parser_failed",
        "bad_archive",
        "bad_member",
        "malformed_entries",
        "malformed",
        "odd_values",
        "odd_name",
        "torn_table",
        "contradiction",
        "too_many_members",
    }
)
_ABORTED = frozenset({-6, 134})  # by SIGABRT, as a launcher or a shell tells it
_FEW = 64  # culprits whose own logs are looked at
_REPLACED = "\ufffd"  # stands for bytes that are no text


#: Where calls of the communication layer raise what C++ threw, and what Python raises there for a wrong argument.
_COMMUNICATION = (
    "distributed/distributed_c10d.py",
    "distributed/rendezvous.py",
    "distributed/_functional_collectives.py",
)
#: What stands in its messages, so that one of them is known where a letter of it is changed.
_ITS_WORDS = regex(
    r"[Cc]ollective|\bpeers?\b|nccl|NCCL|gloo|[Bb]arrier|\bDDP\b|ProcessGroup|communicator|TCPStore|across all ranks|"
    r"\[[Rr]ank \d|[Rr]anks? \d{1,7} (?:failed|is|successfully)|failed to pass|Op type|Sequence number|SequenceNumber|OpType|TensorShape"
)
_ARGUMENT_ERRORS = frozenset(
    {"ValueError", "TypeError", "AssertionError", "KeyError", "IndexError", "AttributeError"}
)


#: Causes that lines of text establish by themselves, whatever the calls show; who dies may leave half a dump.
TOLD = frozenset({"crashed_rank", "early_exit", "model_mismatch", "init_hang"})


def damaged_files(incident: Incident) -> set[str]:
    """Return the files whose bytes are not what was written, as far as notes tell."""
    return {note.file.split("!/")[0] for note in incident.notes if note.code in CODES and note.file}


def damage(case: Case, match: Match) -> str:
    """Return why a match rests on damaged evidence, or nothing: by the notes on its files, or bytes that are no text in its lines."""
    damaged = damaged_files(case.incident)
    for file in sorted(damaged & _dumps_compared(case, match)):
        return f"{file}, on which it rests, is damaged"
    for rank in match.culprits if len(match.culprits) <= _FEW and match.cause in TOLD else ():
        for file in sorted(
            damaged & set(case.incident.ranks[rank].files if rank in case.incident.ranks else ())
        ):
            return f"{file}, the log of rank {rank}, is damaged, and what would explain its end may be lost"
    for item in match.evidence:
        if item.stance != "for":
            continue
        if item.source is not None and item.source.file.split("!/")[0] in damaged:
            return f"{item.source.file}, on which it rests, is damaged"
        if item.source is not None and _REPLACED in item.text:
            return f"a line of {item.source.file}, on which it rests, holds bytes that are no text"
    return ""


def _dumps_compared(case: Case, match: Match) -> set[str]:
    """Return the dumps that a match by calls compares: of its culprits, and of one who waits for them."""
    if case.from_text or match.cause in TOLD:
        return set()
    waiting = case.finding.stuck.rank
    ranks = {*match.culprits, *case.finding.culprits, *(() if waiting is None else (waiting,))}
    files = (record.calls_file for rank in ranks if (record := case.incident.ranks.get(rank)) is not None)
    return {file.split("!/")[0] for file in files if file}


def torn_death(case: Case, match: Match) -> str:
    """Return why a death may be none: its traceback's beginning, or all of its frames, are not there, and nothing else says that the rank ended."""
    for death in case.statements.first_deaths if match.cause == "crashed_rank" else []:
        event, told = death.event, case.statements.exits.get(death.rank)
        alone = told is None or told.code in (None, 0)
        if isinstance(event, Exit) and event.code in _ABORTED and case.statements.all(WatchdogTimeout):
            return f"a watchdog aborts its process, too, as those of others did: what rank {death.rank} said of it may be lost"
        if not isinstance(event, RankException):
            continue
        if any(_REPLACED in frame.file + frame.name for frame in event.frames):
            return f"the traceback of rank {death.rank} holds bytes that are no text"
        if event.torn and alone:
            return f"the traceback of rank {death.rank} is not whole: its last line may be of an error that was caught"
    return ""


def only_communication_failed(case: Case, match: Match) -> str:
    """Return why a death may be no death of the rank's own: the communication layer raised it, in words that no rule knows.

    A rank whose peer is gone gets such an error, too. What tells the two apart are a few words of it.
    """
    deaths = case.statements.first_deaths if match.cause == "crashed_rank" else []
    for death in deaths:
        event = death.event
        if not isinstance(event, RankException) or death.rank not in match.culprits:
            continue
        kind = event.type.rsplit(".", 1)[-1]
        place = event.frames[0].file.replace("\\", "/") if event.frames else ""
        if kind in _ARGUMENT_ERRORS:
            continue
        its_own = kind.startswith("Dist") and kind.endswith("Error")
        if its_own or place.endswith(_COMMUNICATION) or _ITS_WORDS.search(event.message):
            return f"rank {death.rank}'s error came out of the communication layer, which also raises it for what a peer did"
    return ""
