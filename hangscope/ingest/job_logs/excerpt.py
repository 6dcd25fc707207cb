"""A short text read as a whole, as a person reads a paste: which stage it shows, the sizes it states, its most telling last line.

    torchrun --nnodes=2 --nproc_per_node=8 train.py
    initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8
    2026-01-14 09:01:53,683 - INFO - workflow: [('train', 1)], max: 12 epochs

The words of the stages are data, in knowledge/stages/stages.toml. Longer texts are not read so: what they hold is told by their events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangscope.ingest.job_logs.line_groups import LineGroup, line_groups, tells_of_trouble
from hangscope.ingest.job_logs.text.named_processes import Named, named_processes
from hangscope.ingest.job_logs.text.pace import broken, counted, form_of, moves, pace, spread
from hangscope.ingest.job_logs.text.sections import Side, sides
from hangscope.ingest.job_logs.text.stage import Stage, stage_of_line
from hangscope.ingest.job_logs.text.steady import steady
from hangscope.ingest.lines.prefixes import Line, clean, quote
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_MOST = 1 << 15  # bytes of a text that is read so
_CUT = 600  # characters of a line that are looked at
_SHOWN = 160
_EXAMINES = regex(
    r"^(?:[\w@.:~/()-]{0,60}[$#] )(?:sudo )?(?:strace|py-spy|gdb|pstack|nvidia-smi|rocm-smi|npu-smi|dmesg|ps|top|kubectl|squeue|sacct|scontrol|ray|ibstat|ibv_\w+|journalctl|lsof|ss)\b"
)
_ENDPOINT = regex(r"rdzv[_-]endpoint['\"]? {0,8}[:= ] ?['\"]?([\w.-]{1,253}:\d{1,5})\b")
_OF_SIZE = regex(
    r"(?i)\b\d{1,6} ?(?:x|×|[gn]pus?|ranks|nodes|processes|workers|tasks)\b|\bworld\b\W{0,3}\d|\b[tpde]p\W{0,2}\d|\d ?[x×] ?[a-z]{0,2}\d|\(total\)"
)
_PAST = 3  # forms of lines
_ALIKE = str.maketrans("12345678", "99999999")
_PROSE = 8  # words
_SENTENCE = regex(r"[a-z]{2}[.,!?;](?: |$)")
_CJK = regex(r"[\u4e00-\u9fff]{4}")
_MAY = regex(
    r"(?i)\b(?:may|might|can|could)\b.{0,30}\b(?:hang|deadlock|stall)|lead to .{0,30}\bhang|\bhang detect"
)
_STEPS, _BETWEEN = "training", ("validation", "saving")  # of stages.toml
#: Sizes of the whole job; where there are two numbers it is their product.
_SIZES = regex(
    r"(?i)\bworld[ _]?size['\"]?(?: is)?[ :=]{1,3}(\d{1,7})\b|\bMEMBER: \d{1,7}/(\d{1,7})\b|\(rank=\d{1,7}, size=(\d{1,7})[,)]"
    r"|\bStarting with (\d{1,7}) processes|\bNum processes: (\d{1,7})\b|\blaunching \w{1,20}(?:\+\w{1,20})? on (\d{1,7}) ranks|\bws=(\d{1,7})\b"
    r"|\bNumNodes=\d{1,5} NumTasks=(\d{1,7})\b|(?:run|mpiexec) (?:.{0,200} )?-np? (\d{1,7})\b|\bMPI size: (\d{1,7})\b|\brank[ :=]{1,3}\d{1,7}/(\d{1,7})\b"
)
_PER_NODE = regex(
    r"(?i)\b(?:nproc|ntasks)[_-]per[_-]node[ =](\d{1,6})\b|\btrainer\.devices=(\d{1,6})\b|\bnum_local_procs=(\d{1,6})\b"
)
_NODES = regex(
    r"(?i)--n?nodes[ =](\d{1,6})(?![:\d])|\bsrun (?:-\w+ )?-N ?(\d{1,6})\b|\btrainer\.num_nodes=(\d{1,6})\b|(?<!-)\bnnodes=(\d{1,6})(?![:\d])"
)
_LOGGED = regex(
    r"\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|NCCL)\b|\d\d:\d\d:\d\d|^\[[EWIF] ?\d|\d%\||\w(?:Error|Exception)\b|^\([A-Za-z]\w{0,60} pid=|\[rank\d|^export \w|ProcessGroup[A-Z]|^\[ {0,6}\d{1,9}\.\d{6}\]"
)
#: What somebody pasted beside the log, which nobody needs to be asked for.
_EXHIBITS = {
    "kernel log": regex(r"^\[ {0,6}\d{1,9}\.\d{6}\] |\bNVRM: |\bkernel: |\bdmesg\b"),
    "pip list": regex(r"^[\w.-]{2,60} {2,40}\d{1,4}\.\d[\w.+]{0,30}$"),
}
_VERSION = regex(r"^([\w.-]{2,60}?)(?: {2,40}|==)(\d{1,4}\.\d[\w.+]{0,30})$")
_KERNEL_FRAME = regex(
    r"^\s*\[[ \d.]{3,20}\]\s{1,8}(?:\? )?([A-Za-z_][\w.]{2,80})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}(?: \[(\w{2,40})\])?"
)
_WAITS_ANYHOW = regex(
    r"_{0,3}(?:schedule|mutex|rwsem|down_|io_schedule|wait_|bit_wait|out_of_line|rt_mutex|futex|x64_sys|do_syscall|entry_|ret_from|kthread|prepare_to)"
)
#: What a reporter writes of a job that stands.
_COMPLAINS = regex(
    r"(?i)\b(?:hangs?|hanging|hung|stuck|fr[eo]ezes?|froze|frozen|stall(?:s|ed)|deadlock|unresponsive|please help|any (?:idea|help|thoughts)|nothing (?:for|happens|else|more|moves|after)|no (?:more )?(?:output|progress|response)|forever|(?:stops?|stopped) (?:here|there)|never (?:returns|finishes|ends|starts|comes back|gets? past|completes))\b|\?$|卡住|卡在|一直卡|不动"
)
_NOISE = regex(
    r"^(?:frame #\d|\s*at |#\d|\s*File \"|\s*$|[-=*~^_+|#\s]+$|\s{0,4}[|+].{0,300}[|+]\s{0,4}$|\.{2,}$|Extension modules:|```)|(?i:warnings?\.warn|deprecat)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt(Event, by_launcher=True, calm=True):
    """A short text as a whole; the event's line is its most telling last one.

    `stage` is the last one that it shows, `stage_line` the line that shows it, unless it is an error. `sizes` are the numbers of ranks that it states for
    the whole job. `complaint`: a line of a reporter's that says that it hangs. `logged`: some lines are a program's, or tell of a failure.
    `broken`: of lines that took turns, numbers apart, which one did not come any more at the end. `moves`: the first and the last count
    of lines that are alike but for their numbers, where the last of them is the end of the text. `pace`: since which count steps take twice as long or longer, or which timer differs most between ranks. `exhibits`: what else was pasted, such as a
    kernel log; `versions` (package, version) of a list of packages. `groups`: its lines, those that are alike together;
    `sides`: its labelled parts, those that show the same together; `named`: which processes its lines name. `steady`: lines alike but
    for numbers that grow, printed at even intervals, up to the line `steady_to`. `endpoint`: where the rendezvous is by the launcher's arguments;
    `sized`: some words tell of how many processes, devices or hosts there are, in whatever form. `kernel_wait`: the function that a trace of the kernel waits in.
    """

    stage: str = ""
    stage_line: str = ""
    sizes: tuple[int, ...] = ()
    complaint: str = ""
    logged: bool = False
    broken: str = ""
    moves: str = ""
    pace: str = ""
    exhibits: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    groups: tuple[LineGroup, ...] = ()
    sides: tuple[Side, ...] = ()
    kernel_wait: str = ""
    named: tuple[Named, ...] = ()
    steady: str = ""
    steady_to: int = 0
    endpoint: str = ""
    sized: bool = False


def excerpt(windows: Sequence[tuple[int, bytes]], size: int, file: str) -> Excerpt | None:
    """Return what a text of `size` bytes is as a whole; None of one that is empty or long."""
    if not windows or not 0 < size <= _MOST:
        return None
    _, data = max(windows, key=lambda window: len(window[1]))
    lines = [(n, text) for n, text in _lines(data) if text.strip()]
    if not lines:
        return None
    last, stage, stage_line, later = lines[-1], "", "", set[str]()
    shapes: dict[str, _Shape] = {}
    told, written, ours, telling = (
        list[str](),
        list[tuple[int, str]](),
        list[tuple[int, str]](),
        list[tuple[int, str]](),
    )
    for number, text in lines:
        form = text.translate(_ALIKE)
        shape = shapes.get(form) or shapes.setdefault(form, _shape(text))
        if not shape.noise:
            written.append((number, text))
            ours += [] if shape.reported else [(number, text)]
            telling += [(number, text)] if shape.trouble and not shape.reported else []
        if shape.reported:
            told.append(text)
        elif (
            shape.stage is not None
            and not shape.noise
            and not (shape.stage.name == _STEPS and stage in _BETWEEN)
        ):
            stage, stage_line, later = (
                shape.stage.name,
                "" if shape.trouble else quote(text, _SHOWN),
                set[str](),
            )
        elif not shape.noise and not shape.trouble:
            later.add(form_of(text))
    if len(later) > _PAST:  # what the program printed since shows that it went on
        stage = stage_line = ""
    complaint = quote(" ".join(told), _SHOWN)
    counts = counted(ours)
    number, text = (
        telling or [line for line in ours if not of_people(line[1])] or ours or written or [last]
    )[-1]
    line = Line(file, number, text, text)
    logged = bool(telling) or any(_LOGGED.search(text) or _EXAMINES.match(text) for _, text in ours)
    even = steady(ours)
    sizes = tuple(sorted({n for n in _sizes(lines) if 1 < n <= MAX_RANKS}))
    return line.event(
        Excerpt, stage=stage, stage_line=stage_line, sizes=sizes, complaint=complaint, logged=logged,
        broken=broken([text for _, text in ours]), moves=moves(counts, ours[-1:]), pace=pace(counts) or spread(ours),
        exhibits=tuple(name for name, shape in _EXHIBITS.items() if sum(bool(shape.search(text)) for _, text in lines) > 1),
        versions=tuple((m[1], m[2]) for _, text in lines if (m := _VERSION.match(text.strip()))), groups=line_groups(ours, _NOISE),
        sides=sides([text for _, text in lines]), kernel_wait=_kernel_wait([text for _, text in lines]),
        named=named_processes(lines), steady=even[0], steady_to=even[1],
        sized=bool(sizes) or any(_OF_SIZE.search(text) for _, text in lines if "imeout" not in text),
        endpoint=next((m[1] for _, text in lines if (m := _ENDPOINT.search(text))), ""),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shape:
    """What holds for all lines of one form, which are alike but for their digits other than 0: it is looked at once."""

    stage: Stage | None
    noise: bool
    trouble: bool
    reported: bool


def _shape(text: str) -> _Shape:
    return _Shape(
        stage_of_line(text), bool(_NOISE.search(text)), tells_of_trouble(text), _of_a_reporter(text)
    )


def _of_a_reporter(text: str) -> bool:
    """Return whether a line is what somebody writes of the job, by its words or as prose, and none of a program's."""
    if _LOGGED.search(text) or _MAY.search(text) or text.startswith("$ "):
        return False
    words = len(text.split())
    prose = _CJK.search(text) or (words >= _PROSE and _SENTENCE.search(text) and not text[:1].isspace())
    return (bool(_COMPLAINS.search(text)) and (bool(prose) or stage_of_line(text) is None)) or bool(
        _CJK.search(text)
    )


