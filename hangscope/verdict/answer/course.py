"""How far a job was by its text: its last progress and stage, whether it still moves or is over, and the last line of a text without errors."""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.line_groups import tells_of_trouble
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.messages import Message, Notice
from hangscope.ingest.job_logs.progress import Progress, Served, WorkersEnded
from hangscope.ingest.lines.rank_words import ranks_titled
from hangscope.ingest.lines.vocabulary import Stage, of_people, stage_named
from hangscope.model.events import Event
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, message_of
from hangscope.verdict.phrasing import short
from hangscope.verdict.status import harmless_at_an_end, trouble

_SAME = 60  # characters by which a line is known again
_TELLING = frozenset({"saving", "validation", "warming up", "serving"})  # stages that say more than a step
_BUILT = "communicator"  # a stage that says more where nothing failed
_STARTED = "server_started"  # of knowledge/messages
_BAR = regex(r"\d/\d{1,12} \[[^\]]{1,200}(?:it/s|s/it)[^\]]{0,200}\]$")  # a progress bar alone
_ALL = regex(r"(?i)\b(?:training|job|run|fit)\b.{0,20}\b(?:finished|completed?|done|ended|over)\b|all epochs")
#: What lines of programs have and sentences of people do not.
_OF_A_PROGRAM = regex(r"[\[\](=|%<>/]|: ?\S|\d \||^\s{0,20}\S{1,24} \S{1,24}(?: \S{1,24})?$")
_ADVANCES = "the job still advances where the text ends"
_STACKS = "a stack of every process (py-spy dump --pid PID), twice, a minute apart"
_PROFILE = "a profile of one early and of one late step (torch.profiler, or py-spy record): which calls became more or longer"
_IN_A_STRETCH = "what every process does in such a stretch (compilation, loader workers that start, reading, checkpointing): its stack at that time (py-spy dump --pid PID)"


def excerpt_of(case: Case) -> Excerpt | None:
    """Return the text as a whole; of several the last one that shows a stage."""
    texts = case.statements.all(Excerpt)
    return next((e for e in reversed(texts) if e.stage), texts[-1] if texts else None)


def complaint_of(case: Case) -> str:
    """Return what the reporter writes about the hang, empty where nobody does."""
    return next((e.complaint for e in case.statements.all(Excerpt) if e.complaint), "")


def _stage(case: Case) -> Stage | None:
    text = excerpt_of(case)
    return stage_named(text.stage) if text is not None else None


def course(case: Case) -> str:
    """Return a sentence on how far the job was; empty where no step, and no stage that says more than one, shows it."""
    last, text, stage = _last_progress(case), excerpt_of(case), _stage(case)
    telling = stage is not None and (stage.name in _TELLING or (stage.name == _BUILT and not trouble(case)))
    if trouble(case) and (done := _said_done(case)) is not None:
        return f"The program had printed that it was done: '{short(done.text)}'"
    if stage is not None and telling and text is not None and text.stage_line:
        return f"The job was {stage.phrase}: '{short(text.stage_line)}'"
    if (before := _before_the_errors(case, last)) and last is None:
        return f"The program's last line before the errors is '{short(before)}'"
    if last is None:
        return ""
    steps = went_on(case)
    more = f"; the program's last line before the errors is '{short(before)}'" if before else ""
    return f"{f'{steps}; the' if steps else 'The'} last progress shown is '{short(last.text)}'{more}"


def _before_the_errors(case: Case, last: Progress | None) -> str:
    """Return the program's last line before the errors of a text, where it comes after the last progress."""
    texts = case.statements.all(Excerpt)
    if len(texts) != 1 or texts[0].before is None:
        return ""
    number, text = texts[0].before
    return text if last is None or (last.file == texts[0].file and last.line < number) else ""


def went_on(case: Case) -> str:
    """Return from where to where the steps of a text count, empty where they do not."""
    text = excerpt_of(case)
    return f"The steps went on from {text.went_on}" if text is not None and text.went_on else ""


def silence(case: Case) -> str:
    """Return a phrase about a long gap between the lines in the middle of a text; empty if there is none."""
    text = excerpt_of(case)
    return text.silence if text is not None and not text.gave_up else ""


