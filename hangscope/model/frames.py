"""One line of a stack, and a stack: what dumps, tracebacks and stack dumps all hold."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack. Stacks are tuples of frames, innermost first."""

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        file = self.file.rsplit("/", 1)[-1]
        if not self.line:
            return f"{self.name} ({file})" if file else self.name
        return f"{file}:{self.line} in {self.name}"


Stack = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class UnplacedStack:
    """Where the main thread of a process is of which no rank is known; its process id and its own name, as far as they are known.

    `others` are the stacks of its other threads.
    """

    stack: Stack
    pid: int | None = None
    name: str = ""
    others: tuple[Stack, ...] = ()


_LIBRARY = regex(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib(?:64)?/python\d[\d.]*/|^<(?:frozen|string|__array_function__|eval_with)"
    r"|(?:^|/)torch/(?:distributed|nn|autograd|utils|_\w+|cuda|optim)/|/bin/(?:torchrun|accelerate|"
    r"deepspeed)$|^/build/|/importlib/"
)


def is_library(path: str) -> bool:
    """Return whether a frame's file belongs to Python, torch or an installed package, not to the user's code."""
    return bool(_LIBRARY.search(path.replace("\\", "/")))
