"""How far a job was by its text: steps, stage, the last telling line, what broke a pattern, and how somebody ended it."""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.causes.ends.whose import whose
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.line_groups import tells_of_trouble
from hangscope.ingest.job_logs.messages import Message, Notice
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.text.vocabulary import Stage, of_people, stages
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, who
from hangscope.verdict.status import harmless_at_an_end, trouble

_SHOWN = 110
_SAME = 60  # characters by which a line is known again
_TELLING = frozenset({"saving", "validation", "warming up", "serving"})  # stages that say more than a step
#: What an error says whose process timed out or lost a peer; other errors that several ranks raise are no waits.
_OF_A_WAIT = regex(
    r"(?i)tim(?:ed?|e)[ -]?out|timeout|clos(?:ed|ing)|reset by|refused|broken pipe|remote process|unreachable|no route|waiting for|did(?:n't| not)"
)
_AWAITED = regex(
    r"(?i)\bwaiting (?:for|on) ((?!\d+ ?(?:ms|s)\b)[\w][^,;:()]{2,60}?)(?:$|[,;:(]|\. |\.$| (?:to|after|for|in) )"
)
_ALL = regex(r"(?i)\b(?:training|job|run|fit)\b.{0,20}\b(?:finished|completed?|done|ended|over)\b|all epochs")
#: What a log puts before its message.
_LOGGED = regex(r"^.{0,90}?\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b[\]:|\s-]{1,8}")
_BUILT = "communicator"  # a stage that says more where nothing failed
_STARTED = "server_started"  # of knowledge/messages
_PLACE = regex(r"^\[(?:[^\s\]]{1,200}/)?[\w.]{1,60}\.(?:cc|cpp|h|hpp):\d{1,5}\] ")
_OF_A_PROGRAM = regex(
    r"[\[\](=|%<>/]|: ?\S|\d \||^\s{0,20}\S{1,24} \S{1,24}(?: \S{1,24})?$"
)  # sentences of people have no such marks
_INTERRUPT = "KeyboardInterrupt"
_OWN_INTERRUPT = regex(
    r"KeyboardInterrupt(?:: |\(['\"])\w"
)  # a handler raised it on a signal, and nobody pressed Ctrl-C


def _short(text: str) -> str:
    plain = " ".join(_PLACE.sub("", text).split())
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


def _excerpt(case: Case) -> Excerpt | None:
    """Return the text as a whole; of several the last one that shows a stage."""
    told = case.statements.all(Excerpt)
    return next((e for e in reversed(told) if e.stage), told[-1] if told else None)


def stage_of(case: Case) -> Stage | None:
    """Return the last stage that the text shows."""
    told = _excerpt(case)
    return next((s for s in stages() if told is not None and s.name == told.stage), None)


def course(case: Case) -> str:
    """Return a sentence on how far the job was; empty where no step, and no stage that says more than one, shows it."""
    last, (told, stage) = _last_progress(case), (_excerpt(case), stage_of(case))
    telling = stage is not None and (stage.name in _TELLING or (stage.name == _BUILT and not trouble(case)))
    if telling and stage is not None and told is not None and told.stage_line:
        return f"The job was {stage.phrase}: '{_short(told.stage_line)}'"
    return f"The last progress that is shown: '{_short(last.text)}'" if last is not None else ""


def _last_progress(case: Case) -> Progress | None:
    """Return the last line that counts."""
    failed = {(e.file, e.line) for e in trouble(case)}  # two writers share a line now and then
    words = {e.complaint for e in case.statements.all(Excerpt) if e.complaint}
    told = (
        e
        for e in case.statements.all(Progress)
        if (e.file, e.line) not in failed
        and _OF_A_PROGRAM.search(e.text)
        and not of_people(e.text)
        and not e.text.startswith("#")  # a table's head
        and not any(_short(e.text) == _short(text) for text in words)
    )
    counted = [e for e in told if e.step is not None or e.epoch is not None]
    return max(counted, key=lambda e: (e.file, e.line), default=None)


