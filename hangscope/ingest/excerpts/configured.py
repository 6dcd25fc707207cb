"""Settings that two parts of a job print differently although most others agree: what each launcher, node or rank was started with.

0: I0114 10:20:31 launcher/api.py:194]   run_id           : 21903
1: I0114 10:20:31 launcher/api.py:194]   run_id           : 7466

node-a:
server_args=ServerArgs(tp_size=16, node_rank=0, cuda_graph_max_bs=160)
node-b:
server_args=ServerArgs(tp_size=16, node_rank=1, cuda_graph_max_bs=512)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hangscope.ingest.excerpts.commands import Unlike
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex

#: who prints what follows: srun's task, a launcher's tag, or a title of its own
_WRITER = regex(
    r"^ {0,4}(?P<task>\d{1,4}): |^\[(?P<tag>[\w.-]{1,40})\][: ]|^(?P<host>[A-Za-z][\w.-]{0,40}\d): "
)
_TITLE = regex(
    r"^[#=*> -]{0,8}(?:log of |on |from )?(?P<name>(?:(?i:node|host|machine|server|rank|worker|pod)[ _-]?)?[A-Za-z]?[\w.-]{0,24}?[\w])[ =*-]{0,4}:?[ =*-]{0,8}$"
)
_PAIR = regex(r"(?<![\w.-])([A-Za-z][\w.-]{2,40}?) {0,20}[:=] ?['\"]?([\w./:@+-]{1,60})")
_MEASURED = regex(r"-?\d{1,9}\.\d{1,9}$|-?\d{1,9}(?:\.\d{1,9})?(?:ms|s|GB|MB|GiB|MiB|%|it/s)$")
_AGREED = 3  # settings at least on which both agree
_MOST = 2  # that differ: more are those of another program


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
    return tuple(unlike) if len(unlike) <= _MOST and agreed >= _AGREED else ()


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
