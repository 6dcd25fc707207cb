"""The last sign of progress of each writer: a step count, the end of a loop; and lines that show that a job ended well, or serves.

    app r1: train step 2 done
    epoch done 1
     45%|####5     | 450/1000 [00:10<00:12, 44.2it/s]

    [launch.sh] torchrun exit code: 0, elapsed 00:41:13
    srun: job 812 step 0 completed, all 16 tasks exited with exit code 0
    INFO 02-26 11:43:10 [loggers.py:123] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg generation throughput: 211.0 tokens/s, Running: 6 reqs
    INFO:     10.8.0.4:51020 - "POST /v1/completions HTTP/1.1" 200 OK

Most such lines have no fixed form and there are millions of them, so only the text just before an error and at the end of a log is read
for them. (Scripts around a job; vllm/v1/metrics/loggers.py; sglang/srt/managers/scheduler.py; uvicorn's access log.) Whoever writes that
a job hangs saw what no line shows: next to such words a good end does not count.
"""

from __future__ import annotations

from dataclasses import replace

from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.vocabulary import complains, of_people, states_a_hang, words
from hangscope.model.events import Event


class Progress(Event):
    """The last line of a rank's output that counts steps (of `total`, where it says so), or one that says that a loop or epoch ended (`done`) or that the process stops (`leaving`).

    `over`: it says no more than that the whole job is over, or that the process ends well.
    `pace` is how many seconds before it the same was printed of the step before, where both carry times.
    """

    step: int | None = None
    pace: float | None = None
    total: int | None = None
    epoch: int | None = None
    done: bool = False
    leaving: bool = False
    over: bool = False


class LoopLength(Event, calm=True):
    """A rank prints how many steps (`total`) its loop has, before it begins or after its end."""

    total: int


def sort_of(event: Progress | LoopLength | None) -> str:
    """Return what a line says: of the lines of one writer that say the same, the last one counts."""
    if not isinstance(event, Progress):
        return "length"
    counts = event.step is not None or event.epoch is not None or not event.over
    return "leaving" if event.leaving else "done" if event.done else "" if counts else "over"


def paced(event: Progress | LoopLength, before: Line | None) -> Progress | LoopLength:
    """Return an event with how long after the line before it, of the same wording, it was printed."""
    if before is None or isinstance(event, LoopLength) or event.step is None or event.in_the_year is None:
        return event
    earlier = progress_of(before)
    moment = earlier.in_the_year if earlier is not None else None
    if moment is None or moment > event.in_the_year:
        return event
    return replace(event, pace=event.in_the_year - moment)


def progress_of(line: Line) -> Progress | LoopLength | None:
    """Return what a line says of the progress of its writer."""
    if not words("may_progress").search(line.text) or words("no_progress").search(line.text):
        return None
    if line.source and not line.source.rpartition(":")[0].endswith(".py"):
        return None
    done = words("loop_ended").search(line.text)
    epoch = words("epoch").search(line.text)
    bar = words("progress_bar").search(line.text)
    if line.text.startswith(("  ", "\t")) and not bar:  # Megatron's lines of iterations begin with one blank
        return None  # a line of a traceback or of a report
    if bar and words("loads").search(line.text, 0, bar.start()):
        return None
    if not bar and (length := words("loop_length").match(line.text)):
        return line.event(LoopLength, total=int(length[1] or length[2]))
    counted = (
        bar
        or words("step").search(line.text)
        or (words("count_in_brackets").search(line.text) if epoch else None)
    )
    leaving = words("leaves").search(line.text)
    over = words("over").search(line.text)
    if done is None and counted is None and epoch is None and leaving is None and over is None:
        return None
    if counted is None and line.rank is None and line.source is None and of_people(line.text):
        return None
    of = (
        words("of_total").match(line.text, counted.end(1))
        if counted
        else words("steps_of_loop").search(line.text)
        if done
        else None
    )
    return line.event(
        Progress,
        total=int(of.group(1)) if of else None,
        step=int(counted.group(1)) if counted else None,
        epoch=int(epoch.group(1)) if epoch else None,
        done=bool(done and not leaving),
        leaving=bool(leaving),
        over=bool(over),
    )


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


class Served(Event, same_by=("well",), by_launcher=True, calm=True):
    """The last line of an inference server's load: it generates or answered (`well`), or holds requests and generates nothing."""

    well: bool


def good_end_of(line: Line, *, asked: bool = False) -> Event | None:
    """Return what a line reports: that a script ended well, or a server's load. `asked`: a shell was asked for the exit code."""
    if asked and line.text.strip() == "0":
        return line.event(WorkersEnded, everywhere=False, of_a_script=True)
    return (_end(line) or _served(line)) if words("may_end").search(line.text) else None


def _end(line: Line) -> WorkersEnded | None:
    of_all = words("all_ended").search(line.text)
    everywhere = of_all is not None and of_all[1] == of_all[2]
    if not everywhere:
        if not words("script_ended").match(line.text) or words("of_one_process").search(line.text):
            return None
        # a launcher ends with 0 where all its workers did
        everywhere = words("launchers").search(line.text) is not None
    return line.event(WorkersEnded, everywhere=everywhere, of_a_script=True)


def _served(line: Line) -> Served | None:
    load = words("server_load").search(line.text)
    if load is not None:
        busy = float(load[1]) > 0
        return line.event(Served, well=busy) if busy or int(load[2]) else None
    decoded = words("server_decoded").search(line.text)
    if decoded is not None:
        return line.event(Served, well=float(decoded[1]) > 0)
    if words("server_waits").search(line.text):
        return line.event(Served, well=False)
    return line.event(Served, well=True) if words("server_answered").search(line.text) else None


def is_complaint(line: Line) -> bool:
    """Return whether somebody writes in a line that the job hangs."""
    who = (line.rank, line.local_rank, line.task, line.host)
    prefix = (line.source, line.level, line.time, line.stamp, *who)
    asks = "?" in line.raw and not states_a_hang(line.raw)
    return prefix == (None,) * len(prefix) and complains(line.raw) and not asks