def over(case: Case) -> Observation | None:
    """Read the end of a job that ended well, or a server that came up behind what it waited for, where no line tells of trouble."""
    told = _calm(case)
    if told is None:
        return None
    ended = [
        e for e in case.statements.all(Progress) if e.over or e.leaving or (e.done and _ALL.search(e.text))
    ]
    if last := max(ended, key=lambda e: e.line, default=None):
        shows = f"the job ended: '{_short(last.text)}'"
        means = "That is the end of a run that finished. What is printed after it (a store that is gone, communicators that are aborted, leaked semaphores) belongs to the shutdown: nothing here shows a hang."
        text = "only if a process is still there: its stack (py-spy dump --pid PID) and how long it has been there"
        return Observation(shows, means, Collect((), "stack", text), events=(last,))
    notices = [e for e in case.statements.all(Notice) if not of_people(e.text)]
    started = max((e for e in notices if e.id == _STARTED), key=lambda e: e.line, default=None)
    if started is None or any(e.line > started.line for e in notices):
        return None
    shows = f"the server finished its start: '{_short(started.text)}'"
    means = "What is reported before it (a wait for a shared-memory block, compilation, graph capture) was over by then: nothing here shows a hang."
    text = "only if requests are not answered now: a stack of every worker (py-spy dump --native) while one is open"
    return Observation(shows, means, Collect((), "stack", text), events=(started,))


def moving(case: Case) -> Observation | None:
    """Read lines that go on evenly behind whatever tells of trouble, or steps to the end of a text that tells of none."""
    told = _excerpt(case)
    if told is None:
        return None
    behind = all(e.file == told.file and e.line < told.steady_to for e in trouble(case))
    if told.steady and behind and not told.pace:
        shows = f"the job still advances where the text ends: {told.steady}"
        means = "What is shown moves evenly, so it may be slow, and is no stop. It stands only if nothing followed for much longer than that interval."
        text = "whether the next such line came. If it did, where that time goes in each interval (input, compute, communication, offload or swapping)"
        if told.complaint and "?" not in told.complaint:
            means = f"So these lines show no stop by themselves; that it stands since then is the reporter's word: '{_short(told.complaint)}'."
            text = "a stack of every process (py-spy dump --pid PID) now, twice, a minute apart"
        return Observation(shows, means, Collect((), "log", text), events=(told,))
    if not (told.pace or (told.moves and not told.complaint)) or _harmful(case):
        return None
    shows = f"the steps go on to the end of the text ({told.moves})"
    if told.pace:
        shows += f", {told.pace}"
        why = (
            "one rank or host is slower than the others, which wait for it in every step"
            if "across ranks" in told.pace
            else "something changed at that moment and stayed so, such as a throttled GPU, one slow rank or host, swapping, or storage that cannot keep up"
        )
        means = f"It is slow and not stuck: {why}."
        text = "the time of each phase (data, forward, backward) on every rank, with the clocks and throttle reasons of the GPUs (nvidia-smi -q -d PERFORMANCE), memory and disk while it is slow"
        return Observation(shows, means, Collect((), "log", text), events=(told,))
    means = "Nothing here shows a stop: the job moved as long as it was watched."
    text = "how long nothing was printed after that line; if minutes, a stack of every process (py-spy dump --pid PID)"
    return Observation(shows, means, Collect((), "stack", text), events=(told,))


def _calm(case: Case) -> Excerpt | None:
    """Return the text as a whole, where nobody complains in it and no line tells of trouble."""
    told = _excerpt(case)
    return told if told is not None and not told.complaint and not _harmful(case) else None


def _harmful(case: Case) -> bool:
    """Return whether lines tell of trouble; a warning of no progress is over where something follows."""
    return any(not (isinstance(e, NoProgress) or harmless_at_an_end(e)) for e in trouble(case))


def interrupted(case: Case) -> Observation | None:
    """Read an interrupt by hand."""
    told = next((e for e in case.statements.all(Excerpt) if _INTERRUPT in e.text or "^C" in e.text), None)
    raised = [e for e in case.statements.all(RankException) if e.type == _INTERRUPT]
    by_a_program = any(_OWN_INTERRUPT.search(e.text) for e in (*raised, *((told and (told,)) or ())))
    if by_a_program or (told is None and not raised):
        return None
    frame = next((f for e in raised if (f := user_frame(e.frames)) is not None), None)
    if frame is not None:
        shows = f"somebody interrupted the job by Ctrl-C (KeyboardInterrupt) while it was at {frame}"
        means = "Where an interrupt finds a process is where it was at that moment; it does not tell for how long."
    else:
        shows = (
            "somebody interrupted the launcher by Ctrl-C (KeyboardInterrupt) while it waited for its child"
        )
        means = (
            "That is where a launcher always is, so it tells neither of a hang nor how long the silence was."
        )
    text = "how long nothing was printed; next time a stack of every worker (py-spy dump --pid PID) before the interrupt"
    return Observation(shows, means, Collect((), "stack", text), events=tuple(raised))


