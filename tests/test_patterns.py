"""Every regular expression of the package takes time in proportion to its input, however that was made.

The attacks are derived from each pattern: what stands before one of its repetitions, then what is repeated, many times, then a
character that fits nowhere; and the beginnings of matches, one after another. Patterns that stand where they are used, in a call
such as `re.search`, are found in the source.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import hangscope
from hangscope.ingest.lines.layers import layers
from hangscope.ingest.lines.vocabulary import expressions, words
from hangscope.ingest.nccl import warn
from hangscope.ingest.stacks.headers import forms
from hangscope.ingest.torch_logs import symptoms
from hangscope.model.regex import LazyPattern

try:
    from re import _constants as const  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # before Python 3.11
    import sre_constants as const  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

SIZE = 2000  # characters; a line is at most sixteen times as long
GROWTH = 3  # of the time, for twice the input: linear is 2, quadratic 4
NOWHERE = "\x01"


def _within(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LazyPattern):
        yield value.compiled
    elif depth < 4 and isinstance(value, dict):
        for item in value.items():
            yield from _within(item, depth + 1)
    elif depth < 4 and isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _within(item, depth + 1)
    elif depth < 4 and is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from _within(getattr(value, part.name, None), depth + 1)
    elif isinstance(value, type) and value.__module__.startswith("hangscope") and depth < 2:
        for item in vars(value).values():
            yield from _within(item, depth + 2)


@lru_cache(maxsize=1)
def patterns() -> dict[str, re.Pattern[Any]]:
    """Return every pattern of the package by its place. It takes seconds: no test module does it when it is imported."""
    found: dict[str, re.Pattern[Any]] = {}
    done: set[int] = set()  # what one module imports from another is looked at once
    for info in pkgutil.walk_packages(hangscope.__path__, "hangscope."):
        if info.name.endswith(("__main__", ".sitecustomize")) or info.name.startswith("hangscope.hooks."):
            continue  # what acts when it is imported; of the hooks, files for users to copy, the source is read below
        try:
            module = importlib.import_module(info.name)
        except ImportError:
            continue  # an extra that is not installed
        for name, value in vars(module).items():
            if id(value) in done:
                continue
            done.add(id(value))
            for number, pattern in enumerate(_within(value)):
                found.setdefault(f"{info.name}.{name}[{number}]", pattern)
    found |= dict(_inline()) | {f"words.toml: {name}": words(name) for name in expressions()}
    found["prefixes.toml"] = layers()[0]
    found["faults/symptoms.toml"] = symptoms.symptoms()[0]
    found |= {f"faults/nccl.toml[{n}]": rule.pattern.compiled for n, rule in enumerate(warn.rules())}
    for kind in ("thread", "frame"):
        found |= {f"stacks.toml: {kind} {n}": one.pattern.compiled for n, one in enumerate(forms(kind))}
    seen: set[Any] = set()
    return {
        n: p
        for n, p in found.items()
        if (p.pattern, p.flags) not in seen and not seen.add((p.pattern, p.flags))
    }


_ASKED = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
_CALL = re.compile(rf"\bre\.(?:{'|'.join(_ASKED)})\(")
_PACKAGE = Path(hangscope.__path__[0])


def _calls_of_re() -> Iterator[tuple[str, str, ast.expr]]:
    """Yield (place, function, pattern) of every call of `re` in the source that does more than compile a pattern."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _CALL.search(text) else ():
            if (
                (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in _ASKED
                )
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
            ):
                place = f"{path.relative_to(_PACKAGE)}:{node.lineno}:{node.col_offset}"
                yield place, node.func.attr, node.args[0]


