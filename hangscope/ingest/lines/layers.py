"""What wrappers put in front of a line, one layer at a time: launchers, log shippers, containers, torch's own loggers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from hangscope.ingest.lines.stamps import GLOG, ISO, TIME, Found, take
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

CODE = r"[\w./<>+-]{1,200}\.(?:cpp|cc|cxx|h|hpp|cu|cuh|py)"
CLOCK = r"(\d\d):(\d\d):(\d\d)"
_NO_NAME = r"(?!(?:rank|step|epoch|iter|batch|layer|cuda|stage|fold)[\d_\[-])"  # what programs count


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of prefix: what it looks like, and which fields its groups are (`stamps.take`).

    `of_writer`: it tells writers apart. `bare`: so plain that it counts only outside everything that torch prints; `outside`:
    what may stand outside of such a one.
    """

    name: str
    pattern: str
    fields: tuple[str, ...] = ()
    of_writer: bool = False
    bare: bool = False
    outside: bool = False


#: Each layer is tried at the start of what is left, at most once per name; one space is dropped after it, never more,
#: because a traceback's indentation is part of the message (mpirun 4 prints none, mpirun 5 one: then it is odd).
LAYERS = {
    layer.name: layer
    for layer in (
        Layer("rank", r"\[rank(\d{1,7})[\]\[]:? ?", ("rank",), of_writer=True),
        # Determined's task log
        Layer("rank_bars", r"\[rank=(\d{1,7})\] \|\| ?", ("rank",), of_writer=True, outside=True),
        # grep over several files, with and without line numbers; a program puts a blank behind the colon
        Layer(
            "grep",
            r"((?:[\w.-]{0,100}/){0,12}[\w.-]{1,100}\.(?:log|txt|out|err|stdout|stderr)):(?:\d{1,9}[:-])?(?=\S)",
            ("file",),
            of_writer=True,
            outside=True,
        ),
        # a launcher's own template, `[${role_name}${rank}|${local_rank}]:`
        Layer(
            "role_pipe",
            r"\[[A-Za-z_][A-Za-z_.-]{0,60}(\d{1,7})\|(\d{1,6})\]: ?",
            ("named_rank", "local_rank"),
            of_writer=True,
        ),
        # SGLang's logger: a stamp and the coordinates of the process (sglang/srt/managers/scheduler.py)
        Layer(
            "sglang",
            rf"\[(\d{{4}})-(\d\d)-(\d\d) {CLOCK}((?: (?:(?:ATTN|MOE)_)?(?:DP|PP|TP|EP|CP)\d{{1,5}}){{1,6}})\] ?",
            (*ISO, "worker"),
            of_writer=True,
        ),
        # vLLM's logger: a level, a stamp without a year, the place (vllm/logger.py)
        Layer(
            "vllm",
            rf"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) {CLOCK} \[[\w./]{{1,100}}:\d{{1,6}}\] ?",
            ("level", *TIME),
        ),
        Layer(
            "role_ranks",
            r"\[[A-Za-z_]+-(\d{1,7})-(\d{1,7})\]: ?",
            ("local_rank", "rank"),
            of_writer=True,
        ),
        Layer("role", r"\[[A-Za-z_][A-Za-z_.-]{0,60}(\d{1,7})\]:", ("local_rank",), of_writer=True),
        # Open MPI 4, and 5 (`--output tag`, `tag-fullname`, `tag-detailed`, `rank`; openpmix/src/common/pmix_iof.c)
        Layer(
            "mpi",
            r"\[(?:[\w.-]{1,253}@)?\d{1,9},(?:mpirank:)?(\d{1,7})(?:,([\w.-]{1,253}))?\](?:\[([\w.-]{1,253}):(\d{1,10})\])?"
            r"(?:<std(?:out|err|diag)>)?:(?: (?=(?: {2}){0,20}\S))?",
            ("task", "host", "host", "pid"),
            of_writer=True,
        ),
        Layer(
            "mpi_rank",
            r"\[(\d{1,7})\]<std(?:out|err|diag)>:(?: (?=(?: {2}){0,20}\S))?",
            ("task",),
            of_writer=True,
        ),
        Layer(
            "ctime",
            rf"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK} (\d{{4}})\](?:<std(?:out|err|diag)>:)? ?",
            (*TIME, "year"),
            outside=True,
        ),
        Layer(
            "ray",
            r"\((?:([A-Za-z_][\w.<>:-]{0,80})(?: rank=(\d{1,7}))?,? )?pid=(\d{1,9})(?:, ip=([\w.:]{2,64}))?\) ?",
            ("worker", "task", "pid", "host"),
            of_writer=True,
        ),
        Layer("pod", r"\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] ?", ("host",), of_writer=True, outside=True),
        Layer(
            "iso",
            rf"\[?(\d{{4}})[-/](\d\d)[-/](\d\d)[T_ ]{CLOCK}(?:[.,](\d{{1,9}}))?(?: ?(Z|UTC|[+-]\d\d:?\d\d))?\]?"
            rf"(?: [|-] |: |[ \t]|(?=\[)|$)",
            (*ISO, "fraction", "zone"),
            outside=True,
        ),
        Layer("cri", r"std(?:out|err) [FP] ", (), outside=True),
        Layer("stream", r"(?:([A-Za-z][\w.-]{0,253}) )?\[std(?:out|err)\]:? ?", ("host",), outside=True),
        Layer(
            "syslog",
            rf"([A-Z][a-z]{{2}}) ([ \d]\d) {CLOCK} ([\w.-]{{1,253}}) (?=[\w./-]{{1,64}}(?:\[\d+\])?: )",
            (*TIME, "host"),
            outside=True,
        ),
        Layer(
            "unit",
            rf"(?:([\w.-]{{1,253}}) )?{_NO_NAME}[\w./-]{{1,64}}\[(\d{{1,9}})\]: ?",
            ("host", "pid"),
            of_writer=True,
            outside=True,
        ),
        Layer(
            "glog",
            rf"\[?([IWEFVD])(\d{{1,2}})(\d\d) {CLOCK}\.(\d{{3,9}}) +(?:(\d{{1,19}}) +)?({CODE}):"
            rf"(\d{{1,6}})\] ?",
            GLOG,
        ),
        Layer("c10", rf"\[([IWEFV]) ({CODE}):(\d{{1,6}})\] ?", ("level", "code", "line")),
        Layer("logger", r"torch\.[\w.]{1,200}: \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?", ("level",)),
        Layer("root_logger", r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,200}:", ("level",)),
        Layer("number", r"\[\d{1,9}\] (?=\[rank)|\d{1,9}[ \t]{1,4}(?=\[rank|\d{4}-\d\d-\d\dT)", ()),
        Layer(
            "hydra",
            r"\[(\d{1,7})\] (?=Traceback | +\S|[\w.]{0,120}(?:Error|Exception|Interrupt|Exit)\b|terminate called|"
            r"Fatal Python error|\[[IWEF]\d?)",
            ("task",),
            of_writer=True,
            bare=True,
        ),
        Layer("debris", r"\[\d{1,2}(?:;\d{1,3}){0,4}m ?", (), outside=True),
        Layer("task", r" {0,5}(\d{1,7}): ", ("task",), of_writer=True, bare=True),
        Layer(
            "pdsh",
            rf"{_NO_NAME}([a-z][a-z0-9.-]{{0,"
            r"252}\d[a-z0-9.-]{0,252}): ",
            ("host",),
            of_writer=True,
            bare=True,
        ),
        Layer(
            "compose",
            rf"{_NO_NAME}([a-z][\w.-]{{0,100}}[-_.]\d{{1,6}}) +\| ",
            ("host",),
            of_writer=True,
            bare=True,
        ),
    )
}
_ANY = regex("|".join(f"(?P<{layer.name}>{layer.pattern})" for layer in LAYERS.values()))
_OUTSIDE = frozenset(layer.name for layer in LAYERS.values() if layer.outside)