def exceptions(case: Case) -> Observation | None:
    """Read the first exception that is a fault of its own."""
    told = [
        e for e in case.statements.all(RankException) if e.type and not e.symptom and e.type != _INTERRUPT
    ]
    known = {(e.file, e.line) for e in case.statements.all(Message)}  # which say more
    if not told or (told[0].file, told[0].line) in known:
        return None
    first = told[0]
    frame = user_frame(first.frames)
    at = f" at {frame}" if frame is not None else ""
    subject = whose(case, [first])
    shows = (
        f"{subject} raised {first.type.rsplit('.', 1)[-1]}{at}: {_short(first.message)}"
        if first.message
        else f"{subject} raised {first.type}{at}"
    )
    suspects = (first.rank,) if first.rank is not None else ()
    wanted = None
    if not first.frames:  # whoever pasted the last line alone
        text = f"the traceback that belongs above that line, of {who(suspects, 'that process')}"
        wanted = Collect(suspects, "log", text)
    return Observation(shows, "", wanted, suspects, True, True, (first,))


def waiting_exceptions(case: Case) -> Observation | None:
    """Read an exception that is itself a timeout or the report of a lost peer: its process was waiting."""
    symptoms = (e for e in case.statements.all(RankException) if e.symptom and e.type)
    told = [e for e in symptoms if _OF_A_WAIT.search(f"{e.type} {e.message}")]
    if not told:
        return None
    first = told[0]
    frame = user_frame(first.frames)
    at = f" at {frame}" if frame is not None else ""
    shows = f"{whose(case, told)} raised {first.type.rsplit('.', 1)[-1]}{at}: {_short(first.message)}".rstrip(
        ": "
    )
    awaited = next((m[1] for e in told if (m := _AWAITED.search(e.message))), "")
    means = "That is the end of a wait and not the cause: the question is for whom it waited."
    text = "the lines of all other ranks before that moment: the first error, or the rank that prints none"
    if awaited:
        means = f"That is the end of a wait and not the cause: it waited for {awaited}."
        text = f"what keeps {awaited}: its process's log and stack (py-spy dump) before that moment"
    return Observation(shows, means, Collect((), "log", text), (), True, False, tuple(told))


def last_line(case: Case) -> Observation | None:
    """Quote the most telling last line, with the stage that it shows and what to collect at that stage."""
    told, stage = _excerpt(case), stage_of(case)
    if told is None:
        return None
    complaint = next((e.complaint for e in case.statements.all(Excerpt) if e.complaint), "")
    line, far = _short(_LOGGED.sub("", told.text)), course(case)
    staged = far.startswith("The job was") and line.rstrip("…")[-_SAME:] not in far
    where = f", where the job was {stage.phrase}" if stage is not None and not staged else ""
    said = f" The reporter writes: '{_short(complaint)}'." if complaint else ""
    alone = bool(complaint) and told.text.startswith(complaint[:_SAME])
    if tells_of_trouble(told.text) and not alone:
        shows = f"the last line that tells of trouble is '{line}'{where}"
        means = f"hangscope does not know that message, so it cannot say whether it is the cause or a consequence.{said}"
        text = "the lines before it, of that process and of the others: the first error of any of them, and the last line of each"
        return Observation(shows, means, Collect((), "log", text))
    shows = f"the last line is '{line}'{where}"
    ranks = sorted({r for n in told.named for r in n.ranks})
    heard = f" Its lines name {ranks_phrase(ranks)}." if ranks else ""
    means = f"It shows how far the job was, and no more.{heard}{said}"
    if complaint:
        means = f"That it stands is the reporter's word: '{_short(complaint)}'.{heard}"
    if silent := case.statements.all(NoProgress):
        means = f"A watcher reports the silence: '{_short(silent[-1].text)}'. It names no rank and no collective.{said}"
    if alone:
        shows = f"there is the reporter's description alone: '{_short(complaint)}'"
        means = "What the job itself printed would show where it stands."
    text = "a stack of every process (py-spy dump --pid PID), twice, a minute apart, and how long nothing was printed"
    wanted = Collect((), stage.what, stage.collect) if stage is not None else Collect((), "stack", text)
    return Observation(shows, means, wanted)


def unfinished(case: Case) -> Observation | None:
    """Find the line that used to follow the last one and no longer does: of lines that ranks print in turns, numbers apart."""
    told = next((e for e in case.statements.all(Excerpt) if e.broken), None)
    if told is None:
        return None
    shows = f"the lines repeat a pattern that breaks off: {told.broken}"
    means = "What used to follow did not come for anybody that is shown, so no rank stands out: the operation itself did not finish."
    text = "NCCL_DEBUG=INFO of every rank for that last operation: how far its communicator comes on each"
    return Observation(shows, means, Collect((), "log", text), (), True)
