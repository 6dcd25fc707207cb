"""README, docs and help are plain English: no truncated summary, and no word of the tool's own where the field has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hangscope import cli

ROOT = Path(__file__).resolve().parents[2]
#: Words in a sense of their own, by what is said instead in README, docs and help.
PRIVATE = re.compile(
    r"(?i)\b(?:guilty|acquit\w*|accus(?:e|ed|es)\b|mend(?:s|ed)?\b|stands still|stood\b|stands (?:at|beside|behind)|waits? behind|"
    r"would decide|what was left|left the loop|behind the loop|open calls?\b|in a circle|the odd one|a lack of|lacks?\b)"
)
#: What changed between versions keeps the names of keys and files.
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def commands(command: click.Command, path: str = "hangscope") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_uses_a_word_in_a_private_sense(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if PRIVATE.search(re.sub(r"`[^`]*`", "", line))] == []


def test_no_help_uses_a_word_in_a_private_sense_or_truncates_a_summary() -> None:
    for path, command in commands(cli.main):
        text = command.get_help(click.Context(command, info_name=path))
        assert not PRIVATE.search(text), path
        assert not re.search(r"(?m)\.\.\.$", text.partition("Commands:")[2]), path