def _said_done(case: Case) -> Progress | None:
    """Return the last line in which the program says that the whole of it is done."""
    ends = [e for e in case.statements.all(Progress) if (e.over or e.done) and e.epoch is None]
    said = [e for e in ends if _ALL.search(e.text) and not of_people(e.text)]
    return max(said, key=lambda e: (e.file, e.line), default=None)


def _last_progress(case: Case) -> Progress | None:
    """Return the last line that counts steps or epochs."""
    failed = {(e.file, e.line) for e in trouble(case)}  # two writers share a line now and then
    written = {(text.file, number) for text in case.statements.all(Excerpt) for number in text.written}
    complaint = complaint_of(case)
    counted = (
        e
        for e in case.statements.all(Progress)
        if (e.step is not None or e.epoch is not None)
        and ((e.file, e.line) not in failed or _BAR.search(e.text))
        and _OF_A_PROGRAM.search(e.text)
        and not of_people(e.text)
        and (e.file, e.line) not in written
        and not e.text.startswith("#")  # the head of a table
        and not ranks_titled(e.text, above_a_stack=True)
        and short(e.text) != short(complaint)
    )
    return max(counted, key=lambda e: (e.file, e.line), default=None)


def over(case: Case) -> Observation | None:
    """Read the end of a job that finished, of a server's start, or of a server that answers again, where no line after it reports trouble.

    What a reporter writes of a hang was seen before such an end, or is not in the text.
    """
    if excerpt_of(case) is None or _harmful(case):
        return None
    progress = case.statements.all(Progress)
    ended: list[Event] = [e for e in progress if e.over or e.leaving or (e.done and _ALL.search(e.text))]
    if {e.rank for e in progress} - {e.rank for e in ended} - {None} and None not in {e.rank for e in ended}:
        ended = []  # some ranks left, and others did not
    last_of_all = all(e.step == e.total for e in progress[-1:])
    if not ended and last_of_all:
        ended = [e for e in case.statements.all(WorkersEnded) if e.of_a_script]
    stalls = case.statements.all(NoProgress)
    if last := max(ended, key=lambda e: e.line, default=None):
        text = "only if a process is still there: its stack (py-spy dump --pid PID) and how long it has been there"
        hang, texts = "these lines show no hang", case.statements.all(Excerpt)
        if says_it_hangs(case.statements):
            hang = "no line shows the hang that the reporter describes"
            if not case.statements.exits and last.rank is not None:
                hang = "no line shows that the processes ended, and according to the reporter they did not"
        slow = next((e.slow or e.pace for e in texts if e.slow or e.pace), "")
        said = "its exit code is 0" if last.text.strip() == "0" else f"'{short(last.text)}'"
        shows = f"the job finished: {said}; {hang}{f'; {slow}' if slow else ''}"
        if slow:
            text = _IN_A_STRETCH if any(e.slow for e in texts) else _PROFILE
        return Observation(shows, text, "stack", events=(last,))
    text = "only if requests are not answered now: a stack of every worker (py-spy dump --native) during one"
    stalled = max(((s.file, s.line) for s in stalls), default=("", 0))
    answers = [e for e in case.statements.all(Served) if e.well and stalled < (e.file, e.line)]
    if answers and stalls:
        shows = f"the server answered requests after these lines: '{short(answers[-1].text)}'; these lines show no hang"
        work = max(case.statements.all(Excerpt), key=lambda e: e.lasted, default=None)
        longest = short(work.lasted_line) if work is not None else ""
        shows += f"; the longest work before was '{longest}'" if longest else ""
        return Observation(shows, text, "stack", events=(answers[-1],))
    notices = [e for e in case.statements.all(Notice) if not of_people(e.text)]
    last_notice = max(notices, key=lambda e: e.line, default=None)
    if last_notice is None or last_notice.id != _STARTED:
        return None
    if complaint_of(case) and not (stalls and stalled < (last_notice.file, last_notice.line)):
        return None
    shows = f"the server finished its start: '{short(last_notice.text)}'; these lines show no hang"
    return Observation(shows, text, "stack", events=(last_notice,))


