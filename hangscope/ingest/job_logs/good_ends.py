"""The end of a text that shows a job that ended well, or a server that answers.

    [launch.sh] torchrun exit code: 0, elapsed 00:41:13
    srun: job 812 step 0 completed, all 16 tasks exited with exit code 0
    INFO 02-26 11:43:10 [loggers.py:123] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg generation throughput: 211.0 tokens/s, Running: 6 reqs
    INFO:     10.8.0.4:51020 - "POST /v1/completions HTTP/1.1" 200 OK

(Scripts around a job; vllm/v1/metrics/loggers.py; sglang/srt/managers/scheduler.py; uvicorn's access log.) Whoever writes that a
job hangs saw what no line shows: next to such words these lines do not count.
"""

from __future__ import annotations

from hangscope.ingest.job_logs.vocabulary import complains, words
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersEnded(Event, same_by=("everywhere",), by_launcher=True, calm=True):
    """An elastic agent reports that all its workers exited with 0, or (`everywhere`) that those of all other agents did as well.

    torch/distributed/elastic/agent/server/api.py, `_exit_barrier`. `of_a_script`: it is a line such as `exit code: 0`, which a script
    prints of its last command, whichever that was, or (`everywhere`) of all workers that it started.
    """

    everywhere: bool
    of_a_script: bool = False
    forms = (
        says("worker group successfully finished", everywhere=False),
        says("Done waiting for other agents", everywhere=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(Event, same_by=(), by_launcher=True, calm=True):
    """Slurm reports that the whole job ended with exit code 0, as seff, sacct, scontrol and its mails print it."""

    forms = (
        says(
            # a row of sacct is of the job, and not of a step of it, where no dot follows its number
            r"^State: COMPLETED \(exit code 0\)|\bJobState=COMPLETED\b|, COMPLETED, ExitCode 0\b"
            r"|^(?:JobID )?\d{1,12}(?:_\d{1,9})? .{0,200}\bCOMPLETED +(?:ExitCode )?0:0(?: |$)",
            literal="COMPLETED",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Event, same_by=("well",), by_launcher=True, calm=True):
    """The last line of an inference server's load: it generates or answered (`well`), or holds requests and generates nothing."""

    well: bool


_MOST = 4096  # lines that are read, from the end back
_CANDIDATE = regex(
    r"[Ee]xit|EXIT|eturned|nded|inished|erminated|ompleted|throughput|HTTP/\d|broadcast block|[Nn]o progress"
)
_ZERO = r"(?:with )?(?:an? )?(?:exit )?(?:(?:codes?|status(?:es)?) ?[:=]? ?)?(?:0|\[0(?:, ?0){0,200}\])"
_ENDED = (
    r"(?:workers|ranks|processes|procs|tasks|pods) (?:have )?(?:exited|returned|ended|finished|terminated|completed)[,:]? "
    rf"(?:{_ZERO}|cleanly|successfully|normally)\W{{0,3}}$"
)
_ALL = regex(rf"(?i)\b(?:all (?:\d{{1,7}} )?|(?<![\d./])(\d{{1,7}}) ?(?:/|of|out of) ?(\d{{1,7}}) ){_ENDED}")
_CODE = r"(?:exit(?:ed)?(?: with)?[ _](?:code|status)(?: ?[:=] ?| )|exited(?: with)? |rc ?[:=] ?)0(?: on [\w.-]{1,100})?"
_SCRIPT = regex(
    rf"(?i)^(?:[\[(]|\+ ?)?(?:[\[\w./-]{{1,60}}[\]:,]{{0,2}} ){{0,4}}{_CODE}(?:, {_CODE}){{0,64}}"
    r"(?:,? (?:elapsed|after|in|took) [^,]{1,40})?[\])]?$"
)
# of several, one ended so
_OF_ONE = regex(r"(?i)\b(?:rank|proc(?:ess)?|worker|child|trainer|task)[ :=#_-]{0,2}\d")
_LAUNCHER = regex(r"\b(?:torchrun|srun|mpirun|mpiexec|deepspeed|accelerate)\b")
_LOAD = regex(r"Avg generation throughput: (\d{1,9}(?:\.\d{1,9})?) tokens/s, Running: (\d{1,9}) req")
# whole: no server prints quotes
_DECODED = regex(r"Decode batch.{0,300}gen throughput \(token/s\): (\d{1,9}(?:\.\d{1,9})?)[^\"]{0,200}$")
_WAITS = regex(r"No available shared memory broadcast block|(?i:\bno progress (?:for|in|within|since)\b)")
_ANSWERED = regex(r"\"POST /\S{1,200} HTTP/1\.\d\" 200\b")


def good_ends(kept: KeptText) -> list[Event]:
    """Return the last line of a script that reports a good end, unless somebody writes that it hangs, and a server's last line about its load."""
    found: dict[str, Event] = {}
    for line in kept.last(_CANDIDATE, _MOST):
        event = _end(line) or _served(line)
        if event is not None:
            found.setdefault(event.kind, event)
    if WorkersEnded.kind in found and any(map(_says_so, kept.last(words("complains"), _MOST))):
        del found[WorkersEnded.kind]
    return [found[kind] for kind in sorted(found)]


def _end(line: Line) -> WorkersEnded | None:
    all_of_them = _ALL.search(line.text)
    if all_of_them is not None and all_of_them[1] == all_of_them[2]:
        return line.event(WorkersEnded, everywhere=True, of_a_script=True)
    if not _SCRIPT.match(line.text) or _OF_ONE.search(line.text):
        return None
    # a launcher ends with 0 where all its workers did
    return line.event(WorkersEnded, everywhere=_LAUNCHER.search(line.text) is not None, of_a_script=True)


def _served(line: Line) -> Served | None:
    load = _LOAD.search(line.text)
    if load is not None:
        busy = float(load[1]) > 0
        return line.event(Served, well=busy) if busy or int(load[2]) else None
    decoded = _DECODED.search(line.text)
    if decoded is not None:
        return line.event(Served, well=float(decoded[1]) > 0)
    if _WAITS.search(line.text):
        return line.event(Served, well=False)
    return line.event(Served, well=True) if _ANSWERED.search(line.text) else None


def _says_so(line: Line) -> bool:
    """Return whether somebody writes in a line that the job hangs."""
    prefix = (
        line.source,
        line.level,
        line.rank,
        line.local_rank,
        line.task,
        line.host,
        line.time,
        line.stamp,
    )
    return not any(part is not None for part in prefix) and complains(line.raw)
