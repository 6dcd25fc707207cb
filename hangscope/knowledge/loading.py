"""Reads knowledge from TOML and checks it: a broken rule causes one clear warning, and the others still apply.

library = "accelerate"
roots = ["accelerate"]          # folders below which the files of the frame patterns lie
versions = "1.15"               # what the frames were recorded with
docs = "https://huggingface.co/docs/accelerate"

[[rule]]
api = "Accelerator.wait_for_everyone"
frames = ["accelerator.py:wait_for_everyone", "state.py:wait_for_everyone"]
implies = "barrier"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hangscope.errors import Note
from hangscope.knowledge.catalog import CATALOG
from hangscope.knowledge.rule import CALLS, HANDLER, STAGES, FramePattern, Rule
from hangscope.model.tables import tomllib

MAX_FILE = 1 << 20
_LISTS = ("frames", "op", "group", "log", "cause", "advice")
_TEXTS = ("api", "implies", "legal", "docs", "owner", "runbook", "library", "versions")
_KEYS = frozenset((*_LISTS, *_TEXTS, "owns_loader"))
_HEADER = frozenset(("library", "roots", "versions", "docs", "packages", "rule"))
_LINKS = ("docs", "runbook")


class BrokenRule(ValueError):
    """A rule that cannot be used, with what is wrong and what to write instead."""


def parse_rules(text: str, origin: str, notes: list[Note], *, site: bool = True) -> tuple[Rule, ...]:
    """Return the rules of one file; what cannot be used becomes a note that names the file and the rule."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        notes.append(
            _note(origin, f"is no TOML ({error})", "mend that line; none of the file's rules was used")
        )
        return ()
    unknown = sorted(set(data) - _HEADER)
    if unknown:
        notes.append(
            _note(origin, f"has the unknown key {unknown[0]!r}", f"a file holds {', '.join(sorted(_HEADER))}")
        )
    entries = data.get("rule", [])
    if not isinstance(entries, list):
        notes.append(_note(origin, "has a `rule` that is no list", "write [[rule]], with two brackets"))
        return ()
    rules = []
    for number, entry in enumerate(entries, 1):
        try:
            rules.append(_rule(entry, data, origin, site))
        except BrokenRule as error:
            name = entry.get("api") if isinstance(entry, dict) else None
            called = f" ({name})" if isinstance(name, str) and name else ""
            notes.append(
                _note(origin, f"rule {number}{called}: {error}", "mend it; it was left out, the others count")
            )
    return tuple(rules)


def _note(origin: str, what: str, hint: str) -> Note:
    return Note("rule_left_out", f"{origin} {what}", file=origin, hint=hint)


def _rule(entry: Any, header: Mapping[str, Any], origin: str, site: bool) -> Rule:
    if not isinstance(entry, dict):
        raise BrokenRule("is no table")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise BrokenRule(f"unknown key {unknown[0]!r}; a rule may have {', '.join(sorted(_KEYS))}")
    lists = {key: _strings(entry, key) for key in _LISTS}
    texts = {key: _text(entry, key) or (_text(header, key) if key in header else "") for key in _TEXTS}
    if not any(lists[key] for key in ("frames", "op", "group", "log", "cause")):
        raise BrokenRule("says of nothing when it applies: give it frames, op, group, log or cause")
    if not any((texts["api"], texts["implies"], lists["advice"], texts["owner"], texts["runbook"])):
        raise BrokenRule("says nothing: give it api, implies, advice, owner or runbook")
    if (texts["api"] or texts["implies"]) and not lists["frames"]:
        raise BrokenRule("names a call without frames to know it by")
    if texts["implies"] and texts["implies"] not in (*STAGES, *CALLS, HANDLER):
        raise BrokenRule(
            f"implies {texts['implies']!r}, which is none of {', '.join((*STAGES, *CALLS, HANDLER))}"
        )
    for cause in lists["cause"]:
        if cause not in CATALOG:
            raise BrokenRule(f"{cause!r} is no cause; see `hangscope explain`")
    for key in _LINKS:
        if texts[key] and not texts[key].startswith(("https://", "http://")):
            raise BrokenRule(f"{key} must be an http(s) link, not {texts[key][:80]!r}")
    owns = entry.get("owns_loader", False)
    if not isinstance(owns, bool):
        raise BrokenRule("owns_loader must be true or false")
    roots = _strings(header, "roots")
    frames = tuple(p for text in lists.pop("frames") for p in _patterns(text, roots))
    return Rule(frames=frames, owns_loader=owns, origin=origin if site else "", **lists, **texts)  # type: ignore[arg-type]


def _patterns(text: str, roots: tuple[str, ...]) -> list[FramePattern]:
    path, colon, function = text.rpartition(":")
    if not colon or not path or not function or function.isdigit():
        raise BrokenRule(f"{text!r} is no frame: write path.py:function")
    return [FramePattern(f"{root}/{path}", function) for root in roots] or [FramePattern(path, function)]


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise BrokenRule(f"{key} must be a text or a list of texts")
    return tuple(value)


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise BrokenRule(f"{key} must be a text")
    return value


def read_rules(path: str | Path, notes: list[Note]) -> tuple[Rule, ...]:
    """Return a site's own rules; a file that cannot be read becomes a note."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        notes.append(
            _note(str(path), f"could not be read ({error.strerror})", "check --rules and HANGSCOPE_RULES")
        )
        return ()
    if len(data) > MAX_FILE:
        notes.append(_note(str(path), "is larger than 1 MiB", "a rules file is short; is it the right one?"))
        return ()
    return parse_rules(data.decode("utf-8", "replace"), str(path), notes)


@lru_cache(maxsize=1)
def own_rules() -> tuple[Rule, ...]:
    """Return the rules that come with hangscope. A broken one is a bug in hangscope."""
    notes: list[Note] = []
    rules: list[Rule] = []
    for file in sorted(files("hangscope.knowledge").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            rules += parse_rules(file.read_text("utf-8"), file.name, notes, site=False)
    if notes:
        raise AssertionError("; ".join(str(note) for note in notes))
    return tuple(rules)


@lru_cache(maxsize=1)
def known_packages() -> frozenset[str]:
    """Return the packages whose frames are never the user's, wherever they are installed."""
    names: set[str] = set()
    for file in files("hangscope.knowledge").iterdir():
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text("utf-8"))
            names.update(root.split("/")[0] for root in data.get("roots", ()))
            names.update(data.get("packages", ()))
    return frozenset(names)