def advances(case: Case) -> bool:
    """Return whether a text shows steps that are slow and go on, or that went on after trouble, and nobody states that they stopped."""
    text, seen = excerpt_of(case), moving(case)
    if text is None or seen is None:
        return False
    slow = bool(text.slow) or (bool(text.pace) and seen.shows.endswith("not hung"))
    before = (*trouble(case), *case.statements.all(Message))
    survived = seen.shows.startswith(_ADVANCES) and any(e.line < text.steady_to for e in before)
    return slow or (survived and not says_it_hangs(case.statements))


def moving(case: Case) -> Observation | None:
    """Read lines that continue at an even pace after all trouble, or steps to the end of a text without trouble."""
    text = excerpt_of(case)
    if text is None:
        return None
    after = all(e.file == text.file and e.line < text.steady_to for e in trouble(case))
    if text.slow and (text.moves or text.went_on or text.steady) and not _harmful(case):
        end = "these lines show no hang" if says_it_hangs(case.statements) else "it is not hung"
        shows = f"{text.slow}: the job was slow there, and {end}"
        return Observation(shows, _IN_A_STRETCH, "stack", events=(text,))
    if text.steady and after and not text.pace:
        counts = f"its steps went on from {text.went_on}" if text.went_on else text.steady
        shows = f"{_ADVANCES}, and these lines show no hang: {counts}"
        wanted = f"whether the next such line followed; if not, {_STACKS}; if so, where the time goes in each interval (input, compute, communication, offload)"
        return Observation(shows, wanted, events=(text,))
    since = f" ({text.moves})" if text.moves else ""
    if not (text.pace or (text.moves and not text.complaint)) or _harmful(case):
        return None
    shows = f"the steps continue to the end of the text{since}"
    if text.pace:
        shows += f", {text.pace}: the job is slow, not hung"
        wanted = "the time of each phase (data, forward, backward) on every rank, with the clocks and throttle reasons of the GPUs (nvidia-smi -q -d PERFORMANCE), memory and disk while it is slow"
        return Observation(shows, wanted, events=(text,))
    wanted = f"how long nothing was printed after that line; if minutes, {_STACKS}"
    return Observation(f"{shows}; these lines show no hang", wanted, "stack", events=(text,))


def _harmful(case: Case) -> bool:
    """Return whether lines report trouble; a warning of no progress is over where something follows."""
    return any(not (isinstance(e, NoProgress | HorovodStall) or harmless_at_an_end(e)) for e in trouble(case))


def unfinished(case: Case) -> Observation | None:
    """Find the line that used to follow the last one and no longer does: of lines that ranks print in turns, numbers apart."""
    text = next((e for e in case.statements.all(Excerpt) if e.broken), None)
    if text is None:
        return None
    wanted = "NCCL_DEBUG=INFO of every rank for that last operation: how far its communicator comes on each"
    shows = f"the lines repeat a pattern that breaks off: {text.broken}"
    return Observation(shows, wanted, proves=True)


def last_line(case: Case) -> Observation | None:
    """Quote the most telling last line, with the stage that it shows and what to collect at that stage."""
    text, stage, complaint = excerpt_of(case), _stage(case), complaint_of(case)
    if text is None:
        return None
    last = _last_progress(case) if of_people(text.text) else None
    line, far = short(message_of(last or text)).rstrip(" |,;:"), course(case)
    staged = far.startswith("The job was") and line.rstrip("…")[-_SAME:] not in far
    where = f"the job was {stage.phrase} when the text ended; " if stage is not None and not staged else ""
    if tells_of_trouble(text.text):
        wanted = "the lines before it, of that process and of the others: the first error of any of them, and the last line of each"
        return Observation(f"{where}the last error is '{line}'", wanted)
    shows = f"{where}the last line is '{line}'"
    if complaint:
        shows += f"; '{short(complaint)}' is the reporter's description, and the log itself shows no hang"
    wanted = f"{_STACKS}, and how long nothing was printed"
    return Observation(shows, *((stage.collect, stage.what) if stage is not None else (wanted, "stack")))
