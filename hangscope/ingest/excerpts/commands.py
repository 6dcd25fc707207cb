"""What a text shows of commands and settings: those of several hosts side by side, a launcher's processes, and what makes a job run.

gpu-b06 $ ulimit -l
unlimited
gpu-b07 $ ulimit -l
64

$ pdsh -w gpu-b06,gpu-b07 ulimit -l
gpu-b06: unlimited
gpu-b07: 64

0: I0114 10:20:31 launcher/api.py:194]   run_id           : 21903
1: I0114 10:20:31 launcher/api.py:194]   run_id           : 7466

node-a:
server_args=ServerArgs(tp_size=16, node_rank=0, cuda_graph_max_bs=160)
node-b:
server_args=ServerArgs(tp_size=16, node_rank=1, cuda_graph_max_bs=512)

ml  50048      1  0.0  S   python -m torch.distributed.launch --nproc_per_node 4 train.py       (ps -ef, ps aux, top -c)
ml  50051  50048 99.1  Rl  python -u train.py --local_rank=1
ml  50731  50051  0.6  Sl  python -u train.py --local_rank=1                                    a worker of its loader

With NCCL_P2P_DISABLE=1 it works.                a sentence
$ NCCL_IB_DISABLE=1 torchrun train.py            another run, and what it printed
all ranks done, success
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.lines.vocabulary import statements_of, words
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_PROMPT = regex(
    r"^(?:\[?[\w.-]{1,40}@)?(?P<host>[A-Za-z][\w.-]{0,60})?[\]:~/\w -]{0,40}[$#] (?P<command>[a-zA-Z./]\S{0,60}(?: .{0,200})?)$"
)
_MASK = regex(r"(?<![\w.:])\d[\d.,]*(?!\w)")
# as pdsh and its kind print it
_OF_A_HOST = regex(r"^(?P<host>[A-Za-z][\w.-]{1,60}): {1,40}(?P<line>\S.{0,200})$")
#: a name and one value, which says how something is set or what it is, and not which one it is or how far it came
_SETTING = regex(
    r"(?i)^(?!.{0,30}(?:g?uid|\bid\b|lid|addr|mac|serial|time|temp|power|pid|count|bytes|packets|[rt]x|used|free))[\w .-]{2,30}[:=]\s{1,20}\S{1,40}(?: \(\d{1,6}\))?$"
)
_LINES, _MOST = 40, 8  # of one output, and differences and outputs that are kept
_WIDTH = 200  # characters of a line


@dataclass(frozen=True, slots=True)
class Unlike:
    """A line of the output of one command that is other on another host: (host, line) of both."""

    command: str
    one: tuple[str, str]
    other: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, up to the next empty line."""

    command: str
    lines: tuple[str, ...]


def commands(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[Unlike, ...], tuple[Output, ...]]:
    """Return the commands that prompts show, in their order, the lines in which the outputs of one on two hosts differ, and all outputs."""
    run: list[str] = []
    shown: list[tuple[str, list[str]]] = []
    outputs: dict[str, dict[str, list[str]]] = defaultdict(dict)
    output: list[str] | None = None
    for line in lines:
        prompt = _PROMPT.match(line)
        if prompt is not None:
            run.append(prompt["command"])
            shown.append((prompt["command"], []))
            output = outputs[prompt["command"]].setdefault(prompt["host"], []) if prompt["host"] else None
        elif not line.strip():
            output = None
            shown.append(("", []))
        elif output is not None and len(output) < _LINES:
            output.append(line.strip())
        elif run and (own := _OF_A_HOST.match(line)) is not None:
            known, said = outputs[run[-1]].setdefault(own["host"], []), own["line"].strip()
            if len(known) < _LINES and (" " not in said or _SETTING.match(said)):
                known.append(said)
        if prompt is None and shown and len(shown[-1][1]) < _LINES:
            shown[-1][1].append(quote(line.strip(), _WIDTH))
    found = [unlike for command, by_host in outputs.items() for unlike in _unlike(command, by_host)]
    kept = (Output(command, tuple(said)) for command, said in shown if command and said)
    return tuple(dict.fromkeys(run)), tuple(found[:_MOST]), tuple(islice(kept, _MOST))


def _unlike(command: str, by_host: dict[str, list[str]]) -> list[Unlike]:
    """Return the lines that two hosts print differently; of a line with other words than a number, numbers alone may vary."""
    if len(by_host) != 2:
        return []
    (one, first), (other, second) = by_host.items()
    return [
        Unlike(command, (one, a), (other, b))
        for a, b in zip(first, second, strict=False)
        if a != b and (" " not in a or _SETTING.match(a) or _MASK.sub("#", a) != _MASK.sub("#", b))
    ]


