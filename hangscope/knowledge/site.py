"""A site's own rules: which files there are, and the knowledge that they and hangscope's own make together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hangscope.errors import Note, UsageError
from hangscope.knowledge.library import Knowledge, own_knowledge
from hangscope.knowledge.loading import own_rules, read_rules

VARIABLE = "HANGSCOPE_RULES"
Rules = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def knowledge_with(rules: Rules | None, notes: list[Note]) -> Knowledge:
    """Return hangscope's knowledge with a site's own rules in front of it.

    `rules` is one file or several; those that HANGSCOPE_RULES names (separated like PATH) come after. An unusable rule becomes a warning; a requested file that does not exist raises UsageError.
    """
    wanted = [rules] if isinstance(rules, (str, os.PathLike)) else list(rules or ())
    if not all(isinstance(path, (str, os.PathLike)) for path in wanted):
        raise UsageError(
            "rules must be a path or a list of paths", "hangscope.analyze(paths, rules='rules.toml')"
        )
    for path in wanted:
        if not Path(path).is_file():
            raise UsageError(
                f"there is no file of rules at {os.fspath(path)}", "see docs/knowledge.md for the format"
            )
    named = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
    own = [rule for path in (*wanted, *named) for rule in read_rules(Path(path), notes)]
    return Knowledge((*own, *own_rules())) if own else own_knowledge()
