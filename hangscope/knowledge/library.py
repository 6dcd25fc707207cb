"""What a stack shows about the libraries on it: the call in the user's code, and the stage of the library's loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from hangscope.knowledge.callsite import user_frames
from hangscope.knowledge.loading import own_rules
from hangscope.knowledge.rule import HANDLER, Rule
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Frame, Stack

LOOP = "loop"
_MOST_READ = 65536


@dataclass(frozen=True, slots=True)
class Reading:
    """What a stack shows. All fields are empty if no known library is on it.

    `call` is the library call that contains the collective: the outermost one that the user's code makes (`by_user`, with
    `caller` the user's line), else the outermost one that a library's own loop makes. `stage` is where that loop stands when
    the call is made, `loop` the rule of the call that holds the whole loop (`Trainer.fit`), `rules` all that apply.
    """

    call: Rule | None = None
    frame: Frame | None = None
    caller: Frame | None = None
    by_user: bool = False
    stage: str = ""
    loop: Rule | None = None
    rules: tuple[Rule, ...] = ()

    @property
    def api(self) -> str | None:
        """Return the name of the call, as the library's documentation has it."""
        return self.call.api or None if self.call is not None else None

    @property
    def kind(self) -> str:
        """Return what the call implies (`Rule.implies`)."""
        return self.call.implies if self.call is not None else ""

    @property
    def owns_loader(self) -> bool:
        """Whether a library on the stack creates the loader and its sampler, so that advice on the user's own sampler would not help."""
        return any(rule.owns_loader for rule in self.rules)


class Knowledge:
    """Rules with an index by function, a site's own before those that come with hangscope."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._named: dict[str, list[Rule]] = defaultdict(list)
        self._globs: list[Rule] = []
        for rule in self.rules:
            for name in {p.function for p in rule.frames}:
                if "*" in name or "?" in name or "[" in name:
                    self._globs.append(rule)
                else:
                    self._named[name].append(rule)
        self._read: dict[Stack, Reading] = {}

    @property
    def advice(self) -> tuple[Rule, ...]:
        """Return the rules that name no call: they say what to do in a situation, or whose it is."""
        return tuple(rule for rule in self.rules if not rule.api and not rule.implies)

    def at(self, frame: Frame) -> Rule | None:
        """Return the first rule that names a call or a stage for a frame, or None."""
        for rule in chain(self._named.get(frame.name, ()), self._globs):
            names_call = rule.api or rule.implies
            if names_call and any(p.matches(frame) for p in rule.frames):
                return rule
        return None

    def read(self, stack: Stack) -> Reading:
        """Return what a stack says; stacks are innermost first."""
        known = self._read.get(stack)
        if known is None:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            known = self._read[stack] = self._reading(stack)
        return known

    def _reading(self, stack: Stack) -> Reading:
        users = set(user_frames(stack))
        call: Rule | None = None
        frame = caller = last_user = loop = None
        by_user, stage, own_stage = False, "", ""
        fresh = True  # no rule has applied since the last of the user's frames
        found: list[Rule] = []
        for current in reversed(stack):
            rule = self.at(current)
            # A site's own library may lie beside its scripts: what a rule of the site's names is a library's.
            if current in users and (rule is None or rule.built_in):
                last_user, fresh = current, True
                continue
            if rule is None:
                continue
            if rule not in found:
                found.append(rule)
            if rule.implies == LOOP:
                loop = rule
            elif rule.api and fresh and not by_user:
                call, frame, caller, by_user, stage = (
                    rule,
                    current,
                    last_user,
                    last_user is not None,
                    own_stage,
                )
            elif rule.api and call is None:
                call, frame = rule, current
            if rule.is_stage and rule.implies != LOOP:
                own_stage = rule.implies
            fresh = False
        return Reading(call, frame, caller, by_user, stage if by_user else own_stage, loop, tuple(found))


def off_the_step(a: Stack, b: Stack, knowledge: Knowledge) -> int | None:
    """Return which of two stacks (0 or 1) is the outlier if the other one is in the normal part of a training step, else None. A rank that issues a collective alone, or whose loop has run out of batches, is outside the step."""
    readings = knowledge.read(a), knowledge.read(b)
    steps = [_in_a_step(reading) for reading in readings]
    if steps[0] == steps[1]:
        return None
    odd = 0 if steps[1] else 1
    return odd if readings[odd].call is not None or readings[odd].stage else None


def _in_a_step(reading: Reading) -> bool:
    """Return whether a stack is in what a training step always does."""
    return reading.kind == "step" or (reading.stage == "step" and not reading.by_user)


def before_signal(stack: Stack, knowledge: Knowledge) -> Stack:
    """Return where a process was when the signal arrived that a library handles on this stack, else the stack."""
    for index in range(len(stack) - 1, -1, -1):
        rule = knowledge.at(stack[index])
        if rule is not None and rule.implies == HANDLER:
            return stack[index + 1 :]
    return stack


@lru_cache(maxsize=1)
def own_knowledge() -> Knowledge:
    """Return the knowledge that comes with hangscope."""
    return Knowledge(own_rules())


def first_difference(own: Stack, peer: Stack) -> tuple[Frame, Frame] | None:
    """Return the outermost frames, one of each stack, at which the two part; None where one holds the other."""
    for a, b in zip(reversed(own), reversed(peer), strict=False):
        if a != b:
            return a, b
    return None