#: who prints what follows: srun's task, a launcher's tag, or a title of its own
_WRITER = regex(
    r"^ {0,4}(?P<task>\d{1,4}): |^\[(?P<tag>[\w.-]{1,40})\][: ]|^(?P<host>[A-Za-z][\w.-]{0,40}\d): "
)
_TITLE = regex(
    r"^[#=*> -]{0,8}(?:log of |on |from )?(?P<name>(?:(?i:node|host|machine|server|rank|worker|pod)[ _-]?)?[A-Za-z]?[\w.-]{0,24}?[\w])[ =*-]{0,4}:?[ =*-]{0,8}$"
)
_PAIR = regex(r"(?<![\w.-])([A-Za-z][\w.-]{2,40}?) {0,20}[:=] ?['\"]?([\w./:@+-]{1,60})")
_MEASURED = regex(r"-?\d{1,9}\.\d{1,9}$|-?\d{1,9}(?:\.\d{1,9})?(?:ms|s|GB|MB|GiB|MiB|%|it/s)$")
_AGREED, _MOST_UNLIKE = (
    3,
    2,
)  # settings on which both agree at least, and that differ: more are those of another program


def unlike_settings(lines: Sequence[str]) -> tuple[Unlike, ...]:
    """Return the settings with two values in a text, one for each of its writers, where nearly all others agree."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for writer, name, value in _stated(lines):
        values[name][writer].add(value)
    agreed, unlike = 0, []
    for name, by_writer in values.items():
        if len(by_writer) < 2 or any(len(found) != 1 for found in by_writer.values()):
            continue
        first: dict[str, str] = {}
        for writer, (value,) in by_writer.items():
            first.setdefault(value, writer)
        if len(first) == 1:
            agreed += 1
        elif len(first) == 2 and not any(_MEASURED.match(value) for value in first):
            (one, a), (other, b) = first.items()
            unlike.append(Unlike(name, (a, one), (b, other)))
    return tuple(unlike) if len(unlike) <= _MOST_UNLIKE and agreed >= _AGREED else ()


def _stated(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (who prints it, the setting, its value) of the lines of each writer."""
    section = ""
    for line in lines:
        if (writer := _WRITER.match(line)) is not None:
            who, text = next(filter(None, writer.groups())), line[writer.end() :]
        else:
            title = _TITLE.match(line.strip())
            section = (
                title["name"] if title is not None and line.rstrip().endswith((":", "=", "#")) else section
            )
            who, text = section, line
        for name, value in _PAIR.findall(text) if who else ():
            if words("must_agree").search(name) and not words("own_setting").search(name):
                yield who, name, value


_MOST_LISTED = 64  # local ranks
_STARTS = regex(r"^\s{0,8}[\w.+-]{1,40} {1,12}(\d{2,9}) .{0,160}--nproc[_-]per[_-]node[= ](\d{1,4})\b")
_PROCESS = regex(
    r"^\s{0,8}[\w.+-]{1,40} {1,12}\d{2,9} {1,12}(\d{1,9}) .{0,160}python.{0,200} --local[_-]rank[= ](\d{1,4})\b"
)


def local_ranks_gone(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the local ranks that a list of a launcher's processes lacks; none where it lists none, or no launcher."""
    launchers = {match[1]: int(match[2]) for text in texts if (match := _STARTS.match(text))}
    if len(launchers) != 1:
        return ()
    ((launcher, count),) = launchers.items()
    listed = {int(match[2]) for text in texts if (match := _PROCESS.match(text)) and match[1] == launcher}
    return tuple(sorted(set(range(count)) - listed)) if listed and count <= _MOST_LISTED else ()


_BELOW = 8  # lines below a command


@dataclass(frozen=True, slots=True)
class Setting:
    """One entry of the table: settings whose names begin so, the path that they take out of use or choose, and what to look at then."""

    name: str
    path: str
    look: str


def setting(name: str) -> Setting:
    """Return what is known of a setting of NCCL; the last entry is of all."""
    known = (Setting(**entry) for entry in entries("lines/settings.toml", "setting"))
    return next(one for one in known if name.startswith(one.name))


def helpful_setting(texts: Sequence[str], said: str) -> str:
    """Return the name of the setting; empty where nobody says so and no run with one ends well. `said`: what people write in it."""
    for text in (sentence for part in (said, *texts) for sentence in statements_of(part)):
        if match := words("works_with_it").search(text) or words("it_makes_work").search(text):
            return match[1]
    for place, text in enumerate(texts):
        if (run := words("runs_with_it").match(text)) and any(
            words("passed").search(t) for t in texts[place + 1 : place + 1 + _BELOW]
        ):
            return run[1]
    return ""
