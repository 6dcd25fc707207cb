"""What a stack shows about the libraries on it: the call in the user's code, and the stage of the library's loop."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from hangscope.errors import Note, UsageError
from hangscope.knowledge.callsite import user_frames
from hangscope.knowledge.loading import own_rules, read_rules
from hangscope.knowledge.rule import HANDLER, STAGES, Rule
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Frame, Stack

LOOP = "loop"
_MOST_READ = 65536


@dataclass(frozen=True, slots=True)
class Reading:
    """What a stack shows. All fields are empty if no known library is on it.

    `call` is the library call that contains the collective: the outermost one that the user's code makes (`by_user`, with
    `caller` the user's line), else the outermost one that a library's own loop makes. `stage` is where that loop is when
    the call is made, `loop` the rule of the call that contains the whole loop (`Trainer.fit`).
    """

    call: Rule | None = None
    caller: Frame | None = None
    stage: str = ""
    loop: Rule | None = None

    @property
    def by_user(self) -> bool:
        """Return whether the user's code makes the call."""
        return self.caller is not None

    @property
    def api(self) -> str | None:
        """Return the name of the call, as the library's documentation has it."""
        return self.call.api or None if self.call is not None else None

    @property
    def kind(self) -> str:
        """Return what the call implies (`Rule.implies`)."""
        return self.call.implies if self.call is not None else ""

    @property
    def in_step(self) -> bool:
        """Return whether the stack is in what a training step always does."""
        return self.kind == "step" or (self.stage == "step" and not self.by_user)


class Knowledge:
    """Rules with an index by function, a site's own before those that come with hangscope."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._named: dict[str, list[Rule]] = defaultdict(list)
        self._globs: list[Rule] = []
        for rule in self.rules:
            for name in {p.function for p in rule.frames} if rule.api or rule.implies else ():
                is_glob = not {"*", "?", "["}.isdisjoint(name)
                (self._globs if is_glob else self._named[name]).append(rule)
        self.read = lru_cache(_MOST_READ)(self._reading)

    @property
    def advice(self) -> tuple[Rule, ...]:
        """Return the rules that name no call: they say what to do in a situation, or whose it is."""
        return tuple(rule for rule in self.rules if not rule.api and not rule.implies)

    def at(self, frame: Frame) -> Rule | None:
        """Return the first rule that names a call or a stage for a frame, or None."""
        rules = chain(self._named.get(frame.name, ()), self._globs)
        return next((rule for rule in rules if rule.applies_to(frame)), None)

    def _reading(self, stack: Stack) -> Reading:
        """Return what a stack says; stacks are innermost first."""
        users = set(user_frames(stack))
        call = caller = last_user = loop = None
        stage = own_stage = ""
        fresh = True  # no rule has applied since the last of the user's frames
        for current in reversed(stack):
            rule = self.at(current)
            # A site's own library may be in the folder of its scripts: what a rule of the site names is a library's.
            if current in users and (rule is None or rule.built_in):
                last_user, fresh = current, True
                continue
            if rule is None:
                continue
            if rule.implies == LOOP:
                loop = rule
            elif rule.api and fresh and caller is None:
                call, caller, stage = rule, last_user, own_stage
            elif rule.api and call is None:
                call = rule
            if rule.implies in STAGES and rule.implies != LOOP:
                own_stage = rule.implies
            fresh = False
        return Reading(call, caller, stage if caller is not None else own_stage, loop)


def off_the_step(a: Stack, b: Stack, knowledge: Knowledge) -> int | None:
    """Return which of two stacks (0 or 1) is the outlier if the other one is in the normal part of a training step, else None. A rank that issues a collective alone, or whose loop has run out of batches, is outside the step."""
    readings = knowledge.read(a), knowledge.read(b)
    if readings[0].in_step == readings[1].in_step:
        return None
    outlier = 0 if readings[1].in_step else 1
    return outlier if readings[outlier].call is not None or readings[outlier].stage else None


def before_signal(stack: Stack, knowledge: Knowledge) -> Stack:
    """Return where a process was when the signal arrived that a library handles on this stack, else the stack."""
    rules = [knowledge.at(frame) for frame in stack]
    handlers = [place for place, rule in enumerate(rules) if rule is not None and rule.implies == HANDLER]
    return stack[handlers[-1] + 1 :] if handlers else stack


@lru_cache(maxsize=1)
def own_knowledge() -> Knowledge:
    """Return the knowledge that comes with hangscope."""
    return Knowledge(own_rules())


VARIABLE = "HANGSCOPE_RULES"
Rules = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def knowledge_with(rules: Rules | None, notes: list[Note]) -> Knowledge:
    """Return hangscope's knowledge with a site's own rules in front of it.

    `rules` is one file or several; those that HANGSCOPE_RULES names (separated like PATH) come after. An unusable rule becomes a warning; a requested file that does not exist raises UsageError.
    """
    wanted = [rules] if isinstance(rules, (str, os.PathLike)) else list(rules or ())
    if not all(isinstance(path, (str, os.PathLike)) for path in wanted):
        hint = "hangscope.analyze(paths, rules='rules.toml')"
        raise UsageError("rules must be a path or a list of paths", hint)
    for path in wanted:
        if not Path(path).is_file():
            text = f"there is no file of rules at {os.fspath(path)}"
            raise UsageError(text, "see docs/knowledge.md for the format")
    named = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
    own = [rule for path in (*wanted, *named) for rule in read_rules(Path(path), notes)]
    return Knowledge((*own, *own_rules())) if own else own_knowledge()