def _inline() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the literal patterns of such calls. `match` asks at the start alone, and so does what stands for it here."""
    for place, function, pattern in _calls_of_re():
        if not isinstance(pattern, ast.Constant):
            continue
        text = ast.literal_eval(pattern)
        if function in ("match", "fullmatch"):
            text = rb"\A(?:" + text + b")" if isinstance(text, bytes) else rf"\A(?:{text})"
        yield place, re.compile(text)


def test_patterns_where_they_are_used_are_found() -> None:
    places = [place.split(":")[0] for place, _ in _inline()]
    assert "ingest/torch_logs/c10d.py" in places and len(places) > 25


def _char(items: Any) -> str:
    """Return a character of a class."""
    negated = items and items[0][0] is const.NEGATE
    candidates = "a0 -/x.=:,'\"(_\t\\[A{<\n"
    for char in candidates:
        if _holds(items, char) != negated:
            return char
    for kind, value in items:
        if kind is const.LITERAL:
            return chr(value)
        if kind is const.RANGE:
            return chr(value[0])
    return "a"


def _holds(items: Any, char: str) -> bool:
    for kind, value in items:
        if (kind is const.LITERAL and ord(char) == value) or (
            kind is const.RANGE and value[0] <= ord(char) <= value[1]
        ):
            return True
        if kind is const.CATEGORY:
            word = {const.CATEGORY_DIGIT: r"\d", const.CATEGORY_NOT_DIGIT: r"\D", const.CATEGORY_SPACE: r"\s",
                    const.CATEGORY_NOT_SPACE: r"\S", const.CATEGORY_WORD: r"\w", const.CATEGORY_NOT_WORD: r"\W"}.get(value)  # fmt: skip
            if word and re.match(word, char):
                return True
    return False


def _example(nodes: Any, more: list[tuple[str, str]], before: str = "") -> str:
    """Return a text that the nodes match; add (what stands before it, what is repeated) of every repetition to `more`."""
    text = ""
    for kind, value in nodes:
        if kind is const.LITERAL:
            text += chr(value)
        elif kind is const.NOT_LITERAL:
            text += "a" if value != ord("a") else "b"
        elif kind is const.ANY:
            text += "a"
        elif kind is const.IN:
            text += _char(value)
        elif kind is const.SUBPATTERN:
            text += _example(value[-1], more, before + text)
        elif kind is const.BRANCH:
            texts = [_example(branch, more, before + text) for branch in value[1]]
            more += [(before + text, t) for t in texts[1:] if t]
            text += texts[0]
        elif "REPEAT" in str(kind):
            least, most, inner = value
            unit = _example(inner, more, before + text)
            if most > 20 and unit:
                more.append((before + text, unit))
            text += unit * max(1, min(least, 40))
    return text


def _attacks(pattern: re.Pattern[Any], size: int = SIZE) -> Iterator[str]:
    more: list[tuple[str, str]] = []
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if not isinstance(pattern.pattern, str) else pattern.flags
    whole = _example(parser.parse(source, flags & ~re.DEBUG), more)
    units = {(b[-200:], u[:200]) for b, u in more} | {
        ("", whole[:200]),
        ("", whole[:1]),
        ("", "-1"),
        ("", "a "),
        ("", " "),
    }
    units |= {("", (b + u)[:200]) for b, u in more} | {("", b[-200:]) for b, _ in more if b}
    for before, unit in sorted(units):
        if unit:
            for end in (NOWHERE, ""):
                yield before + unit * (size // len(unit)) + end


def _seconds(pattern: re.Pattern[Any], attack: str) -> float:
    """Return the least processor time of some searches."""
    ask = pattern.match if pattern is layers()[0] else pattern.search  # the prefixes of a line
    text: Any = attack if isinstance(pattern.pattern, str) else attack.encode("latin-1", "replace")
    best = 1e9
    for _ in range(4):
        began = time.process_time()
        ask(text)
        best = min(best, time.process_time() - began)
        if best < SECONDS:  # too quick to be of interest
            break
    return best


def _half_of_a_quadratic() -> float:
    """Return half of the processor time that a quadratic pattern takes on this machine."""
    times = []
    for _ in range(5):
        began = time.process_time()
        re.search(r"[a-z]+@", "a" * SIZE)
        times.append(time.process_time() - began)
    return min(times) / 2


SECONDS = _half_of_a_quadratic()  # what is quicker is linear


def _growing(pattern: re.Pattern[Any]) -> str:
    """Return an attack for which a pattern takes more than its share, or nothing."""
    for once, double in zip(_attacks(pattern), _attacks(pattern, 2 * SIZE), strict=True):
        seconds = _seconds(pattern, once)
        if seconds < SECONDS or (twice := _seconds(pattern, double)) <= GROWTH * seconds:
            continue
        # The times of a busy machine vary, so growth has to go on: what is quadratic takes four times as much again.
        attack = once[: len(once) // 2]
        if seconds > GROWTH * _seconds(pattern, attack) or twice > 20 * SECONDS:
            return f"{seconds:.2f} s for {len(once)} characters of {once[:60]!r}, and more than {GROWTH} times that for twice as many"
    return ""


def test_every_pattern_is_linear() -> None:
    assert len(patterns()) > 100
    found = {name: told for name, pattern in sorted(patterns().items()) if (told := _growing(pattern))}
    # Once may be the machine's doing.
    assert {name: told for name, told in found.items() if _growing(patterns()[name])} == {}


@pytest.mark.parametrize("pattern", [r"[a-z]+@", r"^\s*[~^]+[~^\s]*$"])
def test_a_pattern_that_is_not_would_be_found(pattern: str) -> None:
    assert any(_growing(re.compile(pattern)) for _ in range(3))
