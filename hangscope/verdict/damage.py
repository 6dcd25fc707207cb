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
        "truncated", "corrupt", "parser_failed", "bad_archive", "bad_member", "malformed_entries", "malformed", "odd_values",
        "odd_name", "torn_table", "contradiction", "too_many_members",
    }
)  # fmt: skip
#: Causes that lines of text establish by themselves, whatever the calls show; who dies may leave half a dump.
TOLD = frozenset({"crashed_rank", "early_exit", "model_mismatch", "init_hang"})
_ABORTED = frozenset({-6, 134})  # by SIGABRT, as a launcher or a shell tells it
_REPLACED = "\ufffd"  # stands for bytes that are no text
#: Where calls of the communication layer raise what C++ threw, and what Python raises there for a wrong argument.
_COMMUNICATION = (
    "distributed/distributed_c10d.py",
    "distributed/rendezvous.py",
    "distributed/_functional_collectives.py",
)
_ARGUMENT_ERRORS = frozenset(
    {"ValueError", "TypeError", "AssertionError", "KeyError", "IndexError", "AttributeError"}
)
#: What stands in its messages, so that one of them is known where a letter of it is changed.
_ITS_WORDS = regex(
    r"[Cc]ollective|\bpeers?\b|nccl|NCCL|gloo|[Bb]arrier|\bDDP\b|ProcessGroup|communicator|TCPStore|across all ranks|"
    r"\[[Rr]ank \d|[Rr]anks? \d{1,7} (?:failed|is|successfully)|failed to pass|Op type|Sequence number|SequenceNumber|OpType|TensorShape"
)


def damaged_files(incident: Incident) -> set[str]:
    """Return the files whose bytes are not what was written, as far as notes tell."""
    return {note.file.split("!/")[0] for note in incident.notes if note.code in CODES and note.file}


def damage(case: Case, match: Match) -> str:
    """Return why a match rests on damaged evidence, or nothing: by the notes on its files, or bytes that are no text in its lines."""
    damaged, ranks = damaged_files(case.incident), case.incident.ranks
    rests: set[str | None] = {item.source.file for item in match.evidence if item.source is not None}
    if match.cause in TOLD:  # what would explain its end may be lost
        rests.update(file for rank in match.culprits if rank in ranks for file in ranks[rank].files)
    elif not case.from_text:
        # Calls are compared: those of the culprits, and of one who waits for them.
        compared = {*match.culprits, *case.finding.culprits, case.finding.stuck.rank}
        rests |= {ranks[rank].calls_file for rank in compared if rank in ranks}
    for file in sorted({file.split("!/")[0] for file in rests if file} & damaged):
        return f"{file}, on which it rests, is damaged"
    for item in match.evidence:
        if item.source is not None and _REPLACED in item.text:
            return f"a line of {item.source.file}, on which it rests, holds bytes that are no text"
    return ""


def doubtful_death(case: Case, match: Match) -> str:
    """Return why a death may be none, or none of the rank's own.

    Its traceback's beginning, or all of its frames, are not there, and nothing else says that the rank ended. Or the
    communication layer raised it, in words that no rule knows: a rank whose peer is gone gets such an error, too.
    """
    for death in case.statements.first_deaths if match.cause == "crashed_rank" else ():
        event, told, who = death.event, case.statements.exits.get(death.rank), f"rank {death.rank}"
        if isinstance(event, Exit) and event.code in _ABORTED and case.statements.all(WatchdogTimeout):
            return f"a watchdog aborts its process, too, as those of others did: what {who} said of it may be lost"
        if not isinstance(event, RankException):
            continue
        if any(_REPLACED in frame.file + frame.name for frame in event.frames):
            return f"the traceback of {who} holds bytes that are no text"
        if event.torn and (told is None or not told.code):
            return f"the traceback of {who} is not whole: its last line may be of an error that was caught"
        place = event.frames[0].file.replace("\\", "/") if event.frames else ""
        of_peers = place.endswith(_COMMUNICATION) or _ITS_WORDS.search(event.message)
        argument = event.type.rsplit(".", 1)[-1] in _ARGUMENT_ERRORS
        if of_peers and not argument and death.rank in match.culprits:
            return f"the communication layer raised {who}'s error, as it also does for what a peer did"
    return ""