def of_people(text: str) -> bool:
    """Return whether a line is a sentence that no program prints."""
    return len(text.split()) >= _PROSE and not _LOGGED.search(text) and bool(_SENTENCE.search(text))


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each line, of a progress bar its last state."""
    for number, raw in enumerate(data.split(b"\n"), 1):
        shown = raw.rstrip(b"\r").rpartition(b"\r")[2][: 4 * _CUT]
        yield number, clean(shown.decode("utf-8", "replace"))[:_CUT].rstrip()


def _kernel_wait(lines: Sequence[str]) -> str:
    """Return the innermost function of a kernel's trace that belongs to a driver or a file system, empty where there is none."""
    frames = [m for text in lines if (m := _KERNEL_FRAME.search(text)) and not _WAITS_ANYHOW.match(m[1])]
    frame = next((m for m in frames if m[2]), frames[0] if frames else None)
    return "" if frame is None else frame[1] + (f" [{frame[2]}]" if frame[2] else "")


def _sizes(lines: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the sizes of the whole job that lines state, by name or as nodes times processes of a node."""
    per_node, nodes = set[int](), set[int]()
    for _, text in lines:
        for match in _SIZES.finditer(text):
            yield int(next(filter(None, match.groups())))
        per_node |= {int(next(filter(None, m.groups()))) for m in _PER_NODE.finditer(text)}
        nodes |= {int(next(filter(None, m.groups()))) for m in _NODES.finditer(text)}
    one_node = not nodes and not any("nnodes" in text for _, text in lines)  # torchrun's default
    if len(per_node) == 1 and (len(nodes) == 1 or one_node):
        yield per_node.pop() * (nodes.pop() if nodes else 1)
