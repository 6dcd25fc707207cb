"""Reads knowledge from TOML and checks it: a broken rule causes one clear warning, and the others still apply.

library = "accelerate"
roots = ["accelerate"]          # folders that contain the files of the frame patterns
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
_CONDITIONS = ("frames", "op", "group", "log", "cause")
_LISTS = (*_CONDITIONS, "advice")
_TEXTS = ("api", "implies", "legal", "docs", "owner", "runbook", "library", "versions")
_HEADER = frozenset(("library", "roots", "versions", "docs", "packages", "rule"))
_IMPLIED = (*STAGES, *CALLS, HANDLER)


class BrokenRule(ValueError):
    """A rule that cannot be used, with what is wrong and what to write instead."""


def parse_rules(text: str, origin: str, notes: list[Note], *, site: bool = True) -> tuple[Rule, ...]:
    """Return the rules of one file; what cannot be used becomes a note that names the file and the rule."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = "fix that line; none of the file's rules was used"
        notes.append(_note(origin, f"is no TOML ({error})", hint))
        return ()
    if unknown := sorted(set(data) - _HEADER):
        what = f"has the unknown key {unknown[0]!r}"
        notes.append(_note(origin, what, f"a file may have {', '.join(sorted(_HEADER))}"))
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
            which = f"rule {number} ({name})" if isinstance(name, str) and name else f"rule {number}"
            notes.append(_note(origin, f"{which}: {error}", "fix it; it was left out, the others apply"))
    return tuple(rules)


def _note(origin: str, what: str, hint: str) -> Note:
    return Note("rule_left_out", f"{origin} {what}", file=origin, hint=hint)


def _rule(entry: Any, header: Mapping[str, Any], origin: str, site: bool) -> Rule:
    if not isinstance(entry, dict):
        raise BrokenRule("is no table")
    if unknown := sorted(set(entry).difference(_LISTS, _TEXTS)):
        keys = ", ".join(sorted((*_LISTS, *_TEXTS)))
        raise BrokenRule(f"unknown key {unknown[0]!r}; a rule may have {keys}")
    lists = {key: _strings(entry, key) for key in _LISTS}
    texts = {key: _text(entry, key) or (_text(header, key) if key in header else "") for key in _TEXTS}
    if not any(lists[key] for key in _CONDITIONS):
        raise BrokenRule("does not say when it applies: give it frames, op, group, log or cause")
    if not any((texts["api"], texts["implies"], lists["advice"], texts["owner"], texts["runbook"])):
        raise BrokenRule("says nothing: give it api, implies, advice, owner or runbook")
    if (texts["api"] or texts["implies"]) and not lists["frames"]:
        raise BrokenRule("names a call without frames to know it by")
    if texts["implies"] not in ("", *_IMPLIED):
        raise BrokenRule(f"implies {texts['implies']!r}, which is none of {', '.join(_IMPLIED)}")
    for cause in lists["cause"]:
        if cause not in CATALOG:
            raise BrokenRule(f"{cause!r} is no cause; see `hangscope explain`")
    for key in ("docs", "runbook"):
        if texts[key] and not texts[key].startswith(("https://", "http://")):
            raise BrokenRule(f"{key} must be an http(s) link, not {texts[key][:80]!r}")
    roots = _strings(header, "roots")
    frames = tuple(p for text in lists.pop("frames") for p in _patterns(text, roots))
    return Rule(frames=frames, origin=origin if site else "", **lists, **texts)  # type: ignore[arg-type]


def _patterns(text: str, roots: tuple[str, ...]) -> list[FramePattern]:
    path, _, function = text.rpartition(":")
    if not path or not function or function.isdigit():
        raise BrokenRule(f"{text!r} is no frame: write path.py:function")
    return [FramePattern(f"{root}/{path}", function) for root in roots] or [FramePattern(path, function)]


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise BrokenRule(f"{key} must be a text or a list of texts")
    return tuple(texts)


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
        why = f"could not be read ({error.strerror})"
        notes.append(_note(str(path), why, "check --rules and HANGSCOPE_RULES"))
        return ()
    if len(data) > MAX_FILE:
        notes.append(_note(str(path), "is larger than 1 MiB", "a rules file is short; is it the right one?"))
        return ()
    return parse_rules(data.decode("utf-8", "replace"), str(path), notes)


@lru_cache(maxsize=1)
def _own_files() -> dict[str, str]:
    found = sorted(files("hangscope.knowledge").iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found if file.name.endswith(".toml")}


@lru_cache(maxsize=1)
def own_rules() -> tuple[Rule, ...]:
    """Return the rules that come with hangscope. A broken one is a bug in hangscope."""
    notes: list[Note] = []
    rules = [r for name, text in _own_files().items() for r in parse_rules(text, name, notes, site=False)]
    if notes:
        raise AssertionError("; ".join(str(note) for note in notes))
    return tuple(rules)


@lru_cache(maxsize=1)
def common_packages() -> frozenset[str]:
    """Return the packages that many jobs have installed, and that are no framework whose functions rules know."""
    return frozenset(tomllib.loads(_own_files()["packages.toml"])["packages"])


@lru_cache(maxsize=1)
def known_packages() -> frozenset[str]:
    """Return the packages whose frames are never the user's, wherever they are installed."""
    tables = [tomllib.loads(text) for text in _own_files().values()]
    roots = (root.split("/")[0] for table in tables for root in table.get("roots", ()))
    return frozenset(roots).union(*(table.get("packages", ()) for table in tables))