@cache
def _own_groups() -> dict[str, slice]:
    """Return where the groups of each layer's own are among those of all."""
    numbers = [*_ANY.groupindex.values(), _ANY.groups + 1]
    return {
        name: slice(number, behind - 1)
        for (name, number), behind in zip(_ANY.groupindex.items(), numbers[1:], strict=True)
    }


def peel(text: str, found: Found, origin: list[str], before: Iterable[str] = ()) -> str:
    """Return what is left when all layers but those `before` are taken off; fill `found` and `origin`."""
    at = 0
    seen = set(before)
    for _ in range(8):
        match = _ANY.match(text, at)
        if match is None:
            break
        name = match.lastgroup or ""
        layer = LAYERS[name]
        if name in seen and name != "debris":
            break
        if layer.bare and seen - _OUTSIDE:
            break  # a bare "3: " or "node1: "
        if name == "unit" and not seen & {"iso", "syslog"}:
            break  # "python[123]: " is a name only behind a stamp
        seen.add(name)
        at = match.end()
        values = match.groups()[_own_groups()[name]]
        take(found, layer.fields, values)
        if layer.of_writer:
            whole = match.group(0).strip()
            origin.append(f"{values[0]}/" if name == "role" else values[0] if name == "rank" else whole)
    return text[at:] if at else text
