"""One entry of knowledge: which frames, ops, groups, lines or causes it is about, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Frame

#: Where a library's own control flow is when this frame is on the stack. `loop` contains everything and says nothing.
STAGES = ("loop", "construction", "epoch start", "step", "epoch end", "evaluation", "teardown")
#: A frame that runs because a signal arrived: the frames outside of it are where the process was.
HANDLER = "signal handler"
#: What a call is that users make by themselves.
CALLS = ("barrier", "turns", "exchange", "metric", "logging", "checkpoint", "weights", "gradients", "buffers")


@dataclass(frozen=True, slots=True)
class FramePattern:
    """A frame by the end of its file's path and its function; both may contain `*`."""

    path: str
    function: str

    def matches(self, frame: Frame) -> bool:
        """Return whether the pattern is of a frame."""
        if not (frame.name == self.function or fnmatchcase(frame.name, self.function)):
            return False
        file = frame.file.replace("\\", "/")
        if "*" not in self.path:
            return file == self.path or file.endswith("/" + self.path)
        return fnmatchcase(file, self.path) or fnmatchcase(file, "*/" + self.path)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a verdict is about, as rules ask for it: frames of both sides, ops, names of the group, lines, the cause."""

    cause: str
    frames: tuple[Frame, ...] = ()
    op: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """What is known of one library call, or of one situation. Conditions that are empty do not matter.

    `implies` is one of STAGES or CALLS, or empty. `legal` says when the call is right, as the end of a sentence that begins
    with the call's name. `advice` may contain `{who}`, `{api}` and `{line}`. `log`, `op` and `group` are glob patterns.
    `origin` is the file of a site's own rule.
    """

    library: str = ""
    api: str = ""
    frames: tuple[FramePattern, ...] = ()
    op: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    implies: str = ""
    legal: str = ""
    advice: tuple[str, ...] = ()
    docs: str = ""
    versions: str = ""
    owner: str = ""
    runbook: str = ""
    origin: str = ""

    @property
    def built_in(self) -> bool:
        """Whether the rule comes with hangscope and not from a site."""
        return not self.origin

    def applies_to(self, frame: Frame) -> bool:
        """Return whether the rule names a frame."""
        return any(pattern.matches(frame) for pattern in self.frames)

    def fits(self, situation: Situation) -> bool:
        """Return whether every condition that the rule has is met, each by one of its alternatives."""

        def met(patterns: Sequence[str], texts: Sequence[str]) -> bool:
            return not patterns or any(fnmatchcase(t, pattern) for pattern in patterns for t in texts)

        return (
            (not self.cause or situation.cause in self.cause)
            and met(self.op, situation.op)
            and met(self.group, situation.group)
            and met(self.log, situation.log)
            and (not self.frames or any(map(self.applies_to, situation.frames)))
        )
